// The documents of a collection: those that were written last, and what else it holds.
import { useEffect } from "react";

import { useAnswer } from "./api";
import type { Entity } from "./entities";
import { hash, type Place } from "./place";

/** What the page has heard of a document since it follows: its last change. */
export interface Heard {
  version: number;
  operation: string;
  label: string | null;
}

interface Listed {
  id: string;
  label: string | null;
  operation: string | null;
  /** Its newest known version: another one makes the line light up. */
  version: number | null;
}

interface Written {
  documentId: string;
  version: number;
  operation: string;
  document: { label?: string } | null;
}

interface Answered {
  // What does not fit the model is null.
  recent: { nodes: (Written | null)[] } | null;
  all?: { nodes: ({ id: string; version: number | null; label?: string } | null)[] } | null;
}

const present = <T,>(nodes: (T | null)[] | undefined): T[] => (nodes ?? []).filter((each) => each !== null);

/** The documents written last, deleted ones too, and what else the collection holds; the last one written comes first. */
function listed(data: Answered): Listed[] {
  const found = new Map<string, Listed>();
  for (const { documentId: id, version, operation, document } of present(data.recent?.nodes)) {
    const label = document?.label ?? null;
    const known = found.get(id);
    if (!known) found.set(id, { id, label, operation, version });
    else known.label ??= label;
  }
  for (const { id, version, label = null } of present(data.all?.nodes))
    if (id !== null && !found.has(id)) found.set(id, { id, label, operation: null, version });
  return [...found.values()];
}

/** The same, with what was heard since. */
function updated(documents: Listed[], heard: ReadonlyMap<string, Heard>): Listed[] {
  const known = new Map(documents.map((each) => [each.id, each]));
  for (const [id, { version, operation, label }] of heard)
    known.set(id, { id, version, operation, label: label ?? known.get(id)?.label ?? null });
  return [...known.values()];
}

export const labelOf = (entity: Entity) => (entity.label ? `label: ${entity.label}` : "__typename");

export function Documents({
  entity,
  heard,
  id,
  go,
}: {
  entity: Entity;
  heard: ReadonlyMap<string, Heard>;
  id: string;
  go: (place: Place) => void;
}) {
  const query = `query Documents {
    recent: ${entity.singular}Versions(first: 40) { nodes { documentId version operation document { ${labelOf(entity)} } } }
    ${entity.plural ? `all: ${entity.plural}(first: 40) { nodes { id: ${entity.ownId} version ${labelOf(entity)} } }` : ""}
  }`;
  const { data, problems = [], error } = useAnswer<Answered>(query, {}, 0);
  const known = data ? listed(data) : [];
  const newest = known[0]?.id;
  useEffect(() => {
    if (!id && newest) go({ singular: entity.singular, id: newest });
  }, [id, newest]);
  const documents = updated(known, heard);
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
              <span>
                <bdi>{each.label ?? each.id}</bdi>
              </span>
              {each.label !== null && (
                <small>
                  <bdi>{each.id}</bdi>
                </small>
              )}
            </a>
          </li>
        ))}
      </ul>
      {problems.map((each) => (
        <p key={each} className="problem">
          <bdi>{each}</bdi>
        </p>
      ))}
    </aside>
  );
}
