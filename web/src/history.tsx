// One document's versions, read page by page behind cursors; what is new comes in front, and nothing is read twice.
import { useEffect, useRef, useState } from "react";

import { request } from "./api";
import { labelOf } from "./documents";
import type { Entity } from "./entities";
import { turnNow, useSession } from "./session";
import { type Version, VERSION_FIELDS, Versions } from "./versions";

const PAGE = 25;

interface Page {
  totalCount: number;
  pageInfo: { startCursor: string | null; endCursor: string | null; hasNextPage: boolean };
  nodes: (Version | null)[];
}

interface Known {
  versions: Version[];
  total: number;
  start: string | null;
  end: string | null;
  older: boolean;
  problems: string[];
}

type Direction = "first" | "older" | "newer";

function variablesOf(direction: Direction, known: Known | null) {
  if (direction === "newer" && known?.start) return { last: PAGE, before: known.start };
  return { first: PAGE, after: direction === "older" ? known?.end : undefined };
}

function joined(direction: Direction, known: Known | null, page: Page, problems: string[]): Known {
  const { startCursor, endCursor, hasNextPage } = page.pageInfo;
  // What does not fit the model is null; it is told beside the others.
  const read = page.nodes.filter((each) => each !== null);
  const all = [...new Set([...(known?.problems ?? []), ...problems])];
  const told = { total: page.totalCount, problems: all };
  if (!known || direction === "first" || known.start === null)
    return { ...told, versions: read, start: startCursor, end: endCursor, older: hasNextPage };
  if (direction === "newer")
    return { ...known, ...told, versions: [...read, ...known.versions], start: startCursor ?? known.start };
  return { ...known, ...told, versions: [...known.versions, ...read], end: endCursor ?? known.end, older: hasNextPage };
}

/** The versions that were read so far, and how to read more of them. `newest`: grows with each version that is heard of. */
function useHistory(entity: Entity, id: string, newest: number | null) {
  const { turn } = useSession();
  const [known, setKnown] = useState<Known | null>(null);
  const [error, setError] = useState<string>();
  const last = useRef<Known | null>(null);
  // One after the other: each begins where the one before has ended.
  const queue = useRef(Promise.resolve());
  const over = useRef(false);

  const query = `query History($id: ID!, $first: Int, $after: String, $last: Int, $before: String) {
    page: ${entity.singular}Versions(where: { documentId: { eq: $id } }, first: $first, after: $after, last: $last, before: $before) {
      totalCount
      pageInfo { startCursor endCursor hasNextPage }
      nodes { ${VERSION_FIELDS} document { ${labelOf(entity)} } }
    }
  }`;

  async function read(direction: Direction) {
    for (;;) {
      const turn = turnNow();
      const reply = await request<{ page: Page }>(query, { id, ...variablesOf(direction, last.current) });
      if (over.current || turn !== turnNow()) return;
      const before = last.current;
      last.current = joined(direction, before, reply.data.page, reply.problems);
      setKnown(last.current);
      setError(undefined);
      // A burst may be more than a page.
      if (direction !== "newer" || reply.data.page.nodes.length < PAGE || !before?.start) return;
    }
  }

  function load(direction: Direction) {
    queue.current = queue.current.then(() => read(direction)).catch((failure: Error) => {
      if (!over.current) setError(failure.message);
    });
  }

  useEffect(() => {
    over.current = false;
    last.current = null;
    load("first");
    return () => {
      over.current = true;
    };
  }, [turn]);
  useEffect(() => {
    if (newest !== null) load("newer");
  }, [newest]);
  return { known, error, older: () => load("older") };
}

export function History({ entity, id, newest, live }: { entity: Entity; id: string; newest: number | null; live: boolean }) {
  const { refused } = useSession();
  const { known, error, older } = useHistory(entity, id, newest);
  const label = known?.versions.find(({ document }) => document?.label)?.document?.label;
  const linked = `query History {
  ${entity.singular}Versions(where: { documentId: { eq: ${JSON.stringify(id)} } }) {
    nodes {
      version
      operation
      at
      author
      diff { path kind before after }
    }
  }
}
`;

  return (
    <article>
      <div className="title">
        <h3>
          <bdi>{label ?? id}</bdi>
        </h3>
        {label && (
          <code>
            <bdi>{id}</bdi>
          </code>
        )}
        <span className={live ? "live on" : "live"}>{live ? "live" : "not connected"}</span>
        <a href={`/graphql#${new URLSearchParams({ query: linked })}`}>Open in GraphiQL</a>
      </div>
      {error && refused === null && <p className="error">{error}</p>}
      {known?.problems.map((each) => (
        <p key={each} className="problem">
          <bdi>{each}</bdi>
        </p>
      ))}
      {known?.total === 0 && (
        <p className="quiet">
          Nothing is known of {entity.type} <bdi>{id}</bdi>.
        </p>
      )}
      {known && known.versions.length > 0 && <Versions versions={known.versions} total={known.total} />}
      {known?.older && (
        <button type="button" onClick={older}>
          Older versions
        </button>
      )}
    </article>
  );
}
