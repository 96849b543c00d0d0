"""Single flight: concurrent computations with one key are done once.

Guarantees: every caller gets the result for its key, or an error of its own; a cancelled caller
cancels no other. Results are cached for a few keys.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar, cast

from revstream.streams.core.errors import GatewayError

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

# The computing task was cancelled.
_AGAIN: Any = object()


class SingleFlight(Generic[K, T]):
    """`kept`: keys at most; those that are being made are kept in any case."""

    def __init__(self, *, kept: int) -> None:
        self._kept = kept
        self._made: OrderedDict[K, asyncio.Future[T]] = OrderedDict()

    async def run(self, key: K, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `make`, which the first caller runs."""
        while (found := self._made.get(key)) is not None:
            try:
                # Shielded: a cancelled caller must not cancel the computation of the others.
                made = found.result() if found.done() else await asyncio.shield(found)
            except GatewayError as exc:
                raise exc.copy() from None
            if made is not _AGAIN:
                return made
        return await self._make(key, make)

    async def _make(self, key: K, make: Callable[[], Awaitable[T]]) -> T:
        flight = self._made[key] = asyncio.get_running_loop().create_future()
        try:
            made = await make()
        except BaseException as exc:
            del self._made[key]
            if isinstance(exc, GatewayError):
                flight.set_exception(exc.copy())
                flight.exception()  # mark it as retrieved, also without a waiting caller
            else:
                flight.set_result(cast("T", _AGAIN))
            raise
        flight.set_result(made)
        while len(self._made) > self._kept and next(iter(self._made.values())).done():
            self._made.popitem(last=False)
        return made
