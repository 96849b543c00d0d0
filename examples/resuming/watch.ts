// node watch.ts ws://127.0.0.1:8000/graphql token.txt [sign-in.txt]
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createClient } from "graphql-ws";
import { follow } from "./follow.ts";

const [url, file, signIn] = process.argv.slice(2);
const after = existsSync(file) ? readFileSync(file, "utf8") : null;
const query = `subscription ($after: ResumeToken) {
  productChanges(after: $after) { kind operation documentId resumeToken product { name stock } }
}`;
// Read for each connection: who renews it renews the file.
const connectionParams = () => signIn && { authorization: `Bearer ${readFileSync(signIn, "utf8").trim()}` };
const client = createClient({ url, retryAttempts: 0, connectionParams });
for await (const change of follow(client, query, { after })) {
  if (change.kind === "CHANGE") console.log(JSON.stringify(change));
  writeFileSync(`${file}.new`, change.resumeToken); // Once it is done: seen again perhaps, not missed.
  renameSync(`${file}.new`, file);
}
