"""Images of drafts and comments, from which subscriptions read the state before a decision, and
removed records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import collection_uuids, enable_collection_images

__all__ = ["ProposalImages"]

log = logging.getLogger(__name__)


class ProposalImages:
    """Setting of MongoDB's images on the collections of drafts and comments.

    Args:
        enabled: whether the server is to store images.
    """

    def __init__(self, mongo: Mongo, *, enabled: bool = True) -> None:
        self._mongo = mongo
        self._enabled = enabled
        self._refusals = LogThrottle(log, "no images of drafts and comments", level=logging.INFO)
        # By collection: the UUID of the one that has them. One that was dropped has another one
        # when it is there again.
        self._kept: dict[str, Any] = {}

    async def prepare(self, collections: Iterable[str]) -> None:
        """Keep images of those that exist, where the server permits it."""
        if self._enabled:
            for name, uuid in (await collection_uuids(self._mongo, list(collections))).items():
                await self._keep(name, uuid)

    async def keep(self, collection: str) -> None:
        """Keep images of a collection that is about to be written to; makes it."""
        if not self._enabled:
            return
        uuid = (await collection_uuids(self._mongo, [collection])).get(collection)
        if uuid is None or self._kept.get(collection) != uuid:
            await self._keep(collection, uuid)

    async def _keep(self, collection: str, uuid: Any) -> None:
        """Switch images on.

        Args:
            uuid: of the collection before; None if it did not exist.
        """
        try:
            await enable_collection_images(self._mongo, collection)
        except (DatabaseError, Unsuitable) as exc:
            # Little is missing without them, and it is documented.
            self._refusals.note(collection=collection, reason=exc.message)
        else:
            self._kept[collection] = uuid
