// Where the page is: `#/product/42` names a document, so that its history can be linked to.
import { useEffect, useState } from "react";

export interface Place {
  singular: string;
  id: string;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function placeOf(text: string): Place {
  const [, singular = "", ...id] = text.replace(/^#/, "").split("/");
  return { singular: decoded(singular), id: decoded(id.join("/")) };
}

export const hash = ({ singular, id }: Place) => `/${encodeURIComponent(singular)}/${encodeURIComponent(id)}`;

export function usePlace(): [Place, (place: Place) => void] {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const onChange = () => setPlace(placeOf(location.hash));
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return [place, (next) => (location.hash = hash(next))];
}
