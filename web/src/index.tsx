// The front page: what this is, where things are, who follows the stream, and a document's history.
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

import { SignIn } from "./signing-in";
import { Streams } from "./streams";
import { Timeline } from "./timeline";

const LINKS = [
  ["/graphql", "GraphiQL"],
  ["/schema.graphql", "Schema"],
] as const;
// With --management-port they are on a port that this page does not know.
const MANAGEMENT = [
  ["/metrics", "Metrics"],
  ["/readyz", "Readiness"],
] as const;

function Links() {
  const [here, setHere] = useState(false);
  useEffect(() => {
    fetch("/readyz").then(
      ({ status }) => setHere(status !== 404),
      () => setHere(false),
    );
  }, []);
  return (
    <nav>
      {[...LINKS, ...(here ? MANAGEMENT : [])].map(([href, name]) => (
        <a key={href} href={href}>
          {name}
        </a>
      ))}
    </nav>
  );
}

createRoot(document.getElementById("root")!).render(
  <>
    <header>
      <img src="/static/favicon.svg" alt="" width="40" height="40" />
      <div>
        <h1>revstream</h1>
        <p>A GraphQL gateway for MongoDB that never forgets: the present, every document’s past, and changes as they happen.</p>
      </div>
      <Links />
    </header>
    <main>
      <SignIn />
      <Streams />
      <Timeline />
    </main>
  </>,
);
