// GraphiQL on the gateway's own API, with subscriptions over graphql-transport-ws to the same path. Needs no other server.
import "./workers";
import "graphiql/style.css";
import "./graphiql.css";

import { createGraphiQLFetcher, type Fetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { type ExecutionResult, Kind, parse } from "graphql";
import { createRoot } from "react-dom/client";
import { withKind, withoutCheckpoints } from "./checkpoints";

interface Example {
  name: string;
  query: string;
}

const ANYWHERE: Example = {
  name: "Now",
  query: "# Where the stream stands, and who follows it. Works on every deployment.\nquery Now {\n  resumeToken\n  streams {\n    name\n    state\n    lagSeconds\n  }\n}\n",
};

/** The queries that the server suggests for its model; GraphiQL works without them too. */
async function examples(): Promise<Example[]> {
  try {
    const response = await fetch("/examples.json");
    const found: Example[] = response.ok ? await response.json() : [];
    return found.length > 0 ? found : [ANYWHERE];
  } catch {
    return [ANYWHERE];
  }
}

const url = new URL("/graphql", location.href);
const subscriptionUrl = new URL(url);
subscriptionUrl.protocol = location.protocol === "https:" ? "wss:" : "ws:";
const send = createGraphiQLFetcher({ url: url.href, subscriptionUrl: subscriptionUrl.href });

// GraphiQL learns of a new text 100 ms late: whoever changes tabs and runs at once would send the query with the name, and the
// kind, of the operation before. A lone operation says both itself.
const fetcher: Fetcher = (params, options) => {
  try {
    const documentAST = parse(params.query);
    const [operation, ...others] = documentAST.definitions.filter((each) => each.kind === Kind.OPERATION_DEFINITION);
    if (operation && others.length === 0) {
      const query = withKind(params.query, operation);
      const sent = send({ ...params, query, operationName: operation.name?.value }, { ...options, documentAST });
      if (query === params.query) return sent;
      return Promise.resolve(sent).then((events) => withoutCheckpoints(events as AsyncIterable<ExecutionResult>));
    }
  } catch {
    // The gateway says better what is wrong with the text.
  }
  return send(params, options);
};

// `#query=…` opens one query, so that other pages can link to it. In the fragment, because ?query= would run it.
const linked = new URLSearchParams(location.hash.slice(1)).get("query") ?? undefined;
const queries = (await examples()).map(({ query }) => query);
const tabs = (linked === undefined ? queries : [linked, ...queries]).map((query) => ({ query }));

createRoot(document.getElementById("root")!).render(
  <GraphiQL fetcher={fetcher} defaultTabs={tabs} initialQuery={linked}>
    <GraphiQL.Logo>
      <a className="home" href="/" title="To revstream's front page">
        revstream
      </a>
    </GraphiQL.Logo>
  </GraphiQL>,
);
