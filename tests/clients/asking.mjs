// Clients of event streams that ask what ends: a query and a mutation.
//
//   out  {"client", "kind": "query" | "mutation", "data"}, then an end
//
// The address of the gateway is the argument.

import process from "node:process";
import { EventSource } from "eventsource";
import { createClient } from "graphql-sse";

const url = `${process.argv[2]}/graphql`;
const asked = { query: "{ resumeToken }" };

function say(client, kind, data) {
  process.stdout.write(`${JSON.stringify({ client, kind, data })}\n`);
}

const sse = createClient({ url, retryAttempts: 0 });

async function ask(kind, request) {
  for await (const { data } of sse.iterate(request)) {
    say("graphql-sse", kind, data);
  }
}

await ask("query", asked);
await ask("mutation", { query: 'mutation { deleteProduct(id: "none") { __typename } }' });

const source = new EventSource(`${url}?query=${encodeURIComponent(asked.query)}`);
source.addEventListener("next", ({ data }) => say("EventSource", "query", JSON.parse(data).data));
source.addEventListener("complete", () => source.close());
source.addEventListener("error", () => process.exit(1));
