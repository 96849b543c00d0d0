// Monaco's language services run in workers of their own. They are imported here, in our own source, because Vite does not
// bundle the `?worker` imports inside a dependency (`graphiql/setup-workers/vite` says so itself).
import type { Environment } from "monaco-editor";
import EditorWorker from "monaco-editor/esm/vs/editor/editor.worker.js?worker";
import JsonWorker from "monaco-editor/esm/vs/language/json/json.worker.js?worker";
import GraphQLWorker from "monaco-graphql/esm/graphql.worker.js?worker";

const environment: Environment = {
  getWorker(_id, label) {
    if (label === "json") return new JsonWorker();
    if (label === "graphql") return new GraphQLWorker();
    return new EditorWorker();
  },
};

Object.assign(globalThis, { MonacoEnvironment: environment });
