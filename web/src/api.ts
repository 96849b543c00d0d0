// The gateway's own API, as the page uses it: one request, or one subscription, over the path that everybody uses.
import { createClient } from "graphql-ws";
import { useEffect, useRef, useState } from "react";

import { headers, payload, refuse, turnNow, useSession } from "./session";

type Variables = Record<string, unknown>;

const socket = createClient({
  url: new URL("/graphql", location.href).href.replace(/^http/, "ws"),
  // A page left open overnight follows again when the gateway is back.
  retryAttempts: Infinity,
  shouldRetry: () => true,
  connectionParams: payload,
});

interface Failure {
  message: string;
  extensions?: { code?: string };
}

/** `problems`: what of the data could not be shown, such as a document that does not fit the model; the rest is there. */
export interface Reply<T> {
  data: T;
  problems: string[];
}

export async function request<T>(query: string, variables: Variables, signal?: AbortSignal): Promise<Reply<T>> {
  const turn = turnNow();
  const response = await fetch("/graphql", {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/graphql-response+json, application/json",
      ...headers(),
    },
    body: JSON.stringify({ query, variables }),
    signal,
  });
  const text = await response.text();
  if (!response.headers.get("content-type")?.includes("json")) throw new Error(text.slice(0, 200) || response.statusText);
  const { data, errors = [] } = JSON.parse(text) as { data?: T | null; errors?: Failure[] };
  const unknown = errors.find((error) => error.extensions?.code === "UNAUTHENTICATED");
  if (unknown) refuse(unknown.message, turn);
  const problems = [...new Set(errors.map((error) => error.message))];
  if (!data || unknown) throw new Error(problems.join("; ") || "The gateway answered without data.");
  return { data, problems };
}

export interface Answer<T> {
  data?: T;
  problems?: string[];
  error?: string;
}

/**
 * Ask, and ask again whenever `turn` changes or somebody signs in; what came last stays until the next answer, unless the question
 * is another one. A query of null asks nothing.
 */
export function useAnswer<T>(query: string | null, variables: Variables, turn: number): Answer<T> {
  const question = JSON.stringify([query, variables]);
  const session = useSession();
  const [answer, setAnswer] = useState<Answer<T> & { question: string }>({ question });
  useEffect(() => {
    // Whoever is refused is not refused again every two seconds.
    if (query === null || session.refused !== null) return;
    const control = new AbortController();
    request<T>(query, variables, control.signal).then(
      (reply) => setAnswer({ question, ...reply }),
      (error: Error) => {
        // What is on the screen stays there; the message says that it is no longer fresh.
        if (!control.signal.aborted)
          setAnswer((last) => ({ question, data: last.question === question ? last.data : undefined, error: error.message }));
      },
    );
    return () => control.abort();
  }, [question, turn, session]);
  return answer.question === question ? answer : {};
}

/** A number that grows by one every `ms`: for what has no subscription. */
export function useClock(ms: number): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((last) => last + 1), ms);
    return () => clearInterval(timer);
  }, [ms]);
  return turn;
}

interface Event {
  resumeToken: string;
}

/**
 * Follow a subscription that takes `$after` and selects `resumeToken`: after a lost connection it goes on where it was. `onEvent` hears
 * of each event, however many there are in a moment. Returns whether it is followed.
 */
export function useSubscription<T extends Event>(query: string | null, onEvent: (event: T) => void): boolean {
  const [live, setLive] = useState(false);
  const session = useSession();
  const hear = useRef(onEvent);
  hear.current = onEvent;
  useEffect(() => {
    if (query === null || session.refused !== null) return;
    let over = false;
    let timer = 0;
    let stop = () => {};
    // Sent as it is by then, each time that the client connects.
    const variables: { after?: string } = {};
    const heard = ({ data }: { data?: Record<string, T | null> | null }) => {
      setLive(true);
      const event = data && Object.values(data)[0];
      if (!event) return;
      variables.after = event.resumeToken;
      hear.current(event);
    };
    const follow = () => {
      stop = socket.subscribe<Record<string, T | null>>({ query, variables }, { next: heard, error: again, complete: again });
    };
    // The client itself connects again where the socket breaks; here the gateway has ended the subscription.
    const again = () => {
      if (over) return;
      setLive(false);
      timer = window.setTimeout(follow, 5000);
    };
    const offs = [socket.on("connected", () => setLive(true)), socket.on("closed", () => setLive(false))];
    follow();
    return () => {
      over = true;
      clearTimeout(timer);
      stop();
      offs.forEach((off) => off());
    };
  }, [query, session]);
  return live;
}
