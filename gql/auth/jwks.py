"""JSON Web Key Set (JWKS): the keys of tokens, read from a URL or a file and read again.

Guarantees: an unknown key id causes a new read, so that an issuer may rotate its keys; reads are at
least 10 s apart, whatever tokens are sent. A key that the issuer withdraws is out of force within
`fresh_s`, as long as the set can be read. If it cannot be read, the last one stays in force.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import orjson

from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.errors import Unavailable
from revstream.streams.listeners.webhooks.message import redact_url

__all__ = ["JsonWebKeySet"]

log = logging.getLogger(__name__)

# The least time between two reads.
_AGAIN_S = 10.0
_PATIENCE_S = 5.0
_MOST_BYTES = 1024 * 1024
_OTHER_ALGORITHM = "algorithm of the token: another one than its key is for; sign it with that one"


class JsonWebKeySet:
    """JWKS of one issuer.

    Args:
        place: URL, or path of a file.
        fresh_s: Age after which the set is read again.

    Attributes:
        changed: Called when other keys come into force.
    """

    def __init__(
        self,
        place: str,
        *,
        fresh_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._place = place
        self._shown = redact_url(place) if _is_url(place) else place
        self._fresh_s = fresh_s
        self._clock = clock
        self._trouble: str | None = None
        self._keys: dict[str | None, Mapping[str, Any]] = {}
        self._made: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading = asyncio.Lock()

    async def key(self, name: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key of a token.

        Args:
            name: The token's `kid`; None if it has none, which needs a set of one key.

        Raises:
            Unauthenticated: The set has no such key, or the key is for another algorithm.
            Unavailable: The set was never read.
        """
        await self.freshen()
        found = self._find(name)
        if found is None:
            await self._refresh(wait=True)
            found = self._find(name)
        if self._read_at is None:
            raise Unavailable(
                "keys of tokens: the JWKS is unavailable; try again",
                retryAfterSeconds=math.ceil(self._again_s),
            )
        if found is None:
            raise Unauthenticated("key of the token: unknown, expected one of the JWKS")
        return self._make(found, algorithm)

    async def freshen(self) -> None:
        """Read the set again if it is due. Waits only for the first read."""
        if self._due_s() <= 0:
            await self._refresh(wait=self._read_at is None)

    async def watch(self) -> None:
        """Keep the set fresh while no request comes: open WebSockets depend on its keys."""
        while True:
            await self._refresh(wait=True)
            await asyncio.sleep(max(self._due_s(), self._again_s))

    def holds(self, key: object) -> bool:
        """Return whether a key that was returned before is still in force."""
        return key in self._made.values()

    @property
    def fresh(self) -> bool:
        """True while the set is not due to be read again."""
        return self._due_s() > 0

    @property
    def _again_s(self) -> float:
        return min(_AGAIN_S, self._fresh_s)

    def _due_s(self) -> float:
        return 0.0 if self._read_at is None else self._read_at + self._fresh_s - self._clock()

    async def _refresh(self, *, wait: bool) -> None:
        if not wait and self._reading.locked():
            return  # another task reads it; the present set is good enough
        async with self._reading:
            if self._tried_at is not None and self._clock() - self._tried_at < self._again_s:
                return
            self._tried_at = self._clock()
            try:
                keys = _usable(await self._read())
            except (OSError, ValueError, TimeoutError, aiohttp.ClientError) as exc:
                reason = _reason(exc)
                if self._trouble != reason:
                    self._trouble = reason
                    log.warning("keys not read", extra={"place": self._shown, "reason": reason})
                return
            self._read_at = self._clock()
            if keys != self._keys or self._trouble is not None:
                log.info("keys read", extra={"place": self._shown, "keys": len(keys)})
            self._trouble = None
            if keys != self._keys:
                self._made = {
                    (name, algorithm): made
                    for (name, algorithm), made in self._made.items()
                    if keys.get(name) == self._keys.get(name)
                }
                self._keys = keys
                self.changed()

    async def _read(self) -> Any:
        if not _is_url(self._place):
            return orjson.loads(await asyncio.to_thread(Path(self._place).read_bytes))
        patience = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=patience) as session,
            session.get(self._place, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise ValueError(f"HTTP status: {response.status}, expected 200")
            body = b""
            # `content.read(n)` may return fewer bytes than the body has.
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > _MOST_BYTES:
                    raise ValueError(f"size: more than {_MOST_BYTES:,} bytes, which is the maximum")
        return orjson.loads(body)

    def _find(self, name: str | None) -> Mapping[str, Any] | None:
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name) if name is not None else None

    def _make(self, found: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
        name = found.get("kid")
        if found.get("alg", algorithm) != algorithm:
            raise Unauthenticated(_OTHER_ALGORITHM)
        made = self._made.get((name, algorithm))
        if made is None:
            try:
                made = self._made[name, algorithm] = jwt.PyJWK(dict(found), algorithm)
            except jwt.PyJWTError as exc:
                raise Unauthenticated(_OTHER_ALGORITHM) from exc
        return made


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _reason(exc: Exception) -> str:
    """Return the reason without the URL, which may contain a secret."""
    names_it = isinstance(exc, aiohttp.InvalidURL | aiohttp.ClientResponseError)
    return type(exc).__name__ if names_it else repr(exc)


def _usable(document: Any) -> dict[str | None, Mapping[str, Any]]:
    keys = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(keys, list):
        raise ValueError('not a JWKS, expected {"keys": […]}')
    # Entries that are not keys are ignored (RFC 7517, 5).
    return {
        each.get("kid"): each
        for each in keys
        if isinstance(each, Mapping)
        and each.get("use", "sig") == "sig"
        and isinstance(each.get("kid"), str | None)
    }
