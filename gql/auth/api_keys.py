"""Keys of services: a file of hashed keys, and who each of them is.

    [[keys]]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    principal = "importer"
    roles = ["writer"]
    claims = { tenant = "acme" }

A row rule's `$sub` is that of `claims`, never the principal, which may be the text of a token's.
Guarantees: comparing takes the same time whichever key is given; the file is read again when it has
changed, so that a key is withdrawn by taking it out. A key whose entry is changed is another one:
what was opened with the old entry ends. A file that does not read leaves the last one in force.
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
    """Attributes:
        changed: called when other keys are in force.

    Raises:
        ValueError: the file cannot be read, or is none; says where.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._path = path
        self._clock = clock
        self._looked_at = clock()
        self._stamp = _stamp(path)
        self._principals = _read(path)

    def principal(self, key: str) -> Principal:
        """Raises:
        Unauthenticated: there is no such key.
        """
        self._look()
        given = hashlib.sha256(key.encode()).hexdigest()
        found: Principal | None = None
        for digest, principal in self._principals.items():
            # All of them, each in the same time: how long it takes must not tell how near it was.
            if hmac.compare_digest(digest, given):
                found = principal
        if found is None:
            raise Unauthenticated("there is no such API key")
        return found

    def without(self, claim: str) -> list[str]:
        """Return the names of the principals for whom a claim is unknown."""
        return sorted(
            {each.name or "" for each in self._principals.values() if each.claim(claim) is None}
        )

    def holds(self, principal: Principal) -> bool:
        """Return whether the entry of a principal is in force as it was."""
        return self._principals.get(str(principal.key)) is principal

    async def watch(self) -> None:
        """Read the file when it changes, also while no key is sent: sockets are open under them."""
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
        # The same object as before where nothing has changed: what is open under it goes on.
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
        raise ValueError(f"{path}: a list of [[keys]] expected, and nothing else")
    found: dict[str, Principal] = {}
    for number, each in enumerate(entries, 1):
        problem = _problem(each)
        if problem is not None:
            raise ValueError(f"{path}: key {number}: {problem}")
        digest = each["sha256"].lower()
        if digest in found:
            raise ValueError(f"{path}: key {number} is there twice")
        found[digest] = Principal(
            name=each["principal"],
            # Not that of a token whose `sub` is the same text; nobody else is called so.
            account=f"{RESERVED_NAMES}key:{each['principal']}",
            roles=frozenset(each.get("roles", ())),
            claims=each.get("claims", {}),
            key=digest,
        )
    return found


def _problem(entry: Mapping[str, Any]) -> str | None:
    unknown = set(entry) - _FIELDS
    if unknown:
        return f"{', '.join(sorted(unknown))} is not known; there are {', '.join(sorted(_FIELDS))}"
    digest, roles = entry.get("sha256"), entry.get("roles", [])
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        return "sha256 is the key's SHA-256 in 64 hexadecimal digits"
    if not isinstance(entry.get("principal"), str) or not entry["principal"]:
        return "principal is the name of whom the key is for"
    if is_reserved_name(entry["principal"]):
        named = entry["principal"]
        return f"principal: {named!r}, names that begin with {RESERVED_NAMES} are reserved"
    if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
        return "roles is a list of text"
    if not isinstance(entry.get("claims", {}), dict):
        return "claims is a table"
    return None
