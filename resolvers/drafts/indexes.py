"""Indexes of the collections of drafts and comments, of which records of other programs may stand
in the way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from revstream.streams.core.errors import DatabaseError, DuplicateKey
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.mongo.database import Mongo

__all__ = ["RecordIndexes"]

log = logging.getLogger(__name__)


class RecordIndexes:
    """Indexes of the records of drafts or comments.

    Args:
        indexes: keys and options of each; those of one collection are created together.
    """

    def __init__(
        self,
        mongo: Mongo,
        indexes: Sequence[tuple[Sequence[tuple[str, int]], Mapping[str, Any]]],
    ) -> None:
        self._mongo = mongo
        self._indexes = indexes
        self._refusals = LogThrottle(
            log, "indexes of drafts or comments refused", level=logging.ERROR
        )

    async def prepare(self, collections: Iterable[str]) -> None:
        """Create them where there is a collection; else they are made with the first record."""
        for name in await self._mongo.existing(collections):
            await self.create(name)

    async def create(self, collection: str) -> bool:
        """Return whether they are there; a refusal is logged."""
        try:
            await self._mongo.create_indexes(collection, self._indexes)
        except DuplicateKey:
            # Its message has the values.
            self._refusals.note(collection=collection, reason="records with the same key")
        except DatabaseError as exc:
            self._refusals.note(collection=collection, reason=exc.message)
        else:
            return True
        return False
