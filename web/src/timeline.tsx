// A document's life: choose an entity and a document, and see each version with what it changed, while new ones arrive.
import { useEffect, useRef, useState } from "react";

import { useAnswer, useSubscription } from "./api";
import { ENTITIES, type Entity, entitiesOf } from "./entities";
import { type Version, VERSION_FIELDS, Versions } from "./versions";

const PAGE = 25;

interface Place {
  singular: string;
  id: string;
}

/** `#/product/42` names a document, so that its history can be linked to. */
function placeOf(hash: string): Place {
  const [, singular = "", ...id] = hash.replace(/^#/, "").split("/");
  return { singular: decodeURIComponent(singular), id: decodeURIComponent(id.join("/")) };
}

function usePlace(): [Place, (place: Place) => void] {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const onChange = () => setPlace(placeOf(location.hash));
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return [place, (next) => (location.hash = hash(next))];
}

interface Listed {
  id: string;
  label: string | null;
  operation: string | null;
  /** Its newest known version: another one makes the line light up. */
  version: number;
}

interface Documents {
  recent: { nodes: { documentId: string; version: number; operation: string; document: { label?: string } | null }[] };
  all?: { nodes: { id: string; version: number; label?: string }[] };
}

/** The documents written last, deleted ones too, and what else the collection holds; the last one written comes first. */
function listed(data: Documents): Listed[] {
  const found = new Map<string, Listed>();
  for (const { documentId: id, version, operation, document } of data.recent.nodes) {
    const label = document?.label ?? null;
    const known = found.get(id);
    if (!known) found.set(id, { id, label, operation, version });
    else known.label ??= label;
  }
  for (const { id, version, label = null } of data.all?.nodes ?? [])
    if (!found.has(id)) found.set(id, { id, label, operation: null, version });
  return [...found.values()];
}

const hash = ({ singular, id }: Place) => `/${encodeURIComponent(singular)}/${encodeURIComponent(id)}`;
const labelOf = (entity: Entity) => (entity.label ? `label: ${entity.label}` : "__typename");

function Documents({ entity, turn, id, go }: { entity: Entity; turn: number; id: string; go: (place: Place) => void }) {
  const query = `query Documents {
    recent: ${entity.singular}Versions(first: 40) { nodes { documentId version operation document { ${labelOf(entity)} } } }
    ${entity.plural ? `all: ${entity.plural}(first: 40) { nodes { id version ${labelOf(entity)} } }` : ""}
  }`;
  const { data, error } = useAnswer<Documents>(query, {}, turn);
  const documents = data ? listed(data) : [];
  const newest = documents[0]?.id;
  useEffect(() => {
    if (!id && newest) go({ singular: entity.singular, id: newest });
  }, [id, newest]);
  // In alphabetical order, so that nothing moves away from under the pointer while changes arrive.
  documents.sort((a, b) => (a.label ?? a.id).localeCompare(b.label ?? b.id, undefined, { numeric: true }));

  return (
    <aside>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const wanted = String(new FormData(event.currentTarget).get("id")).trim();
          if (wanted) go({ singular: entity.singular, id: wanted });
        }}
      >
        <input name="id" placeholder="Go to an id …" aria-label="Document id" autoComplete="off" spellCheck={false} />
      </form>
      {error && <p className="error">{error}</p>}
      {data && documents.length === 0 && <p className="quiet">No documents yet.</p>}
      <ul className="documents">
        {documents.map((each) => (
          <li key={`${each.id}@${each.version}`}>
            <a
              href={`#${hash({ singular: entity.singular, id: each.id })}`}
              aria-current={each.id === id}
              className={each.operation === "DELETE" ? "deleted" : ""}
            >
              <span>{each.label ?? each.id}</span>
              {each.label !== null && <small>{each.id}</small>}
            </a>
          </li>
        ))}
      </ul>
    </aside>
  );
}

function History({ entity, id, turn, live }: { entity: Entity; id: string; turn: number; live: boolean }) {
  const [first, setFirst] = useState(PAGE);
  const query = `query History($id: ID!, $first: Int!) {
  ${entity.singular}Versions(where: { documentId: { eq: $id } }, first: $first) {
    totalCount
    nodes { ${VERSION_FIELDS} document { ${labelOf(entity)} } }
  }
}`;
  const { data, error } = useAnswer<Record<string, { totalCount: number; nodes: Version[] }>>(query, { id, first }, turn);
  // Asking for more versions is another question: what was there stays on the screen until the answer comes.
  const last = useRef<{ totalCount: number; nodes: Version[] }>(undefined);
  const page = data?.[`${entity.singular}Versions`] ?? last.current;
  last.current = page;
  const label = page?.nodes.find(({ document }) => document?.label)?.document?.label;
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
        <h3>{label ?? id}</h3>
        {label && <code>{id}</code>}
        <span className={live ? "live on" : "live"}>{live ? "live" : "not connected"}</span>
        <a href={`/graphql#${new URLSearchParams({ query: linked })}`}>Open in GraphiQL</a>
      </div>
      {error && <p className="error">{error}</p>}
      {page?.totalCount === 0 && <p className="quiet">Nothing is known of {entity.type} {id}.</p>}
      {page && page.totalCount > 0 && <Versions versions={page.nodes} total={page.totalCount} />}
      {page && page.nodes.length < page.totalCount && (
        <button type="button" onClick={() => setFirst(first + PAGE)}>
          Older versions
        </button>
      )}
    </article>
  );
}

export function Timeline() {
  const { data, error } = useAnswer<Parameters<typeof entitiesOf>[0]>(ENTITIES, {}, 0);
  const entities = data ? entitiesOf(data) : [];
  const [place, go] = usePlace();
  const named = entities.find((each) => each.singular === place.singular);
  const entity = named ?? entities[0];
  const id = named ? place.id : "";
  const [turn, setTurn] = useState(0);

  // `version` is the archive's, so an event that has one tells of a version that can be read by now. A burst of events is one
  // refresh: the timer that runs takes the later ones along.
  const timer = useRef(0);
  const live = useSubscription(
    entity ? `subscription Follow { ${entity.singular}Changes { kind documentId version } }` : null,
    (event: Record<string, { kind: string }>) => {
      if (Object.values(event)[0]?.kind === "CHECKPOINT" || timer.current) return;
      timer.current = window.setTimeout(() => {
        timer.current = 0;
        setTurn((last) => last + 1);
      }, 400);
    },
  );

  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      {error && <p className="error">{error}</p>}
      <div className="tabs" role="tablist">
        {entities.map((each) => (
          <button
            key={each.singular}
            type="button"
            role="tab"
            aria-selected={each === entity}
            onClick={() => go({ singular: each.singular, id: "" })}
          >
            {each.type}
          </button>
        ))}
      </div>
      {entity && (
        <div className="timeline">
          <Documents key={entity.singular} entity={entity} turn={turn} id={id} go={go} />
          {id && <History key={`${entity.singular} ${id}`} entity={entity} id={id} turn={turn} live={live} />}
        </div>
      )}
    </section>
  );
}
