// An environment of relay-runtime that runs what relay-compiler has made, and says what its store has.
//
//   node run.mjs ADDRESS, in the folder with `__generated__`
//
//   out  {"step", "data", "ids": those of the documents in the store}

import process from "node:process";
import { createClient } from "graphql-ws";
import relay from "relay-runtime";
import WebSocket from "ws";

const { Environment, Network, Observable, RecordSource, Store } = relay;
const [address] = process.argv.slice(2);
const compiled = async (name) => (await import(`./__generated__/${name}.graphql.js`)).default;

const socket = createClient({ url: `${address.replace("http", "ws")}/graphql`, webSocketImpl: WebSocket });
const store = new Store(new RecordSource());
const environment = new Environment({
  store,
  network: Network.create(
    async ({ text }, variables) =>
      (
        await fetch(`${address}/graphql`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ query: text, variables }),
        })
      ).json(),
    ({ name, text }, variables) =>
      Observable.create((sink) =>
        socket.subscribe({ operationName: name, query: text, variables }, sink),
      ),
  ),
});

async function fetched(name, variables) {
  const query = await compiled(name);
  const data = await relay.fetchQuery(environment, query, variables, { fetchPolicy: "network-only" }).toPromise();
  const operation = relay.createOperationDescriptor(query, variables);
  environment.retain(operation);
  return [data, environment.lookup(operation.fragment).data];
}

function say(step, data) {
  const records = Object.values(store.getSource().toJSON());
  const ids = Object.fromEntries(
    records.filter((each) => ["Product", "Reading"].includes(each.__typename)).map((each) => [each.__id, each]),
  );
  process.stdout.write(`${JSON.stringify({ step, data, ids })}\n`);
}

process.on("unhandledRejection", (failure) => {
  console.error(failure);
  process.exit(1);
});

const [, seen] = await fetched("appGoodsQuery", { count: 10 });
say("list", seen);
const product = Object.values(store.getSource().toJSON()).find((each) => each.__typename === "Product");
await fetched("appProductDetailsQuery", { id: product.__id });
say("refetched", null);

const subscription = await compiled("appGoodsSubscription");
await new Promise((resolve, reject) =>
  relay.requestSubscription(environment, {
    subscription,
    variables: {},
    onNext: async ({ productChanges }) => {
      if (productChanges.kind === "CHANGE") return resolve();
      const mutation = await compiled("appRenameMutation");
      const variables = { id: product.documentId, name: "Renamed" };
      relay.commitMutation(environment, { mutation, variables, onError: reject });
    },
    onError: reject,
  }),
);
say("changed", null);
process.exit(0);
