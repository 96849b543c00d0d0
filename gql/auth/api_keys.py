"""API keys: a file of hashed keys and their principals.

    [[keys]]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    principal = "importer"
    roles = ["writer"]
    claims = { tenant = "acme" }

The `$sub` of a row rule is that of `claims`, never the principal's name, which may equal the `sub`
of a token.
Guarantees: comparison takes the same time for every key. The file is read again after a change, so
that removing an entry withdraws its key. A changed entry counts as another key: connections that
were opened with the old entry end. If the file cannot be read, the last one stays in force.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.versioning.attribution import RESERVED_NAMES, is_reserved_name

__all__ = ["ApiKeys"]

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_FIELDS = {"sha256", "principal", "roles", "claims"}


class ApiKeys:
    """Keys of one file.

    Attributes:
        changed: Called when other keys come into force.

    Raises:
        ValueError: The file cannot be read or has a mistake; the message says where.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._path = path
        self._clock = clock
        self._looked_at = clock()
        self._stamp = _stamp(path)
        self._principals = _read(path)

    def principal(self, key: str) -> Principal:
        """Return the principal of a key.

        Raises:
            Unauthenticated: There is no such key.
        """
        self._look()
        given = hashlib.sha256(key.encode()).hexdigest()
        found: Principal | None = None
        for digest, principal in self._principals.items():
            # All of them, in constant time: the duration must not reveal a partial match.
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None:
            raise Unauthenticated("API key: unknown, expected a key of this service; send another")
        return found

    def without(self, claim: str) -> list[str]:
        """Return the names of the principals that lack a claim."""
        return sorted(
            {each.name or "" for each in self._principals.values() if each.claim(claim) is None}
        )

    def holds(self, principal: Principal) -> bool:
        """Return whether the entry of a principal is unchanged."""
        return self._principals.get(str(principal.key)) is principal

    async def watch(self) -> None:
        """Read the file when it changes, even without requests: open WebSockets depend on it."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._look()

    def _look(self) -> None:
        if self._clock() - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = self._clock()
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            read = _read(self._path)
        except ValueError as exc:
            log.error("API keys not read", extra={"reason": str(exc)})
            return
        log.info("API keys read", extra={"keys": len(read)})
        # An unchanged entry keeps its object, so that its connections stay open.
        known = self._principals
        self._principals = {key: _as_known(each, known.get(key)) for key, each in read.items()}
        self.changed()


def _as_known(read: Principal, known: Principal | None) -> Principal:
    same = known is not None and (known.name, known.roles, known.claims) == (
        read.name,
        read.roles,
        read.claims,
    )
    return known if known is not None and same else read


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(path: Path) -> dict[str, Principal]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ValueError(f"{path}: {exc}") from exc
    entries = document.get("keys")
    if set(document) - {"keys"} or not isinstance(entries, list):
        raise ValueError(
            f"{path}: {', '.join(sorted(document)) or 'empty'}, expected a list of [[keys]] and "
            "nothing else"
        )
    found: dict[str, Principal] = {}
    for number, each in enumerate(entries, 1):
        problem = _problem(each)
        if problem is not None:
            raise ValueError(f"{path}: key {number}: {problem}")
        digest = each["sha256"].lower()
        if digest in found:
            raise ValueError(f"{path}: key {number}: the same as an earlier key; remove one")
        found[digest] = Principal(
            name=each["principal"],
            # Differs from the account of every token, whose `sub` may be the same text.
            account=f"{RESERVED_NAMES}key:{each['principal']}",
            roles=frozenset(each.get("roles", ())),
            claims=each.get("claims", {}),
            key=digest,
        )
    return found


def _problem(entry: Mapping[str, Any]) -> str | None:
    unknown = set(entry) - _FIELDS
    if unknown:
        return f"{', '.join(sorted(unknown))}: unknown, expected {', '.join(sorted(_FIELDS))}"
    digest, roles = entry.get("sha256"), entry.get("roles", [])
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        return "sha256: no hash, expected the key's SHA-256 in 64 hexadecimal digits"
    if not isinstance(entry.get("principal"), str) or not entry["principal"]:
        return "principal: missing or empty, expected a name"
    if is_reserved_name(entry["principal"]):
        named = entry["principal"]
        return f"principal: {named!r}, names that begin with {RESERVED_NAMES} are reserved"
    if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
        return f"roles: {roles!r:.60}, expected a list of strings"
    if not isinstance(entry.get("claims", {}), dict):
        return f"claims: {type(entry['claims']).__name__}, expected a table"
    return None
