// What the user has signed in with. In memory only: a reload forgets it, and no other page can read it.
import { useSyncExternalStore } from "react";

export type Kind = "token" | "key";

interface Session {
  /** Grows with each sign-in: what was refused before is asked again. */
  turn: number;
  /** Whether the gateway has refused somebody who has not signed in, or not so that it counts. */
  refused: string | null;
}

let session: Session = { turn: 0, refused: null };
let secret: { kind: Kind; text: string } | null = null;
const listeners = new Set<() => void>();

function change(next: Session) {
  session = next;
  listeners.forEach((each) => each());
}

export function signIn(kind: Kind, text: string) {
  secret = { kind, text };
  change({ turn: session.turn + 1, refused: null });
}

/** Note that the gateway wants a sign-in, and why. `turn` is that of the request: another one may count by now. */
export function refuse(reason: string, turn: number) {
  if (turn === session.turn && session.refused === null) change({ ...session, refused: reason });
}

export const turnNow = () => session.turn;

/** For a request. */
export function headers(): Record<string, string> {
  if (!secret) return {};
  return secret.kind === "token" ? { authorization: `Bearer ${secret.text}` } : { "x-api-key": secret.text };
}

/** For a socket, whose handshake takes no headers in browsers. */
export function payload(): Record<string, string> {
  if (!secret) return {};
  return secret.kind === "token" ? { authorization: `Bearer ${secret.text}` } : { apiKey: secret.text };
}

export function useSession(): Session {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => session,
  );
}
