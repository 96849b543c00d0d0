// GraphQL clients of other makers as one program: it does what each line of its input asks, and
// writes a line for all that it sees.
//
//   node libraries.mjs graphql-ws | apollo | urql | relay ADDRESS
//
//   in   {"do": "query" | "mutate" | "follow", "name", "text", "variables"}
//   out  {"name", "data"}     of `follow` each change, also after the connection was lost
//
// Subscriptions run over `examples/resuming/follow.ts` in each of them: it takes the transport's place.
// The end of the input is the end.

import readline from "node:readline";
import process from "node:process";
import { createClient as createSocket } from "graphql-ws";
import { follow } from "../../examples/resuming/follow.ts";

const [library, address] = process.argv.slice(2);
const http = `${address}/graphql`;
const socket = createSocket({ url: http.replace("http", "ws"), retryAttempts: 0 });

// What `follow` brings, as an observer is told it. Returns what stops it.
function observed(query, variables, observer) {
  const changes = follow(socket, query, variables);
  (async () => {
    // Only what is selected has a name: all subscriptions here have one field.
    for await (const change of changes) observer.next({ data: { [field(query)]: change } });
  })().catch((failure) => observer.error(failure));
  return () => void changes.return();
}

const field = (query) => /\{\s*(\w+)/.exec(query.replace(/^[^{]*/, ""))[1];

const libraries = {
  async "graphql-ws"() {
    const once = async ({ text, variables }) => {
      for await (const { data, errors } of socket.iterate({ query: text, variables })) {
        if (errors) throw errors;
        return data;
      }
    };
    return {
      query: once,
      mutate: once,
      follow: ({ text, variables }, seen) =>
        observed(text, variables, { next: ({ data }) => seen(data), error: fail }),
    };
  },

  async apollo() {
    const { ApolloClient, ApolloLink, HttpLink, InMemoryCache, Observable, gql } = await import(
      "@apollo/client"
    );
    const { OperationTypeNode, print } = await import("graphql");
    const resuming = new ApolloLink(
      ({ query, variables }) =>
        new Observable((observer) => observed(print(query), variables, observer)),
    );
    const client = new ApolloClient({
      cache: new InMemoryCache(),
      link: ApolloLink.split(
        ({ operationType }) => operationType === OperationTypeNode.SUBSCRIPTION,
        resuming,
        new HttpLink({ uri: http }),
      ),
    });
    return {
      query: async ({ text, variables }) =>
        (await client.query({ query: gql(text), variables, fetchPolicy: "network-only" })).data,
      mutate: async ({ text, variables }) =>
        (await client.mutate({ mutation: gql(text), variables })).data,
      follow: ({ text, variables }, seen) =>
        client.subscribe({ query: gql(text), variables }).subscribe(({ data, error }) => {
          if (error) fail(error);
          seen(data);
        }),
    };
  },

  async urql() {
    const { Client, cacheExchange, fetchExchange, subscriptionExchange } = await import("@urql/core");
    const client = new Client({
      url: http,
      preferGetMethod: false,
      exchanges: [
        cacheExchange,
        fetchExchange,
        subscriptionExchange({
          forwardSubscription: ({ query, variables }) => ({
            subscribe: (observer) => ({ unsubscribe: observed(query, variables, observer) }),
          }),
        }),
      ],
    });
    const data = ({ data, error }) => (error ? fail(error) : data);
    return {
      query: async ({ text, variables }) =>
        data(await client.query(text, variables, { requestPolicy: "network-only" }).toPromise()),
      mutate: async ({ text, variables }) => data(await client.mutation(text, variables).toPromise()),
      follow: ({ text, variables }, seen) =>
        client.subscription(text, variables).subscribe((result) => seen(data(result))),
    };
  },

  async relay() {
    const { default: relay } = await import("relay-runtime");
    const { artifact } = await import("./relay_artifacts.mjs");
    const { Environment, Network, Observable, RecordSource, Store } = relay;
    const fetched = async ({ text }, variables) => {
      const response = await fetch(http, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ query: text, variables }),
      });
      return response.json();
    };
    const subscribed = ({ text }, variables) =>
      Observable.create((sink) => observed(text, variables, sink));
    const environment = new Environment({
      network: Network.create(fetched, subscribed),
      store: new Store(new RecordSource()),
    });
    return {
      query: ({ text, variables }) =>
        relay
          .fetchQuery(environment, artifact(text), variables, { fetchPolicy: "network-only" })
          .toPromise(),
      mutate: ({ text, variables }) =>
        new Promise((onCompleted, onError) =>
          relay.commitMutation(environment, {
            mutation: artifact(text),
            variables,
            onCompleted,
            onError,
          }),
        ),
      follow: ({ text, variables }, seen) =>
        relay.requestSubscription(environment, {
          subscription: artifact(text),
          variables,
          onNext: seen,
          onError: fail,
        }),
    };
  },
};

function say(name, data) {
  process.stdout.write(`${JSON.stringify({ name, data, requests: 0 })}\n`);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

process.on("unhandledRejection", fail);

const client = await libraries[library]();
const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const asked = JSON.parse(line);
  if (asked.do === "follow") client.follow(asked, (data) => say(asked.name, data));
  else say(asked.name, await client[asked.do](asked));
});
lines.on("close", () => process.exit(0));
