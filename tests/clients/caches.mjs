// Normalized caches of other makers, set up by the files that a gateway serves: what they read of
// fragments on interfaces, and what they complain of.
//
//   node caches.mjs ADDRESS
//
//   out  {"cache": "apollo" | "graphcache", "data", "complaints"}

import process from "node:process";
import { ApolloClient, HttpLink, InMemoryCache, gql } from "@apollo/client";
import { Client, fetchExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";

const address = process.argv[2];
const url = `${address}/graphql`;
const file = async (name) => (await fetch(`${address}/client/${name}.json`)).json();
const complaints = [];
console.warn = console.error = (...said) => complaints.push(said.map(String).join(" "));

// On interfaces throughout: a client that does not know which types implement them reads nothing.
const query = `query Goods {
  products(first: 5) {
    nodes { __typename id ... on ProductState { name dimensions { width } } history(first: 2) {
      nodes { __typename id diff { path } ... on Version { version operation } document { id ... on ProductState { name } } }
    } }
    pageInfo { hasNextPage }
  }
}`;
const rename = `mutation Rename {
  updateProduct(id: "lamp", patch: {name: "Lamp"}, expectedVersion: 9) {
    __typename ... on WriteError { message } ... on VersionConflict { currentProduct { id name } }
  }
}`;

function say(cache, data) {
  process.stdout.write(`${JSON.stringify({ cache, data, complaints: complaints.splice(0) })}\n`);
}

const apollo = new ApolloClient({
  cache: new InMemoryCache({ possibleTypes: await file("possible-types") }),
  link: new HttpLink({ uri: url }),
});
await apollo.query({ query: gql(query) });
const { data: renamed } = await apollo.mutate({ mutation: gql(rename) });
say("apollo", { ...apollo.readQuery({ query: gql(query) }), ...renamed });

const { schema, keyless } = await file("graphcache");
const urql = new Client({
  url,
  preferGetMethod: false,
  exchanges: [
    cacheExchange({ schema, keys: Object.fromEntries(keyless.map((name) => [name, () => null])) }),
    fetchExchange,
  ],
});
await urql.query(query, {}).toPromise();
const result = await urql.mutation(rename, {}).toPromise();
const cached = await urql.query(query, {}, { requestPolicy: "cache-only" }).toPromise();
say("graphcache", { ...cached.data, ...result.data });
process.exit(0);
