"""Restores of old versions, over the current document or after its deletion."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.mutations.expected_version import (
    ExpectedVersions,
    conflict_error,
    decode_content,
    not_found_error,
)
from revstream.resolvers.mutations.result import AlreadyExists, Author, DocumentNotFound, Written
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate, attribution
from revstream.resolvers.mutations.write_executor import ATTEMPTS, too_many_conflicts
from revstream.resolvers.mutations.writes import DocumentWrites
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import CHANGE_FIELD

__all__ = ["DocumentRestore"]


class DocumentRestore:
    """Restores of documents of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        own_writes: OwnWrites,
        expected_versions: ExpectedVersions,
        writes: DocumentWrites,
    ) -> None:
        self._archives = archives
        self._horizons = Horizons(mongo)
        self._own_writes = own_writes
        self._writes = writes
        self._expected_versions = expected_versions
        self._scope = OPEN

    def within(
        self, scope: Scope, expected_versions: ExpectedVersions, writes: DocumentWrites
    ) -> DocumentRestore:
        """Return a copy for one caller: the old version and the current document must be in its
        rows.

        The caller must be allowed to write every field.

        Args:
            expected_versions, writes: limited to the same caller.
        """
        limited = copy.copy(self)
        limited._scope, limited._expected_versions, limited._writes = (
            scope,
            expected_versions,
            writes,
        )
        return limited

    async def restore(
        self, entity: Entity, key: Any, number: int, expected: int | None, author: Author
    ) -> Written:
        """Write a new version with the whole content of an old one, unmodelled fields included.

        Args:
            number: the number of the old version.

        Raises:
            DocumentNotFound: no such version, or it is a tombstone.
            HistoryLost: the version was truncated.
            VersionConflict: the document is at another version.
            AlreadyExists: another document has a value of a unique field.
            InvalidDocument: MongoDB refuses the document.
            Forbidden: the caller may not write every field.
        """
        rows = self._scope.write_rows(entity)
        self._scope.check_whole(entity)

        async def restoring() -> Written:
            await self._own_writes.recorded(entity.collection, [key])
            content = await self._content(entity, key, number)
            alteration = DocumentUpdate.restoration(content, number)
            for _ in range(ATTEMPTS):
                try:
                    return await self._writes.alter(entity, key, alteration, expected, author)
                except DocumentNotFound:
                    if rows.limits:
                        await self._check_gone(entity, key)
                try:
                    return await self._bring_back(entity, key, content, number, expected, author)
                except AlreadyExists as exc:
                    # The document exists again: try to change it.
                    if exc.path != "id":
                        raise
            raise too_many_conflicts(entity, key)

        return await self._writes.once(entity, author, restoring)

    async def _content(self, entity: Entity, key: Any, number: int) -> RawBSONDocument:
        archive = self._archives[entity.collection]
        query = {"doc": {"$eq": key}, "v": number}
        found = await archive.find(query, FindOptions(limit=1, raw=True))
        if not found:
            # Another process may have just written it: wait until the archive reaches the present.
            await self._expected_versions.now(entity, key)
            found = await archive.find(query, FindOptions(limit=1, raw=True))
        if not found and not self._scope.write_rows(entity).limits:
            await self._horizons.check_number(archive, key, number)
        content: RawBSONDocument | None = found[0].get("full") if found else None
        rows = self._scope.write_rows(entity)
        if content is not None and not rows.allow({**decode_content(content), "_id": key}):
            found, content = [], None
        if content is None:
            problem = "is a deletion" if found else "does not exist"
            raise DocumentNotFound(
                f"{entity.name} {json_value(key)}: version {number} {problem}, expected one with "
                "content; choose another"
            )
        return content

    async def _check_gone(self, entity: Entity, key: Any) -> None:
        """Check that the document does not exist, and that the caller saw it before its deletion.

        Raises:
            DocumentNotFound: it exists, or existed last, outside the caller's rows.
        """
        archive = self._archives[entity.collection]
        if await archive.layout.find({"_id": key}, FindOptions(projection={"_id": 1}, limit=1)):
            # Inside the rows it would have been changed; if it was created just now, the caller
            # retries.
            last = await self._expected_versions.now(entity, key)
            if last is None:
                raise not_found_error(entity, key)
            return
        states = await archive.find(
            {"doc": {"$eq": key}, "op": {"$ne": "DELETE"}}, FindOptions(sort=[("v", -1)], limit=1)
        )
        if not states or not self._scope.write_rows(entity).allow_version(states[0]):
            raise not_found_error(entity, key)

    async def _bring_back(
        self,
        entity: Entity,
        key: Any,
        content: RawBSONDocument,
        number: int,
        expected: int | None,
        author: Author,
    ) -> Written:
        """Insert a deleted document; its version number continues from the tombstone."""
        last = await self._expected_versions.now(entity, key)
        assert last is not None  # at least the restored version exists
        if expected is not None and last.number != expected:
            raise conflict_error(entity, key, expected, last.number)
        change = attribution(author, entity, key, restoredFrom=number)
        whole = {name: value for name, value in content.items() if name != "_id"}
        if entity.version is not None:
            whole[entity.version] = last.number + 1
        whole[CHANGE_FIELD] = change
        number = last.number + 1
        return await self._writes.insert(entity, key, whole, change, author, number)
