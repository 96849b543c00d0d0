"""Who asks: a name, roles, and what else is known of him, for row rules."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ANONYMOUS", "Principal"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Principal:
    """One sign-in; compared by identity, so that what is made for it can be kept under it.

    Args:
        name: the author of what is written; None for whoever has not signed in.
        account: what is kept for this sign-in alone is kept under it; None: under the name.
        claims: what `rows` may name, as JSON.
        expires_at: seconds since the epoch; None where it does not end by itself.
        key: what the sign-in was checked with, and is good for no longer than: the key that a token
            is signed with, or the hash of an API key; None of callers that have not signed in.
    """

    name: str | None = None
    account: str | None = None
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float | None = None
    key: object = field(default=None, repr=False)

    @property
    def owner(self) -> str | None:
        """Whose cursors, drafts and idempotency keys are kept apart from others'."""
        return self.account or self.name

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at

    def claim(self, name: str) -> Any:
        """What a variable of a row rule stands for; None where nothing is known.

        `$sub` is the name, `$roles` the roles; `$org__id` is the claim `id` inside of `org`. An API
        key has no `$sub` but one among its claims: its name may be a person's `sub`, too.
        """
        if name == "sub" and self.account is None:
            return self.name
        if name == "roles":
            return sorted(self.roles)
        if name in self.claims:
            return self.claims[name]
        value: Any = self.claims
        for part in name.split("__"):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


ANONYMOUS = Principal()
