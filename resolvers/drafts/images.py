"""Images of drafts and comments: subscriptions tell from them what a draft was before a decision,
and what was removed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from streams.errors import DatabaseError, Unsuitable
from streams.mongo import Mongo
from streams.server import keep_images

__all__ = ["ProposalImages"]

log = logging.getLogger(__name__)


class ProposalImages:
    """Args:
    enabled: whether the server is to keep images.
    """

    def __init__(self, mongo: Mongo, *, enabled: bool = True) -> None:
        self._mongo = mongo
        self._enabled = enabled
        self._asked: set[str] = set()

    async def prepare(self, collections: Iterable[str]) -> None:
        """Keep images of those that exist, where the server permits it."""
        for name in collections if self._enabled else ():
            await self._keep(name, create=False)

    async def keep(self, collection: str) -> None:
        """Keep images of a collection that is about to be written to; makes it."""
        if self._enabled and collection not in self._asked:
            await self._keep(collection, create=True)
            self._asked.add(collection)

    async def _keep(self, collection: str, *, create: bool) -> None:
        try:
            await keep_images(self._mongo, collection, create=create)
        except (DatabaseError, Unsuitable) as exc:
            # What cannot be told without them is little, and documented.
            facts = {"collection": collection, "reason": exc.message}
            log.info("no images of drafts and comments", extra=facts)
