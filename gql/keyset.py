"""The keys that tokens are signed with: a JWKS, from a URL or a file, read again when it changes.

Guarantees: an unknown key has the set read again, so that an issuer may rotate its keys; but not
more often than every so many seconds, whatever tokens are sent. A set that cannot be read leaves
the last one in force.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import orjson

from resolvers.errors import Unauthenticated
from streams.errors import Unavailable

__all__ = ["KeySet"]

log = logging.getLogger(__name__)

# Between two reads, whatever tokens say.
_AGAIN_S = 10.0
# A key that the issuer has withdrawn is not believed for longer.
_FRESH_S = 300.0
_PATIENCE_S = 5.0
_MOST_BYTES = 1024 * 1024


class KeySet:
    """Args:
    place: a URL, or the path of a file.
    changed: called when other keys are in force.
    """

    def __init__(
        self,
        place: str,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._changed = changed
        self._clock = clock
        self._keys: dict[str | None, Mapping[str, Any]] = {}
        self._made: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading = asyncio.Lock()

    async def key(self, name: str | None, algorithm: str) -> jwt.PyJWK:
        """Args:
        name: the token's `kid`; None where it has none, for which a set must have one key only.

        Raises:
            Unauthenticated: there is no such key, or it is of another algorithm.
            Unavailable: the set could never be read.
        """
        if self._read_at is None or self._clock() - self._read_at > _FRESH_S:
            await self._refresh(wait=self._read_at is None)
        found = self._find(name)
        if found is None:
            await self._refresh(wait=True)
            found = self._find(name)
        if self._read_at is None:
            raise Unavailable("the keys that tokens are signed with cannot be read; try again")
        if found is None:
            raise Unauthenticated("the token is signed with a key that is not known here")
        return self._make(name, found, algorithm)

    async def _refresh(self, *, wait: bool) -> None:
        if not wait and self._reading.locked():
            return  # somebody is at it; what there is will do
        async with self._reading:
            if self._tried_at is not None and self._clock() - self._tried_at < _AGAIN_S:
                return
            self._tried_at = self._clock()
            try:
                keys = _usable(await self._read())
            except (OSError, ValueError, TimeoutError, aiohttp.ClientError) as exc:
                log.warning("keys not read", extra={"place": self._place, "reason": repr(exc)})
                return
            self._read_at = self._clock()
            if keys != self._keys:
                log.info("keys read", extra={"place": self._place, "keys": len(keys)})
                self._keys, self._made = keys, {}
                self._changed()

    async def _read(self) -> Any:
        if not self._place.startswith(("http://", "https://")):
            return orjson.loads(await asyncio.to_thread(Path(self._place).read_bytes))
        patience = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=patience) as session,
            session.get(self._place, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"it answers with {response.status}")
            body = await response.content.read(_MOST_BYTES)
        return orjson.loads(body)

    def _find(self, name: str | None) -> Mapping[str, Any] | None:
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name) if name is not None else None

    def _make(self, name: str | None, found: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
        if found.get("alg", algorithm) != algorithm:
            raise Unauthenticated("the token is signed with another algorithm than its key is for")
        made = self._made.get((name, algorithm))
        if made is None:
            try:
                made = self._made[name, algorithm] = jwt.PyJWK(dict(found), algorithm)
            except jwt.PyJWTError as exc:
                raise Unauthenticated(
                    "the token is signed with another algorithm than its key is for"
                ) from exc
        return made


def _usable(document: Any) -> dict[str | None, Mapping[str, Any]]:
    keys = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(keys, list):
        raise ValueError('it is no JWKS: {"keys": […]}')
    return {
        each.get("kid"): each
        for each in keys
        if isinstance(each, Mapping) and each.get("use", "sig") == "sig"
    }
