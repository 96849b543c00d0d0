"""DOCUMENT_PER_VERSION layout: each version is a document `{docId, v, …}`, unique on both.

The version with the highest number is the current one. A write is one insert, which the unique
index refuses to the second of two writers. A deletion is a version of its own. A read of many
documents must first find the last version of each and filter then, since a version that matches the
filter need not be current; so it costs as much as there are documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.layouts.core.query_rewrite import replace_first_name, rewrite_query
from revstream.streams.layouts.core.stored_version import (
    ConcurrentWrite,
    LayoutFieldNames,
    LogicalWrite,
    StoredVersion,
    valid_id_query,
)
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout, Stages
from revstream.streams.layouts.self_versioned.version_rows import VersionRows
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import WriteSession

__all__ = ["DocumentPerVersionLayout"]


class DocumentPerVersionLayout(SelfVersionedLayout):
    """Layout with one stored document per version."""

    def __init__(self, mongo: Mongo, collection: str, names: LayoutFieldNames) -> None:
        super().__init__(mongo, collection, names)
        self.own = self._own()
        self.rows = VersionRows(mongo, collection, names, self.own)

    def _own(self) -> tuple[str, ...]:
        """Return the layout's own fields, except the number."""
        return (self.names.document, self.names.deleted)

    async def create_indexes(self) -> None:
        await self.rows.prepare()

    def index_fields(self, fields: Sequence[str]) -> tuple[list[str], Document] | None:
        return None

    def current_stages(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> Stages:
        # Only conditions on the id may come before the last versions are found.
        early, exact = rewrite_query(query, self._of_id)
        stages: Stages = [{"$match": early}] if early else []
        stages += self._current()
        if not exact:
            stages.append({"$match": query})
        if options.sort:
            stages.append({"$sort": dict(options.sort)})
        if options.limit:
            stages.append({"$limit": options.limit})
        return stages

    def _of_id(self, path: str) -> str | None:
        return replace_first_name(path, "_id", self.names.document)

    def _current(self) -> Stages:
        """Return the stages that reduce stored versions to current documents."""
        names = self.names
        return [
            # Against the index's direction, so that the first is the highest: the server then reads
            # one index entry per document, and not all.
            {"$sort": {names.document: -1, names.number: -1}},
            {"$group": {"_id": f"${names.document}", "last": {"$first": "$$ROOT"}}},
            {"$replaceWith": "$last"},
            {"$match": {names.deleted: {"$ne": True}, **valid_id_query(names.document)}},
            {"$set": {"_id": f"${names.document}"}},
            {"$unset": list(self.own)},
        ]

    def interpret_event(self, event: ChangeEvent) -> LogicalWrite | None:
        # A version never changes: an update concerns the layout's own fields, or does not change
        # the document.
        if event.operation != "insert" or event.after is None:
            return None
        kept = self.rows.to_version(event.after)
        return None if kept.number is None else self._logical_write(kept)

    def _logical_write(self, kept: StoredVersion) -> LogicalWrite:
        return LogicalWrite(key=kept.key, number=kept.number, version=kept)

    async def last(self, key: Any) -> StoredVersion | None:
        row = await self.rows.last(key)
        return None if row is None else self.rows.to_version(row)

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        found = [self.rows.to_version(each) for each in await self.rows.find_exact(wanted)]
        return {(identity(each.key), each.number or 0): each for each in found}

    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        return self._versions(await self.rows.find_all(key, at=at))

    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        return await self.rows.before(wanted)

    async def read(
        self, after: tuple[Any] | None, *, size: int, at: Timestamp
    ) -> tuple[list[StoredVersion], bool]:
        while True:
            rows, end = await self.rows.read(after, size=size, at=at)
            found = self._versions(rows)
            if found or end:
                return found, end
            after = (self.rows.to_version(rows[-1]).key,)

    def _versions(self, rows: Iterable[RawBSONDocument]) -> list[StoredVersion]:
        """Return the versions that stored documents represent, in their order."""
        return [kept for kept in map(self.rows.to_version, rows) if kept.number is not None]

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        row = self.rows.to_row(made)
        if await writing.insert_unless(self.collection, row, self.rows.unique) is None:
            raise ConcurrentWrite
