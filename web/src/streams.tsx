// Who follows MongoDB's change stream, and how far behind it is.
import { useAnswer, useClock } from "./api";
import { useSession } from "./session";

interface Stream {
  name: string;
  collection: string;
  state: string;
  owner: string | null;
  fence: number | string | null;
  lagSeconds: number | null;
}

const STREAMS = "query Streams { streams { name collection state owner fence lagSeconds } }";

function lag(seconds: number | null): string {
  if (seconds === null) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 120 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds / 60)} min`;
}

// A recorder's collection stands beside it; the names of other listeners say more than that.
function shown({ name, collection }: Stream): string {
  const recorder = `recorder:${collection}`;
  return name.startsWith(recorder) ? `recorder${name.slice(recorder.length)}` : name;
}

export function Streams() {
  const { refused } = useSession();
  const { data, error } = useAnswer<{ streams: Stream[] }>(STREAMS, {}, useClock(2000));
  return (
    <section aria-labelledby="streams">
      <h2 id="streams">Streams</h2>
      {error && refused === null && <p className="error">{error}</p>}
      {data?.streams.length === 0 && <p className="quiet">No listener has started yet.</p>}
      <ul className="cards">
        {data?.streams.map((stream) => (
          <li key={`${stream.name} ${stream.collection}`} className={(stream.lagSeconds ?? 0) > 10 ? "late" : ""}>
            <div className="stream">
              <strong title={stream.name}>{shown(stream)}</strong>
              <span className="quiet">{stream.collection}</span>
            </div>
            <div className="lag">{lag(stream.lagSeconds)}</div>
            <div className="quiet" title={stream.owner ?? undefined}>
              {stream.state.toLowerCase().replaceAll("_", " ")}
              {stream.fence !== null && ` · fence ${stream.fence}`}
            </div>
          </li>
        ))}
      </ul>
    </section>
  );
}
