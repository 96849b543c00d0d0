"""Indexes and sizes of collections, by which reads of clients are classed and weighed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from revstream.streams.core.errors import DatabaseError, GatewayError
from revstream.streams.mongo.database import Mongo

__all__ = ["ReadStatistics"]

log = logging.getLogger(__name__)

_NO_COLLECTION = 26


class ReadStatistics:
    """Args:
    collections: that clients read.
    every_s: how often they are looked at.
    new_every_s: how often it is looked for those that are not there yet.
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
        """Keep them fresh: programs make and drop indexes while a gateway runs."""
        while True:
            due = time.monotonic() + self._every_s
            while (remaining_s := due - time.monotonic()) > 0:
                await asyncio.sleep(min(remaining_s, self._new_every_s))
                await self._look_for_new()
            await self.refresh()

    async def _look_for_new(self) -> None:
        # That of `_id` is among the indexes of every collection.
        new = [each for each in self._collections if not self._mongo.limiter.indexes.get(each)]
        if new:
            with suppress(GatewayError):
                await self.refresh(list(await self._mongo.existing(new)))

    async def refresh(self, names: Sequence[str] | None = None) -> None:
        """Read these, or all of them; what cannot be read is left as it was."""
        limiter = self._mongo.limiter
        for name in self._collections if names is None else names:
            try:
                limiter.indexes[name] = await _indexed_paths(self._mongo, name)
                limiter.sizes[name] = await self._mongo.estimated_count(name)
            except GatewayError as exc:
                log.debug("collection not read", extra={"collection": name, "reason": exc.message})


async def _indexed_paths(mongo: Mongo, collection: str) -> list[tuple[str, ...]]:
    """Return the paths of each index of a collection that serves any query on them."""
    try:
        reply = await mongo.command({"listIndexes": collection, "cursor": {"batchSize": 1000}})
    except DatabaseError as exc:
        if exc.number != _NO_COLLECTION:
            raise
        return []
    return [
        tuple(each["key"])
        for each in reply["cursor"]["firstBatch"]
        if "partialFilterExpression" not in each
        and all(isinstance(way, int | float) for way in each["key"].values())
    ]
