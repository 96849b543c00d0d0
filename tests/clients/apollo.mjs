// Apollo Client as a program: it does what each line of its input asks, and writes a line for all
// that it sees.
//
//   in   {"do": "watch" | "query" | "mutate" | "follow", "name", "text", "variables"}
//        {"do": "show", "name"}                          what is in the cache
//        "deleted": an id, with a mutation that deletes it; "forgets": true, to follow deletions
//   out  {"name", "data", "requests"}                    requests: sent over HTTP so far
//
// The address of the gateway is the argument; the end of the input is the end.

import readline from "node:readline";
import process from "node:process";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { OperationTypeNode } from "graphql";
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const address = `${process.argv[2]}/graphql`;
let requests = 0;

const http = new HttpLink({
  uri: address,
  fetch: (...request) => {
    requests += 1;
    return fetch(...request);
  },
});
const socket = createClient({
  url: address.replace("http", "ws"),
  webSocketImpl: WebSocket,
});
// Apollo's defaults and nothing else: objects are known by `__typename` and `id`. No possibleTypes
// either: fragments here are on objects (`... on ProductWritten`), whose names say all. A client
// that writes them on interfaces (`... on WriteError`) needs possibleTypes, as with any server.
const cache = new InMemoryCache();
const client = new ApolloClient({
  cache,
  link: ApolloLink.split(
    ({ operationType }) => operationType === OperationTypeNode.SUBSCRIPTION,
    new GraphQLWsLink(socket),
    http,
  ),
});

// All that a client has to do of its own: only it knows whether it still shows what is gone.
function forget(documentId) {
  cache.evict({ id: cache.identify({ __typename: "Product", id: documentId }) });
  cache.gc();
}

const does = {
  watch({ name, text, variables }) {
    client.watchQuery({ query: gql(text), variables }).subscribe(({ data, dataState, error }) => {
      if (error) fail(error);
      if (dataState === "complete") say(name, data);
    });
  },

  async query({ name, text, variables }) {
    const { data } = await client.query({ query: gql(text), variables });
    say(name, data);
  },

  async mutate({ name, text, variables, deleted }) {
    const update = deleted && (() => forget(deleted));
    const { data } = await client.mutate({ mutation: gql(text), variables, update });
    say(name, data);
  },

  follow({ name, text, variables, forgets }) {
    client.subscribe({ query: gql(text), variables }).subscribe(({ data, error }) => {
      if (error) fail(error);
      const { kind, operation, documentId } = data.productChanges;
      // A fresher token to hold, and nothing to see.
      if (kind === "CHECKPOINT") return;
      if (forgets && operation === "DELETE") forget(documentId);
      say(name, data);
    });
  },

  show({ name }) {
    say(name, cache.extract());
  },
};

function say(name, data) {
  process.stdout.write(`${JSON.stringify({ name, data, requests })}\n`);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

process.on("unhandledRejection", fail);

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const asked = JSON.parse(line);
  does[asked.do](asked);
});
lines.on("close", () => process.exit(0));
