// The audits of graphql-http, each of which is one sentence of the specification "GraphQL over HTTP".
//
//   out  a line for each: {"name", "status": "ok" | "notice" | "warn" | "error", "reason"}
//
// The address of the gateway is the argument.

import process from "node:process";
import { serverAudits } from "graphql-http";

for (const { fn } of serverAudits({ url: `${process.argv[2]}/graphql` })) {
  const { name, status, reason } = await fn();
  process.stdout.write(`${JSON.stringify({ name, status, reason })}\n`);
}
