// A client as its makers describe it: nothing but an address, and for how long to try again. It
// follows a subscription, and writes a line for each document that was changed.
//
//   node stock.mjs graphql-ws | apollo | urql | relay ADDRESS TOKEN [PASS]
//
//   out  {"connected": how often} | {"document": its id} | {"ended": why}
//
// What it holds a resume token for is its variable `after`: each event puts its token there, so that
// the library subscribes again behind it. PASS is an address that answers with a bearer token.

import process from "node:process";
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const [library, address, after, pass] = process.argv.slice(2);
const query = `subscription Changes($after: ResumeToken) {
  thingChanges(after: $after) { __typename kind documentId resumeToken thing { __typename id text } }
}`;
let connected = 0;

const socket = createClient({
  url: `${address.replace("http", "ws")}/graphql`,
  webSocketImpl: WebSocket,
  retryAttempts: Infinity,
  connectionParams: async () =>
    pass && { authorization: `Bearer ${await (await fetch(pass)).text()}` },
  on: { connected: () => say({ connected: (connected += 1) }) },
});

// The whole of what a frontend adds.
function resuming() {
  return {
    ...socket,
    subscribe: (payload, sink) => {
      const request = { ...payload, variables: { ...payload.variables } };
      const next = (result) => {
        const change = result.data && Object.values(result.data)[0];
        if (change) request.variables.after = change.resumeToken;
        sink.next(result);
      };
      return socket.subscribe(request, { ...sink, next, error: sink.error.bind(sink), complete: sink.complete.bind(sink) });
    },
  };
}

const follow = {
  async "graphql-ws"(client, sink) {
    client.subscribe({ query, variables: { after } }, sink);
  },

  async apollo(client, sink) {
    const { ApolloClient, InMemoryCache, gql } = await import("@apollo/client");
    const { GraphQLWsLink } = await import("@apollo/client/link/subscriptions");
    const apollo = new ApolloClient({ cache: new InMemoryCache(), link: new GraphQLWsLink(client) });
    apollo.subscribe({ query: gql(query), variables: { after } }).subscribe(sink);
  },

  async urql(client, sink) {
    const { Client, cacheExchange, subscriptionExchange } = await import("@urql/core");
    const urql = new Client({
      url: `${address}/graphql`,
      exchanges: [
        cacheExchange,
        subscriptionExchange({
          forwardSubscription(request) {
            const input = { ...request, query: request.query || "" };
            return {
              subscribe: (observer) => ({ unsubscribe: client.subscribe(input, observer) }),
            };
          },
        }),
      ],
    });
    urql.subscription(query, { after }).subscribe(({ data, error }) => sink.next({ data, error }));
  },

  async relay(client, sink) {
    const { default: relay } = await import("relay-runtime");
    const { artifact } = await import("./relay_artifacts.mjs");
    const { Environment, Network, Observable, RecordSource, Store, requestSubscription } = relay;
    const subscribe = (operation, variables) =>
      Observable.create((observer) =>
        client.subscribe({ operationName: operation.name, query: operation.text, variables }, observer),
      );
    const environment = new Environment({
      network: Network.create(() => fail("nothing is fetched"), subscribe),
      store: new Store(new RecordSource()),
    });
    requestSubscription(environment, {
      subscription: artifact(query),
      variables: { after },
      onNext: (data) => sink.next({ data }),
      onError: sink.error,
      onCompleted: sink.complete,
    });
  },
};

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function fail(reason) {
  console.error(reason);
  process.exit(1);
}

process.on("unhandledRejection", fail);
process.stdin.on("end", () => process.exit(0)).resume();
follow[library](resuming(), {
  next: ({ data, error, errors }) => {
    const failure = error ?? errors;
    if (failure) say({ ended: String(failure.message ?? JSON.stringify(failure)) });
    else if (data.thingChanges.kind === "CHANGE") say({ document: data.thingChanges.documentId });
  },
  error: (failure) => say({ ended: String(failure.message ?? failure.reason ?? JSON.stringify(failure)) }),
  complete: () => say({ ended: "complete" }),
});
