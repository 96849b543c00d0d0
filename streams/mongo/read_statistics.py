"""Indexes and sizes of collections, by which reads of clients are classified and limited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.database import Mongo

__all__ = ["ReadStatistics"]

log = logging.getLogger(__name__)


class ReadStatistics:
    """Periodic reader of indexes and sizes.

    Args:
        collections: Collections that clients read.
        every_s: Interval between two reads of all collections.
        new_every_s: Interval at which collections that did not exist are looked up.
    """

    def __init__(
        self,
        mongo: Mongo,
        collections: Sequence[str],
        *,
        every_s: float = 60.0,
        new_every_s: float = 1.0,
    ) -> None:
        self._mongo = mongo
        self._collections = collections
        self._every_s = every_s
        self._new_every_s = new_every_s

    async def run(self) -> None:
        """Refresh for ever: applications create and drop indexes while a gateway runs."""
        while True:
            due = time.monotonic() + self._every_s
            while (remaining_s := due - time.monotonic()) > 0:
                await asyncio.sleep(min(remaining_s, self._new_every_s))
                await self._look_for_new()
            await self.refresh()

    async def _look_for_new(self) -> None:
        # The `_id` index is among the indexes of every collection.
        new = [each for each in self._collections if not self._mongo.limiter.indexes.get(each)]
        if new:
            with suppress(GatewayError):
                await self.refresh(list(await self._mongo.existing(new)))

    async def refresh(self, names: Sequence[str] | None = None) -> None:
        """Read these collections, or all; one that cannot be read keeps its old values."""
        limiter = self._mongo.limiter
        for name in self._collections if names is None else names:
            try:
                limiter.indexes[name] = await _indexed_paths(self._mongo, name)
                limiter.sizes[name] = await self._mongo.estimated_count(name)
            except GatewayError as exc:
                log.debug("collection not read", extra={"collection": name, "reason": exc.message})


async def _indexed_paths(mongo: Mongo, collection: str) -> list[tuple[str, ...]]:
    """Return the paths of each index of a collection that any query on them can use."""
    return [
        tuple(each["key"])
        for each in await mongo.indexes(collection)
        if "partialFilterExpression" not in each
        and all(isinstance(way, int | float) or way == "2dsphere" for way in each["key"].values())
    ]
