// Every change of a subscription, once and in order, however often the connection or the gateway is
// lost: it goes on after the last `resumeToken`, which the subscription has to select.
import type { Client } from "graphql-ws";

// Errors of the whole subscription that a retry mends.
const passing = ["ARCHIVE_BEHIND", "SLOW_CONSUMER", "TIMEOUT", "UNAVAILABLE"];

// `client` is made with `retryAttempts: 0`: by itself it would begin again where it first began.
// A change of a document that does not fit the model has `errors`, and null for what does not fit.
export async function* follow(client: Client, query: string, variables: Record<string, any>) {
  let after = variables.after;
  for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, 10_000)) {
    try {
      for await (const { data, errors } of client.iterate({ query, variables: { ...variables, after } })) {
        const change: any = data && Object.values(data)[0];
        if (!change) throw errors;
        pauseMs = 100;
        yield errors ? { ...change, errors } : change;
        after = change.resumeToken;
      }
    } catch (failure: any) {
      // 4403: the sign-in was refused. `connectionParams` is asked for the next one each time.
      const fatal = Array.isArray(failure)
        ? !failure.every((error) => passing.includes(error.extensions?.code))
        : failure.code >= 4400 && failure.code < 4500 && failure.code !== 4403;
      if (fatal) throw failure;
      console.warn(`again in ${pauseMs} ms: ${JSON.stringify(failure.reason ?? failure)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
