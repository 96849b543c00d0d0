// A document's life: choose an entity and a document, and see each version with what it changed, while new ones arrive.
import { useEffect, useRef, useState } from "react";

import { useAnswer, useSubscription } from "./api";
import { Documents, type Heard, labelOf } from "./documents";
import { ENTITIES, type Entity, entitiesOf, entityNamed } from "./entities";
import { History } from "./history";
import { usePlace } from "./place";
import { useSession } from "./session";

// What changes faster than this is drawn together.
const DRAW_MS = 400;
// Documents whose last change is remembered beside the list.
const HEARD_MOST = 200;

interface Change extends Record<string, unknown> {
  kind: string;
  documentId: string | null;
  version: number | null;
  operation: string | null;
  resumeToken: string;
}

/** The last change of each document since the entity is followed. `version` is the archive's, so that it can be read by now. */
function useChanges(entity: Entity | undefined): [ReadonlyMap<string, Heard>, boolean] {
  const [heard, setHeard] = useState<ReadonlyMap<string, Heard>>(new Map());
  const coming = useRef(new Map<string, Heard>());
  const timer = useRef(0);
  const query = entity
    ? `subscription Follow($after: ResumeToken) {
        ${entity.singular}Changes(after: $after) {
          kind documentId version operation resumeToken ${entity.singular} { ${labelOf(entity)} }
        }
      }`
    : null;
  useEffect(() => {
    coming.current = new Map();
    setHeard(new Map());
  }, [query]);
  const live = useSubscription<Change>(query, (change) => {
    const { kind, documentId, version, operation } = change;
    if (kind !== "CHANGE" || documentId === null || version === null || operation === null) return;
    const document = change[entity!.singular] as { label?: string } | null;
    coming.current.delete(documentId);
    coming.current.set(documentId, { version, operation, label: document?.label ?? null });
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      const came = coming.current;
      coming.current = new Map();
      setHeard((last) => new Map([...[...last].filter(([id]) => !came.has(id)), ...came].slice(-HEARD_MOST)));
    }, DRAW_MS);
  });
  return [heard, live];
}

export function Timeline() {
  const { refused } = useSession();
  const { data, error } = useAnswer<Parameters<typeof entitiesOf>[0]>(ENTITIES, {}, 0);
  const entities = data ? entitiesOf(data) : [];
  const [place, go] = usePlace();
  // Without introspection, whoever knows the name of a root field goes by that.
  const unlisted = error !== undefined && refused === null;
  const named = entities.find((each) => each.singular === place.singular);
  const guessed = unlisted && /^[_A-Za-z]\w*$/.test(place.singular) ? entityNamed(place.singular) : undefined;
  const entity = named ?? guessed ?? (place.singular ? undefined : entities[0]);
  const id = named || guessed ? place.id : "";
  const [heard, live] = useChanges(entity);

  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      {unlisted && (
        <>
          <p className="quiet">
            The entities cannot be listed: <bdi>{error}</bdi>
          </p>
          <form
            className="entity"
            onSubmit={(event) => {
              event.preventDefault();
              const singular = String(new FormData(event.currentTarget).get("entity")).trim();
              if (singular) go({ singular, id: "" });
            }}
          >
            <input name="entity" placeholder="An entity’s field, such as product" aria-label="Entity" autoComplete="off" spellCheck={false} />
            <button type="submit">Show</button>
          </form>
        </>
      )}
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
      {data && !entity && (
        <p className="error">
          No entity here is called <bdi>{place.singular}</bdi>: choose one of those above.
        </p>
      )}
      {entity && (
        <div className="timeline">
          <Documents key={entity.singular} entity={entity} heard={heard} id={id} go={go} />
          {id && (
            <History key={`${entity.singular} ${id}`} entity={entity} id={id} newest={heard.get(id)?.version ?? null} live={live} />
          )}
        </div>
      )}
    </section>
  );
}
