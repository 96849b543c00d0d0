"""Where history is kept: one document per version, in `<collection>.versions`.

`{_id: token, doc, v, op, at, wall, until, untilWall, span, prev, by, why, restoredFrom, draft,
changed, full, first, gap, readAt, change}`

Guarantees: unique on `_id` and on `{doc, v}`; records are inserted in stream order, so what a crash
leaves is a prefix, and `mend` closes the `until` chain behind it. Written by the recorder that
holds the lease, read by everybody.
Source: docs/decisions/0007-archive.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bson import Timestamp

from streams.documents import Document
from streams.errors import DuplicateKey
from streams.events import identity
from streams.mongo import Mongo
from streams.tokens import cluster_time
from streams.versions import Last

__all__ = ["DOCUMENTS", "INDEXES", "INTERVALS", "Archive", "Until", "closing", "span"]

Until = tuple[str, Timestamp, Any]

_FOREVER = Timestamp(2**32 - 1, 2**32 - 1)

# Names that readers hint with.
INTERVALS = "intervals"
DOCUMENTS = "documents"

INDEXES: tuple[tuple[list[tuple[str, int]], dict[str, Any]], ...] = (
    ([("doc", 1), ("v", -1)], {"unique": True}),
    # a document as of a moment; several versions of one transaction have the same `at`
    ([("doc", 1), ("at", -1), ("v", -1)], {}),
    # a whole collection as of a moment, in any order: see `span`
    ([("span", 1), ("at", 1), ("until", 1)], {"name": INTERVALS}),
    # a whole collection as of a moment, in id order: each document once
    ([("doc", 1)], {"name": DOCUMENTS, "partialFilterExpression": {"first": True}}),
)


class Archive:
    """The versions of one collection."""

    def __init__(self, mongo: Mongo, collection: str) -> None:
        self._mongo = mongo
        self.collection = collection
        self.name = f"{collection}.versions"

    async def prepare(self) -> None:
        """Create the indexes; an archive that has them is left alone."""
        for keys, options in INDEXES:
            await self._mongo.create_index(self.name, keys, **options)

    async def last(self, keys: Iterable[Any]) -> dict[Any, Last]:
        """The last version of each document that has one, by `events.identity` of its `_id`. One
        round trip."""
        found = await self.newest([{"key": key} for key in keys], limit=1, raw=True)
        return {
            identity(record["doc"]): Last(
                token=record["_id"],
                number=record["v"],
                full=record.get("full"),
                change=record.get("change"),
                read_at=record.get("readAt"),
            )
            for record in found
        }

    async def documents(
        self, first: tuple[Any] | None, end: tuple[Any] | None, *, limit: int
    ) -> list[Any]:
        """The `_id`s of documents that have versions, in the order of an index: from one on, before
        another; each a tuple of an `_id`, or None for no bound."""
        bounds = [
            {operator: ["$doc", {"$literal": bound[0]}]}
            for operator, bound in (("$gte", first), ("$lt", end))
            if bound is not None
        ]
        pipeline: list[Mapping[str, Any]] = [
            # In expressions values of all types are in one order, as in the index.
            {"$match": {"first": True, "$expr": {"$and": bounds}}},
            {"$sort": {"doc": 1}},
            {"$limit": limit},
            {"$project": {"_id": 0, "doc": 1}},
        ]
        found = await self._mongo.aggregate(self.name, pipeline, hint=DOCUMENTS)
        return [each["doc"] for each in found]

    async def newest(
        self,
        wanted: Sequence[Mapping[str, Any]],
        *,
        limit: int,
        projection: Mapping[str, Any] | None = None,
        match: Sequence[Mapping[str, Any]] = (),
        raw: bool = False,
    ) -> list[Any]:
        """The newest versions of several documents, in one round trip that costs what it returns.

        Args:
            wanted: for each, `key` (the `_id`) and, optionally, `at`: only versions at or before
                that cluster time.
            limit: versions per entry.
            match: further pipeline stages that a version must pass before it is counted.
        Returns: records, newest first per entry, entries in no order; each has `wanted`, its index.
        """
        if not wanted:
            return []
        rows: list[Document] = [
            {"n": n, "key": each["key"], "at": each.get("at", _FOREVER)}
            for n, each in enumerate(wanted)
        ]
        inner: list[Mapping[str, Any]] = [
            {
                "$match": {
                    "$expr": {"$and": [{"$eq": ["$doc", "$$key"]}, {"$lte": ["$at", "$$at"]}]}
                }
            },
            {"$sort": {"doc": 1, "at": -1, "v": -1}},
            *match,
            {"$limit": limit},
        ]
        if projection is not None:
            inner.append({"$project": projection})
        pipeline: list[Mapping[str, Any]] = [
            # literal: an id such as "$name" is a value, not a field path
            {"$documents": {"$literal": rows}},
            {
                "$lookup": {
                    "from": self.name,
                    "let": {"key": "$key", "at": "$at"},
                    "pipeline": inner,
                    "as": "found",
                }
            },
            {"$unwind": "$found"},
            {"$replaceWith": {"$mergeObjects": ["$found", {"wanted": "$n"}]}},
        ]
        return await self._mongo.aggregate(None, pipeline, raw=raw)

    async def scan(
        self,
        after: str,
        upto: str,
        *,
        limit: int,
        match: Mapping[str, Any] | None = None,
    ) -> list[Document]:
        """Records in token order, after one token and up to another."""
        query: Document = {"_id": {"$gt": after, "$lte": upto}, **(match or {})}
        return await self._mongo.find(self.name, query, sort=[("_id", 1)], limit=limit)

    async def by_token(
        self, wanted: Sequence[str], *, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Document]:
        """Records by token; those that are not there are left out."""
        found = await self._mongo.find(
            self.name, {"_id": {"$in": list(wanted)}}, projection=projection
        )
        return {record["_id"]: record for record in found}

    async def append(self, records: Sequence[Document], untils: Sequence[Until]) -> bool:
        """Insert records in stream order, then close the versions that they replace.

        Args:
            untils: for each replaced version that is stored already: its token, the `at` and the
                `wall` that end it.
        Returns: False where somebody else has written one of them: the caller is late, or reads
            anew.

        Cancellation: safe once followed by `mend`.
        """
        try:
            await self._mongo.insert_in_order(self.name, records)
        except DuplicateKey:
            return False
        await self._close(untils)
        return True

    async def mend(self, after: str) -> int:
        """Close what a crash between the two steps of `append` left open. Returns how many records
        were looked at."""
        tail = await self._mongo.find(
            self.name,
            {"_id": {"$gt": after}},
            projection={"prev": 1, "at": 1, "wall": 1},
        )
        await self._close([(r["prev"], r["at"], r["wall"]) for r in tail if r["prev"]])
        return len(tail)

    async def _close(self, untils: Sequence[Until]) -> None:
        await self._mongo.update_each(
            self.name,
            [
                ({"_id": token}, {"$set": closing(cluster_time(token), at, wall)})
                for token, at, wall in untils
            ],
        )


def closing(at: Timestamp, until: Timestamp, until_wall: Any) -> Document:
    """What a version that stood from `at` is given when the next one replaces it."""
    return {"until": until, "untilWall": until_wall, "span": span(at, until)}


def span(at: Timestamp, until: Timestamp) -> int:
    """The version stood less than 2 ** span seconds: 0 to 32.

    No index finds the intervals that contain a moment in time proportional to their number. But of
    those that stood less than 2 ** n seconds, only such can contain it as begin less than 2 ** n
    seconds before: 33 short ranges of an index.
    """
    return int((until.time - at.time).bit_length())
