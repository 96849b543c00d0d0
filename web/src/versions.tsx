// The versions of one document: where they lie in time, and what each one changed.
import { Fragment, useState } from "react";

interface FieldChange {
  path: string;
  kind: "ADDED" | "REMOVED" | "CHANGED";
  before: unknown;
  after: unknown;
}

export interface Version {
  id: string;
  version: number;
  operation: string;
  at: string;
  author: string | null;
  comment: string | null;
  restoredFrom: number | null;
  gap: boolean;
  diff: FieldChange[];
  document: { label?: string } | null;
}

export const VERSION_FIELDS =
  "id version operation at author comment restoredFrom gap diff { path kind before after }";

// A first version has every field in its diff; more than this many are folded away.
const FOLD = 8;

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function text(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "–");
}

const COPIER = "revstream:copier";

/** Why a version has no differences: the Copier writes one to note what a copy is of; programs write what the model does not name. */
function unchanged(author: string | null): string {
  return author === COPIER
    ? "The copied fields were right already. revstream noted which version of their source they are of."
    : "No field of the model differs from the version before.";
}

function Diff({ changes, author }: { changes: FieldChange[]; author: string | null }) {
  const [all, setAll] = useState(false);
  if (changes.length === 0) return <p className="quiet">{unchanged(author)}</p>;
  const shown = all ? changes : changes.slice(0, FOLD);
  return (
    <>
      <dl className="diff">
        {shown.map(({ path, kind, before, after }) => (
          <Fragment key={path}>
            <dt>
              <bdi>{path}</bdi>
            </dt>
            <dd>
              {kind !== "ADDED" && (
                <del>
                  <bdi>{text(before)}</bdi>
                </del>
              )}
              {kind !== "REMOVED" && (
                <ins>
                  <bdi>{text(after)}</bdi>
                </ins>
              )}
            </dd>
          </Fragment>
        ))}
      </dl>
      {shown.length < changes.length && (
        <button type="button" className="more" onClick={() => setAll(true)}>
          {changes.length - shown.length} more
        </button>
      )}
    </>
  );
}

/** One mark per version, placed by its time; the newest at the right. */
function Axis({ versions }: { versions: Version[] }) {
  const times = versions.map(({ at }) => Date.parse(at));
  const [start, end] = [Math.min(...times), Math.max(...times)];
  return (
    <div className="axis" aria-hidden="true">
      {versions.map(({ id, version, operation, at }, index) => (
        <a
          key={id}
          className={operation.toLowerCase()}
          style={{ left: `${end === start ? 50 : ((times[index]! - start) / (end - start)) * 100}%` }}
          title={`${version} · ${operation.toLowerCase()} · ${clock.format(new Date(at))}`}
          onClick={() => document.getElementById(`v${version}`)?.scrollIntoView({ behavior: "smooth", block: "center" })}
        />
      ))}
    </div>
  );
}

export function Versions({ versions, total }: { versions: Version[]; total: number }) {
  return (
    <>
      <Axis versions={versions} />
      <p className="quiet">
        {total} {total === 1 ? "version" : "versions"}, newest first
      </p>
      <ol className="versions">
        {versions.map((each) => (
          <li key={each.id} id={`v${each.version}`} className={each.operation.toLowerCase()}>
            <div className="version">
              <strong>{each.version}</strong>
              <span className="operation">{each.operation.toLowerCase()}</span>
              <time dateTime={each.at} title={each.at}>
                {clock.format(new Date(each.at))}
              </time>
              {each.author && (
                <span>
                  by <bdi>{each.author}</bdi>
                </span>
              )}
              {each.restoredFrom !== null && <span>brings back {each.restoredFrom}</span>}
              {each.gap && <span className="gap">something before this may have been lost</span>}
            </div>
            {each.comment && (
              <blockquote>
                <bdi>{each.comment}</bdi>
              </blockquote>
            )}
            {each.operation !== "DELETE" && <Diff changes={each.diff} author={each.author} />}
          </li>
        ))}
      </ol>
    </>
  );
}
