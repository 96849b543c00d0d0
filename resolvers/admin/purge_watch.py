"""Watch for purges by any process, to evict the documents from the caches of this one.

Source: docs/decisions/0016-retention.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["EVERY_S", "PURGES", "PurgeWatch"]

log = logging.getLogger(__name__)

PURGES = "revstream.purges"
EVERY_S = 2.0
# Purges within one look; what is more comes with the next one.
_MOST = 1000


class PurgeWatch:
    """A look for purges every few seconds.

    Args:
        forget: by collection, what lets go of all that is held of its documents.
    """

    def __init__(
        self, mongo: Mongo, forget: Mapping[str, Callable[[], None]], *, every_s: float = EVERY_S
    ) -> None:
        self._mongo = mongo
        self._forget = forget
        self._every_s = every_s
        self._since: datetime | None = None
        # Purges that ended in the very millisecond up to which it has looked.
        self._seen: set[object] = set()

    async def run(self) -> None:
        """Never ends. While MongoDB cannot be reached, what it missed is looked for later."""
        while True:
            try:
                await self.look()
            except GatewayError as exc:
                log.debug("purges not read", extra={"reason": exc.message})
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Evict documents that were purged since the last call; the first call only begins."""
        if self._since is None:
            self._since, _ = await self._mongo.clock()
            return
        found = await self._mongo.find(
            PURGES,
            {"ended": {"$gte": self._since}, "_id": {"$nin": list(self._seen)}},
            FindOptions(projection={"collection": 1, "ended": 1}, sort=[("ended", 1)], limit=_MOST),
        )
        for name in {each["collection"] for each in found}:
            if name in self._forget:
                log.info("purged documents evicted", extra={"collection": name})
                self._forget[name]()
        if found:
            last = found[-1]["ended"]
            same = {each["_id"] for each in found if each["ended"] == last}
            self._seen = same | (self._seen if last == self._since else set())
            self._since = last
