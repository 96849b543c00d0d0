"""Reads of current documents by the version number that the API shows.

That is the number of the last version in the archive, where the document's own count is lower or no
number. Each examined document costs a lookup in the archive, so only reads that filter or sort by
the number use this; conditions on other fields are matched before.
Source: docs/decisions/0010-version-of-a-current-document.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from bson import Timestamp

from revstream.streams.layouts.archive import ArchiveLayout
from revstream.streams.layouts.core.sort_key import sort_key_expressions
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions

__all__ = ["NumberedReads"]

# The highest number of a document: `streams.versioning.version.carried_number`.
_HIGHEST = 2**31 - 1


class NumberedReads(ArchiveLayout):
    """Version numbers of a collection with the ARCHIVE layout.

    Args:
        archive: Collection of its versions.
        field: Version field of the documents.
    """

    def __init__(self, mongo: Mongo, collection: str, archive: str, field: str) -> None:
        super().__init__(mongo, collection)
        self._archive = archive
        self._field = field

    async def find(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> list[Any]:
        stages = self._matched(query)
        if options.sort:
            stages.append({"$sort": dict(options.sort)})
        if options.limit:
            stages.append({"$limit": options.limit})
        if options.projection:
            # After stages that change documents, the server has no sort key.
            placed = {
                name: sort_key_expressions(options.sort)
                if isinstance(shown, Mapping) and "$meta" in shown
                else shown
                for name, shown in options.projection.items()
            }
            stages.append({"$project": placed})
        return await self.mongo.aggregate(
            self.collection, stages, at=options.at, raw=options.raw, naive=options.naive
        )

    async def count(self, query: Mapping[str, Any], *, at: Timestamp | None = None) -> int:
        stages = [*self._matched(query), {"$count": "n"}]
        found = await self.mongo.aggregate(self.collection, stages, at=at)
        return int(found[0]["n"]) if found else 0

    async def aggregate(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
    ) -> list[Document]:
        pipeline = [*self._matched(query), *stages]
        return await self.mongo.aggregate(self.collection, pipeline, at=at, in_memory=True)

    def pages(
        self, query: Mapping[str, Any], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        stages = [*self._matched(query), {"$sort": {"_id": 1}}]
        return self.mongo.aggregate_pages(self.collection, stages, size=size, at=at)

    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        lookup, beginning = super().lookup_stages(field)
        return lookup, [*beginning, *self._numbers()]

    def _matched(self, query: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        parts = query["$and"] if set(query) == {"$and"} else [query]
        early = [each for each in parts if not _mentions(each, self._field)]
        late = [each for each in parts if _mentions(each, self._field)]
        return [
            *([{"$match": {"$and": early}}] if early else []),
            *self._numbers(),
            *([{"$match": {"$and": late}}] if late else []),
        ]

    def _numbers(self) -> list[Document]:
        """Return the stages that put the number into the version field."""
        last: list[Document] = [
            {"$sort": {"v": -1}},
            {"$limit": 1},
            {"$project": {"v": 1, "offset": 1}},
        ]
        place = f"${self._field}"
        whole = {"$and": [{"$gt": [place, 0]}, {"$lte": [place, _HIGHEST]}]}
        integral = {"$eq": [place, {"$trunc": place}]}
        is_number = {"$in": [{"$type": place}, ["int", "long", "double"]]}
        carried = {
            "$cond": [
                is_number,
                {"$cond": [{"$and": [whole, integral]}, {"$toLong": place}, 0]},
                0,
            ]
        }
        archived = {"$ifNull": [{"$first": f"${_LAST}.v"}, 0]}
        # How far a copied counter is ahead.
        ahead = {"$ifNull": [{"$first": f"${_LAST}.offset"}, 0]}
        counted = {"$subtract": [carried, ahead]}
        return [
            {
                "$lookup": {
                    "from": self._archive,
                    "localField": "_id",
                    "foreignField": "doc",
                    "pipeline": last,
                    "as": _LAST,
                }
            },
            {"$set": {self._field: {"$max": [counted, archived]}}},
            {"$unset": _LAST},
        ]


# Not a field of documents: only names of MongoDB and revstream begin so.
_LAST = "_revstream_last"


def _mentions(part: Any, field: str) -> bool:
    """Return whether a query names a field."""
    if isinstance(part, str):
        return part == f"${field}"
    if isinstance(part, Mapping):
        return any(name == field or _mentions(value, field) for name, value in part.items())
    return isinstance(part, list | tuple) and any(_mentions(each, field) for each in part)
