// A client that follows a subscription over HTTP, whatever becomes of the gateway, and writes a line
// for each document that was changed.
//
//   out  {"opened": how often it has connected} | {"document": its id} | {"told": an error's code}
//
// The arguments are the client, the address of the gateway, and a resume token to begin after.

import process from "node:process";
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client";
import { RetryLink } from "@apollo/client/link/retry";
import { EventSource } from "eventsource";
import { createClient } from "graphql-sse";
import { tap } from "rxjs";

const [client, address, after] = process.argv.slice(2);
const url = `${address}/graphql`;
const query =
  "subscription Changes($after: ResumeToken) { thingChanges(after: $after) { kind documentId resumeToken } }";
const variables = { after };
let opened = 0;

const follow = {
  // A browser's own: nothing but an address. It keeps the `id:` of the last event by itself.
  EventSource() {
    const asked = `query=${encodeURIComponent(query)}&variables=${encodeURIComponent(JSON.stringify(variables))}`;
    const source = new EventSource(`${url}?${asked}`);
    source.addEventListener("open", connected);
    source.addEventListener("next", ({ data, lastEventId }) => {
      const change = heard(JSON.parse(data));
      if (change && change.resumeToken !== lastEventId) fail(`id ${lastEventId} of ${data}`);
    });
    source.addEventListener("complete", () => fail("complete"));
  },

  // Connects again by itself, and sends the variables as they are by then.
  "graphql-sse"() {
    const sse = createClient({ url, retryAttempts: 1000, retry: soon, on: { connected } });
    const next = (result) => (variables.after = heard(result)?.resumeToken ?? variables.after);
    sse.subscribe({ query, variables }, { next, error: fail, complete: () => fail("complete") });
  },

  // In multipart, as Apollo Client does it of itself; its RetryLink connects again, with the variables
  // as they are by then.
  "Apollo Client"() {
    const retrying = new RetryLink({ attempts: { max: Infinity } });
    const resuming = new ApolloLink((operation, forward) => {
      connected();
      return forward(operation).pipe(
        tap(({ data }) => {
          if (data) operation.variables.after = data.thingChanges.resumeToken;
        }),
      );
    });
    const link = ApolloLink.from([retrying, resuming, new HttpLink({ uri: url })]);
    const apollo = new ApolloClient({ cache: new InMemoryCache(), link });
    apollo.subscribe({ query: gql(query), variables }).subscribe({
      next: ({ data, error }) => (error ? fail(error) : heard({ data })),
      error: fail,
      complete: () => fail("complete"),
    });
  },
};

function connected() {
  say({ opened: (opened += 1) });
}

function heard({ data, errors }) {
  if (errors) say({ told: errors[0].extensions.code });
  const change = data?.thingChanges;
  if (change?.kind === "CHANGE") say({ document: change.documentId });
  return change;
}

function soon() {
  return new Promise((resolve) => setTimeout(resolve, 100));
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function fail(reason) {
  console.error(reason);
  process.exit(1);
}

process.on("unhandledRejection", fail);
process.stdin.on("end", () => process.exit(0)).resume();
follow[client]();
