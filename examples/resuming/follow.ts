// Every change of a subscription, once and in order, however often the connection or the gateway is
// lost: it goes on after the last `resumeToken`, which the subscription has to select.
import type { Client } from "graphql-ws";

// The gateway ends, or this client was too slow: what was not sent comes after the last token.
const passing = ["UNAVAILABLE", "SLOW_CONSUMER"];

// `client` is made with `retryAttempts: 0`: by itself it would begin again where it first began.
export async function* follow(client: Client, query: string, variables: Record<string, any>) {
  let after = variables.after;
  for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, 10_000)) {
    try {
      for await (const { data, errors } of client.iterate({ query, variables: { ...variables, after } })) {
        if (errors) throw errors;
        const change: any = Object.values(data!)[0];
        pauseMs = 100;
        yield change;
        after = change.resumeToken;
      }
    } catch (failure: any) {
      const fatal = Array.isArray(failure)
        ? !failure.every((error) => passing.includes(error.extensions?.code))
        : failure.code >= 4400 && failure.code < 4500;
      if (fatal) throw failure;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
