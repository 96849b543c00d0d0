// The form for those whom the gateway does not know.
import { useState } from "react";

import { type Kind, signIn, useSession } from "./session";

export function SignIn() {
  const { refused } = useSession();
  const [kind, setKind] = useState<Kind>("token");
  if (refused === null) return null;
  return (
    <form
      className="sign-in"
      aria-label="Sign in"
      onSubmit={(event) => {
        event.preventDefault();
        const text = String(new FormData(event.currentTarget).get("secret")).trim();
        if (text) signIn(kind, text);
      }}
    >
      <h2>Sign in</h2>
      <p>
        <bdi>{refused}</bdi>
      </p>
      <div>
        <select aria-label="Sign in with" value={kind} onChange={(event) => setKind(event.target.value as Kind)}>
          <option value="token">Bearer token</option>
          <option value="key">API key</option>
        </select>
        <input name="secret" type="password" aria-label={kind === "token" ? "Token" : "Key"} autoComplete="off" spellCheck={false} />
        <button type="submit">Sign in</button>
      </div>
      <p className="quiet">It is kept in the memory of this page until it is closed or loaded again.</p>
    </form>
  );
}
