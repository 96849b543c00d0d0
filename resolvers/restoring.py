"""Bring back the content of an old version: over what is there, or where nothing is any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from model.entities import Entity
from resolvers.alterations import Alteration, attribution
from resolvers.outcomes import AlreadyExists, Author, DocumentNotFound, Written
from resolvers.own_writes import OwnWrites
from resolvers.standing import Standing, conflict
from resolvers.values import json_value
from resolvers.writes import ATTEMPTS, Writes, restless
from streams.archive import Archive
from streams.documents import DECODED, RAW
from streams.mongo import Mongo
from streams.versions import CHANGE_FIELD
from streams.writing import Writing

__all__ = ["Restoring"]


class Restoring:
    """Args:
    archives: by collection.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        own_writes: OwnWrites,
        standing: Standing,
        writes: Writes,
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._own_writes = own_writes
        self._writes = writes
        self._standing = standing

    async def restore(
        self, entity: Entity, key: Any, number: int, expected: int | None, author: Author
    ) -> Written:
        """A new version with the content of an old one, whole: also what the model does not name.

        Args:
            number: the old version's.

        Raises:
            DocumentNotFound: no such version, or one that is a deletion.
            VersionConflict, AlreadyExists, InvalidDocument.
        """

        async def restoring() -> Written:
            await self._own_writes.recorded(entity.collection, [key])
            content = await self._content(entity, key, number)
            alteration = Alteration.restoration(content, number)
            for _ in range(ATTEMPTS):
                try:
                    return await self._writes.alter(entity, key, alteration, expected, author)
                except DocumentNotFound:
                    pass
                try:
                    return await self._bring_back(entity, key, content, number, expected, author)
                except AlreadyExists as exc:
                    # It is there again.
                    if exc.path != "id":
                        raise
            raise restless(entity, key)

        return await self._writes.once(entity, author, restoring)

    async def _content(self, entity: Entity, key: Any, number: int) -> RawBSONDocument:
        name = self._archives[entity.collection].name
        query = {"doc": {"$eq": key}, "v": number}
        found = await self._mongo.find(name, query, limit=1, raw=True)
        if not found:
            # Another process may have written it a moment ago: come to what there is now.
            await self._standing.now(entity, key)
            found = await self._mongo.find(name, query, limit=1, raw=True)
        content: RawBSONDocument | None = found[0].get("full") if found else None
        if content is None:
            problem = "is a deletion" if found else "is not there"
            raise DocumentNotFound(f"{entity.name} {json_value(key)}: version {number} {problem}")
        return content

    async def _bring_back(
        self,
        entity: Entity,
        key: Any,
        content: RawBSONDocument,
        number: int,
        expected: int | None,
        author: Author,
    ) -> Written:
        """Insert a document that was deleted; its count goes on where the deletion left it."""
        last = await self._standing.now(entity, key)
        assert last is not None  # the version that is brought back
        if expected is not None and last.number != expected:
            raise conflict(entity, key, expected, last.number)
        change = attribution(author, restoredFrom=number)
        whole = dict(content.items())
        if entity.version is not None:
            whole[entity.version] = last.number + 1
        whole[CHANGE_FIELD] = change

        async def insert(writing: Writing) -> RawBSONDocument:
            await writing.insert(entity.collection, whole)
            return RawBSONDocument(bson.encode(whole, codec_options=DECODED), RAW)

        return await self._writes.commit(entity, key, change, author, insert, last.number + 1)
