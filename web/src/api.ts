// The gateway's own API, as the page uses it: one request, or one subscription, over the path that everybody uses.
import { createClient } from "graphql-ws";
import { useEffect, useState } from "react";

type Variables = Record<string, unknown>;

const socket = createClient({
  url: new URL("/graphql", location.href).href.replace(/^http/, "ws"),
  // A page left open overnight follows again when the gateway is back.
  retryAttempts: Infinity,
  shouldRetry: () => true,
});

export async function request<T>(query: string, variables: Variables, signal?: AbortSignal): Promise<T> {
  const response = await fetch("/graphql", {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/graphql-response+json, application/json" },
    body: JSON.stringify({ query, variables }),
    signal,
  });
  const text = await response.text();
  if (!response.headers.get("content-type")?.includes("json")) throw new Error(text.slice(0, 200) || response.statusText);
  const { data, errors } = JSON.parse(text) as { data: T | null; errors?: { message: string }[] };
  if (errors?.length) throw new Error(errors.map((error) => error.message).join("; "));
  if (!data) throw new Error("The gateway answered without data.");
  return data;
}

export interface Answer<T> {
  data?: T;
  error?: string;
}

/**
 * Ask, and ask again whenever `turn` changes; what came last stays until the next answer, unless the question is another one.
 * A query of null asks nothing.
 */
export function useAnswer<T>(query: string | null, variables: Variables, turn: number): Answer<T> {
  const question = JSON.stringify([query, variables]);
  const [answer, setAnswer] = useState<Answer<T> & { question: string }>({ question });
  useEffect(() => {
    if (query === null) return;
    const control = new AbortController();
    request<T>(query, variables, control.signal).then(
      (data) => setAnswer({ question, data }),
      (error: Error) => {
        // What is on the screen stays there; the message says that it is no longer fresh.
        if (!control.signal.aborted)
          setAnswer((last) => ({ question, data: last.question === question ? last.data : undefined, error: error.message }));
      },
    );
    return () => control.abort();
  }, [question, turn]);
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

/** Follow a subscription; `onEvent` hears of each event, however many there are in a moment. Returns whether it is followed. */
export function useSubscription<T>(query: string | null, onEvent: (event: T) => void): boolean {
  const [live, setLive] = useState(false);
  useEffect(() => {
    if (query === null) return;
    let over = false;
    let timer = 0;
    let stop = () => {};
    const heard = ({ data }: { data?: T | null }) => {
      setLive(true);
      if (data) onEvent(data);
    };
    const follow = () => {
      stop = socket.subscribe<T>({ query }, { next: heard, error: again, complete: again });
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
  }, [query]);
  return live;
}
