"""Setup of a collection: the images and indexes of the model, created once the collection exists.

Guarantees: a missing collection is not created because the model names it, which may be a typo;
only before a document is inserted here, and after a drop. Each collection is set up once, known by
its UUID, so a collection that replaces another one is set up too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from revstream.model.definition import Model
from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import collection_uuids, create_collection, enable_images
from revstream.streams.recording.bootstrap.index_creation import create_indexes

__all__ = ["CollectionSetup"]

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]


class CollectionSetup:
    """Setup of the collections of a model.

    Args:
        images: The server shall store pre- and post-images.

    Attributes:
        refused: By index, the reason why it is missing; without values of documents.
    """

    def __init__(self, mongo: Mongo, model: Model, *, images: bool) -> None:
        self._mongo = mongo
        self._model = model
        self._images = images
        self.refused: dict[str, str] = {}
        # UUID of each collection that was set up.
        self._done: dict[str, Any] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._inserted_into: set[str] = set()

    async def begin(self, report: Report) -> None:
        """Create what the existing collections of the model lack; a refusal is logged.

        Raises:
            Unavailable: MongoDB cannot be reached.
        """
        names = [entity.collection for entity in self._model.entities]
        found = await collection_uuids(self._mongo, names)
        await self._set_up([name for name in names if name in found], report)
        self._done = found
        self._inserted_into = set(found)

    async def apply(self, name: str, *, create: bool = False) -> bool:
        """Create what a collection lacks; a refusal is logged.

        Args:
            create: Create a missing collection too.

        Returns: whether the collection exists.

        Raises:
            Unavailable: MongoDB cannot be reached.
        """
        async with self._locks[name]:
            found = await collection_uuids(self._mongo, [name])
            if create and not found:
                await self._create(name)
                # Read now: another collection may have the name by the time the indexes are
                # created.
                found = await collection_uuids(self._mongo, [name])
            if name in found and self._done.get(name) != found[name]:
                await self._set_up([name], lambda text, done, total: None)
                self._done |= found
            return bool(found)

    async def before_insert(self, name: str) -> None:
        """Create a missing collection before a document is inserted, so that unique indexes apply
        to it.

        Raises:
            Unavailable: MongoDB cannot be reached.
        """
        if name in self._inserted_into:
            return
        # With documents of other programs in it, index creation may take long: the recorder does
        # it.
        if not await self._mongo.find(name, {}, FindOptions(projection={"_id": 1}, limit=1)):
            await self.apply(name, create=True)
        self._inserted_into.add(name)

    async def _create(self, name: str) -> None:
        try:
            await create_collection(self._mongo, name, images=self._images)
        except (DatabaseError, Unsuitable) as exc:
            log.warning(
                "collection cannot be created", extra={"collection": name, "reason": exc.message}
            )

    async def _set_up(self, names: Sequence[str], report: Report) -> None:
        if not names:
            return
        if self._images:
            await enable_images(self._mongo, names)
        self.refused = {
            index: why for index, why in self.refused.items() if index.split()[1] not in names
        }
        for refused in await create_indexes(self._mongo, self._model, names, report):
            fields = ", ".join(refused.fields)
            self.refused[f"index {refused.collection} {fields}"] = (
                "not created; see the log or `revstream doctor`"
            )
            log.error(
                "index refused",
                extra={
                    "collection": refused.collection,
                    "fields": refused.fields,
                    "reason": refused.reason,
                },
            )
