"""ARCHIVE layout: current documents in the collection, versions in `<collection>.versions`.

Every write is one atomic operation, so there is nothing to recover.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.layouts.core.plain_collection import PlainCollectionLayout
from revstream.streams.layouts.core.snapshot_scan import position_after_last, read_documents
from revstream.streams.layouts.core.stored_version import StoredVersion
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import Pipeline, WriteSession
from revstream.streams.versioning.content_reader import ContentReader
from revstream.streams.versioning.version import CHANGE_FIELD, RESERVED, LastVersion

__all__ = ["ArchiveLayout"]


class ArchiveLayout(PlainCollectionLayout):
    """Layout of a collection whose versions revstream stores."""

    keeps = False
    removes = True

    def __init__(self, mongo: Mongo, collection: str) -> None:
        super().__init__(mongo, collection)
        self._archive = f"{collection}.versions"
        self._contents = ContentReader(mongo, collection)

    async def scan_current(
        self, *, size: int, at: Timestamp
    ) -> AsyncGenerator[tuple[list[RawBSONDocument], bool]]:
        place, end = None, False
        while not end:
            found, end = await read_documents(self.mongo, self.collection, place, size=size, at=at)
            yield found, end
            place = None if end else position_after_last(found)

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        """Return recorded versions, without their `_change`."""
        queries = [{"doc": {"$eq": key}, "v": number} for key, number in wanted]
        found = await self._found({"$or": queries}) if queries else []
        return {(identity(each.key), each.number or 0): each for each in found}

    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        """Return all recorded versions, without their `_change`."""
        bound: Document = {} if at is None else {"at": {"$lte": at}}
        return await self._found({"doc": {"$eq": key}, **bound})

    async def _found(self, query: Mapping[str, Any]) -> list[StoredVersion]:
        found = await self.mongo.find(
            self._archive, query, FindOptions(sort=[("doc", 1), ("v", 1)], raw=True)
        )
        return [
            StoredVersion(
                key=record["doc"],
                number=record["v"],
                content=record["full"],
                change=record.get("change"),
                wall=record["wall"],
            )
            for record in await self._contents.fill(found, raw=True)
        ]

    async def translate(
        self, events: Sequence[ChangeEvent], *, before: bool = False
    ) -> list[ChangeEvent]:
        """Return the events as they are: they already describe writes of documents."""
        return list(events)

    async def create(
        self, writing: WriteSession, key: Any, content: Mapping[str, Any]
    ) -> RawBSONDocument | None:
        """Insert a document; if it exists already, the driver's error says so."""
        return await writing.insert(self.collection, {"_id": key, **content})

    async def alter(
        self,
        writing: WriteSession,
        key: Any,
        pipeline: Pipeline,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> RawBSONDocument | None:
        return await writing.change(self.collection, _exactly(key, expected, demands), pipeline)

    async def remove(
        self,
        writing: WriteSession,
        key: Any,
        change: Document,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        query = _exactly(key, expected, demands)
        return await writing.remove(self.collection, query) is not None


def _exactly(
    key: Any, expected: LastVersion | None, demands: Sequence[Mapping[str, Any]]
) -> Document:
    """Return the query for a document, limited to the content of the expected version."""
    query: Document = {"_id": key}
    if expected is not None:
        content: Any = "$$ROOT"
        for name in RESERVED:
            content = {"$unsetField": {"field": name, "input": content}}
        # The author of the last change distinguishes two states that are otherwise equal.
        query[CHANGE_FIELD] = {"$eq": expected.change}
        query["$expr"] = {"$eq": [content, {"$literal": expected.full}]}
    return {"$and": [query, *demands]} if demands else query
