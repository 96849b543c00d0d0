"""Principal: the authenticated caller, with a name, roles and claims."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ANONYMOUS", "Principal"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Principal:
    """Authenticated caller; compared by identity, so that it can be a cache key.

    Args:
        name: author of writes; None for an anonymous caller.
        account: key of data that belongs to this account alone; None: the name.
        claims: claims that `rows` may name, as JSON.
        expires_at: seconds since the epoch; None if it does not expire.
        key: the key that verified the credentials and limits their validity: a token's key, or the
            hash of an API key; None for anonymous callers.
    """

    name: str | None = None
    account: str | None = None
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float | None = None
    key: object = field(default=None, repr=False)

    @property
    def owner(self) -> str | None:
        """Owner of cursors, drafts and idempotency keys, which are separate for each owner."""
        return self.account or self.name

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at

    def claim(self, name: str) -> Any:
        """Return the value of a variable of a row rule; None if it is unknown.

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
