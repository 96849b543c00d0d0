"""Indexes and sizes of collections, by which reads of clients are classed and weighed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from streams.errors import GatewayError
from streams.indexes import indexed_paths
from streams.mongo import Mongo

__all__ = ["ReadStatistics"]

log = logging.getLogger(__name__)


class ReadStatistics:
    """Args:
    collections: that clients read.
    every_s: how often they are looked at.
    """

    def __init__(self, mongo: Mongo, collections: Sequence[str], *, every_s: float = 60.0) -> None:
        self._mongo = mongo
        self._collections = collections
        self._every_s = every_s

    async def run(self) -> None:
        """Keep them fresh: programs make and drop indexes while a gateway runs."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.refresh()

    async def refresh(self) -> None:
        """Read all of them; what cannot be read is left as it was."""
        limiter = self._mongo.limiter
        for name in self._collections:
            try:
                limiter.indexes[name] = await indexed_paths(self._mongo, name)
                limiter.sizes[name] = await self._mongo.estimated_count(name)
            except GatewayError as exc:
                log.debug("collection not read", extra={"collection": name, "reason": exc.message})
