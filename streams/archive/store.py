"""Archive: one document per version, in `<collection>.versions`.

`{_id: token, doc, v, op, at, wall, prev, by, why, restoredFrom, draft, traceparent, changed, full,
first, cut, gap, unrecorded, setAside, spanning, born, readAt, change, copies, offset, fence}`, or
the fields that `streams.versioning.content_encoding` stores instead of `full`. If the collection
keeps its versions itself, the contents come from there (`streams.layouts`).

Guarantees: unique on `_id` and on `{doc, v}`; the records of a partition are inserted in stream
order, so a crash leaves a prefix of them. No later write changes a record: the next version says
when it was replaced. Only the recorder that holds the partition's lease writes; any process reads.
Source: docs/decisions/0007-archive.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from bson import Timestamp

from revstream.streams.archive.indexes import (
    DOCUMENT_INDEX,
    FORMER_INDEX,
    INDEXES,
    last_version_stages,
    newest_stages,
    reference_index,
    replacement_stages,
)
from revstream.streams.changefeed.event import identity, possible_ids
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DamagedArchive, DuplicateKey, Unsuitable
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.layouts.archive import ArchiveLayout
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.versioning.content_encoding import split_into_parts
from revstream.streams.versioning.content_reader import ContentReader, empty_content
from revstream.streams.versioning.version import LastVersion

__all__ = ["Archive"]

log = logging.getLogger(__name__)

# Number of records that fit into one batch.
_SHORT_READ = 100
# Sort order of one document's versions, by `TIME_INDEX`.
_NEWEST_FIRST = (("at", -1), ("v", -1))


class Archive:
    """The versions of one collection.

    Args:
        references: The result of `referring_fields`.

    Attributes:
        layout: Layout of the collection's documents; if it keeps versions too, they have no content
            here.
        contents: Reader of the contents.
        indexes: Keys and options of its indexes.
    """

    def __init__(
        self,
        mongo: Mongo,
        collection: str,
        layout: Layout | None = None,
        references: Iterable[str] = (),
    ) -> None:
        self._mongo = mongo
        self.collection = collection
        self.layout = layout or ArchiveLayout(mongo, collection)
        self.name = f"{collection}.versions"
        self.parts = f"{collection}.overflow"
        self.contents = ContentReader(mongo, collection, self.layout)
        self.indexes = (*INDEXES, *map(reference_index, references))
        self._indexed: set[str] = set()
        self._has_packed = self._prepared = False
        self._damaged = LogThrottle(log, "version cannot be read", level=logging.ERROR)

    async def prepare(self) -> None:
        """Create the missing indexes; `insert` does so too before the process's first version."""
        await self._create_indexes()
        # It only costs time: without the privilege to drop it, it stays.
        with suppress(Unsuitable):
            await self._mongo.drop_index(self.name, FORMER_INDEX)

    async def _create_indexes(self) -> None:
        await self._mongo.create_indexes(self.name, self.indexes)
        self._prepared = True

    def recheck_indexes(self) -> None:
        """Create missing indexes again before the next version: they may have been dropped."""
        self._prepared = False

    async def last_versions(self, keys: Iterable[Any]) -> dict[Any, LastVersion]:
        """Return the last version of each document that has one, by `identity`.

        One round trip: an index scan from document to document, an eighth of the cost of `newest`.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        found = await self._last_of_each(wanted, raw=True)
        return {identity(each["doc"]): last for each, last in await self._read_lasts(found)}

    async def _read_lasts(self, records: Sequence[Any]) -> list[tuple[Any, LastVersion]]:
        """Pair each record with the facts that the next version needs, including damage."""
        try:
            found = await self.contents.fill(records, raw=True, lenient=True)
        except DamagedArchive as exc:
            # Only reading them one by one shows which is damaged.
            if len(records) > 1:
                return [each for one in records for each in await self._read_lasts([one])]
            self._damaged.note(collection=self.collection, reason=exc.message)
            return [
                (
                    records[0],
                    LastVersion.from_record(records[0], damaged=empty_content(records[0]["doc"])),
                )
            ]
        return [(each, LastVersion.from_record(each)) for each in found]

    async def change_ids(self, ids: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return those of these `_change` ids that versions have, each with the document's `_id`.

        One read, of an index alone.
        """
        found = await self._mongo.find(
            self.name,
            {"change.id": {"$in": list(ids)}},
            FindOptions(
                projection={"_id": 0, "change.id": 1, "doc": 1}, short=len(ids) <= _SHORT_READ
            ),
        )
        return [(each["change"]["id"], each["doc"]) for each in found]

    async def fences_of_deleted(self, keys: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return the fence values of documents whose last version is a deletion, each with its
        `_id`.
        """
        if not keys:
            return []
        found = await self._last_of_each(keys, projection={"doc": 1, "op": 1, "fence": 1})
        return [(each["doc"], each["fence"]) for each in found if "fence" in each]

    async def has_packed(self) -> bool:
        """Return whether some contents are outside `full`, where MongoDB cannot filter."""
        if not self._has_packed:
            query = {"packed": True}
            self._has_packed = bool(
                await self._mongo.find(
                    self.name, query, FindOptions(projection={"packed": 1}, limit=1)
                )
            )
        return self._has_packed

    async def finds_references(self, stored: str) -> bool:
        """Return whether the index of a reference exists; once seen, it is taken to stay."""
        if stored not in self._indexed:
            indexes = await self._mongo.indexes(self.name)
            if reference_index(stored)[0] in [[*each["key"].items()] for each in indexes]:
                self._indexed.add(stored)
        return stored in self._indexed

    async def find(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
        *,
        fill: bool = True,
    ) -> list[Any]:
        """Find records; fill in their contents if the projection has part of them.

        Args:
            fill: False: return records as stored, for `ContentReader.fill`.
        """
        found = await self._mongo.find(self.name, query, options)
        fill = fill and _shows_content(options.projection)
        return await self.contents.fill(found, raw=options.raw) if fill else found

    async def document_ids(
        self,
        first: tuple[Any] | None,
        end: tuple[Any] | None,
        *,
        limit: int,
        hint: str | None = DOCUMENT_INDEX,
    ) -> list[Any]:
        """Return the `_id`s of documents with versions, in index order, from one to before another.

        Args:
            first, end: A tuple of an `_id`, or None for no bound.
            hint: Name of the index; None where it may be missing.
        """
        bounds = [
            {operator: ["$doc", {"$literal": bound[0]}]}
            for operator, bound in (("$gte", first), ("$lt", end))
            if bound is not None
        ]
        pipeline: list[Mapping[str, Any]] = [
            # In expressions, values of all types have one order, as in the index.
            {"$match": {"first": True, "$expr": {"$and": bounds}}},
            {"$sort": {"doc": 1}},
            {"$limit": limit},
            {"$project": {"_id": 0, "doc": 1}},
        ]
        found = await self._mongo.aggregate(self.name, pipeline, hint=hint)
        return [each["doc"] for each in found]

    async def newest(
        self,
        wanted: Sequence[Mapping[str, Any]],
        *,
        limit: int,
        projection: Mapping[str, Any] | None = None,
        match: Sequence[Mapping[str, Any]] = (),
        raw: bool = False,
        lenient: bool = False,
    ) -> list[Any]:
        """Return the newest versions of several documents, in one round trip that costs what it
        returns.

        Args:
            wanted: For each, `key` (the `_id`) and optionally `at`: only versions at or before that
                cluster time.
            limit: Versions per entry.
            match: Further pipeline stages that a version must pass before it is counted.
            lenient: See `ContentReader.fill`.

        Returns: records, newest first per entry, entries in no order; each has `wanted`, its index.
        """
        if not wanted:
            return []
        moment = wanted[0].get("at")
        if limit == 1 and not (match or raw) and all(each.get("at") == moment for each in wanted):
            found = await self._newest_at([each["key"] for each in wanted], moment, projection)
        else:
            pipeline = newest_stages(self.name, wanted, limit, projection, match)
            found = await self._mongo.aggregate(None, pipeline, raw=raw)
        if not _shows_content(projection):
            return found
        return await self.contents.fill(found, raw=raw, lenient=lenient)

    async def _newest_at(
        self, keys: Sequence[Any], at: Timestamp | None, projection: Mapping[str, Any] | None
    ) -> list[Document]:
        """Read the last versions at one time: an eighth of the cost of a lookup per entry."""
        places: dict[Any, list[int]] = {}
        for n, key in enumerate(keys):
            places.setdefault(identity(key), []).append(n)
        once = [keys[each[0]] for each in places.values()]
        shown = None if projection is None else {"doc": 1, **projection}
        found = await self._last_of_each(once, at=at, projection=shown)
        return [
            {**record, "wanted": n} for record in found for n in places[identity(record["doc"])]
        ]

    async def _last_of_each(
        self,
        keys: Sequence[Any],
        *,
        at: Timestamp | None = None,
        projection: Mapping[str, Any] | None = None,
        raw: bool = False,
    ) -> list[Any]:
        if len(keys) == 1:
            # The same index scan: 155 µs of MongoDB, 207 µs as a pipeline.
            query = {"doc": {"$eq": keys[0]}, **({} if at is None else {"at": {"$lte": at}})}
            options = FindOptions(
                projection=projection, sort=_NEWEST_FIRST, limit=1, raw=raw, short=True
            )
            return await self._mongo.find(self.name, query, options)
        pipeline = [{"$match": {"doc": {"$in": possible_ids(keys)}}}, *last_version_stages(at)]
        if projection is not None:
            pipeline.append({"$project": projection})
        return await self._mongo.aggregate(
            self.name, pipeline, raw=raw, short=len(keys) <= _SHORT_READ
        )

    async def replacement_times(self, versions: Sequence[tuple[Any, int]]) -> list[datetime | None]:
        """N (`_id`, number) -> n times of the wall clock at which these versions were replaced, or
        None.

        One round trip, one index lookup each. The records do not contain this time: writing it
        would cost MongoDB about as much as the rest of a version (docs/decisions/0007-archive.md).
        """
        if not versions:
            return []
        pipeline = replacement_stages(self.name, versions)
        ends: list[datetime | None] = [None] * len(versions)
        for each in await self._mongo.aggregate(None, pipeline, short=True):
            ends[each["n"]] = each["wall"]
        return ends

    async def scan(
        self,
        after: str,
        upto: str,
        *,
        limit: int,
        match: Mapping[str, Any] | None = None,
    ) -> list[Document]:
        """Return records in token order, after one token and up to another."""
        # Earlier versions of revstream stored tokens in the form of MongoDB 7, which sort after the
        # canonical ones of the same cluster time.
        first, last = resume_tokens.canonical_token(after), after
        records: list[Document] = []
        while len(records) < limit:
            query: Document = {
                "_id": {"$gt": last, "$lte": resume_tokens.upper_bound(upto)},
                **(match or {}),
            }
            found = await self.find(query, FindOptions(sort=[("_id", 1)], limit=limit))
            records += [
                each for each in found if first < resume_tokens.canonical_token(each["_id"]) <= upto
            ]
            if len(found) < limit:
                break
            last = found[-1]["_id"]
        return records[:limit]

    async def by_token(
        self, wanted: Sequence[str], *, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Document]:
        """Return records by token; missing ones are left out."""
        query = {"_id": {"$in": list(wanted)}}
        found = await self.find(
            query, FindOptions(projection=projection, short=len(wanted) <= _SHORT_READ)
        )
        return {record["_id"]: record for record in found}

    async def insert(self, records: Sequence[Document]) -> bool:
        """Insert records in stream order.

        Returns: False if another process has written one of them: the caller is late, or reads
        again.

        Cancellation: safe; a prefix of the records may be stored.
        """
        if not self._prepared:
            await self._create_indexes()
        for each in records:
            await self._store_parts(each)
        try:
            await self._mongo.insert_in_order(self.name, records)
        except DuplicateKey:
            return False
        return True

    async def mark_spanning(self, tokens: Sequence[str]) -> None:
        """Mark versions that were current before history was lost, and after it."""
        if tokens:
            query = {"_id": {"$in": list(tokens)}}
            await self._mongo.update_all(self.name, query, {"$set": {"spanning": True}})

    async def keyframe_update(self, record: Mapping[str, Any]) -> Document:
        """Return the update that turns a record with a patch into a keyframe.

        Args:
            record: With its content, raw.
        """
        whole = {name: record.get(name) for name in ("_id", "full", "change", "copies")}
        await self._store_parts(whole)
        gone = dict.fromkeys(("patch", "keyframe", "depth"), "")
        if "full" not in whole:
            return {"$set": {"parts": whole["parts"]}, "$unset": gone}
        return {"$set": {"full": whole["full"]}, "$unset": {**gone, "packed": ""}}

    async def _store_parts(self, record: Document) -> None:
        """Store the parts of a record that is too large, before the record that refers to them.

        A crash between may have left parts of an earlier attempt.
        """
        for part in split_into_parts(record):
            name, data = {"_id": part["_id"]}, {"data": part["data"]}
            await self._mongo.find_one_and_update(self.parts, name, {"$set": data}, upsert=True)


def _shows_content(projection: Mapping[str, Any] | None) -> bool:
    if projection is None:
        return True
    # A part of the content needs the fields that lead to packed contents.
    return "packed" in projection or any(
        shown and (name == "full" or name.startswith("full.")) for name, shown in projection.items()
    )
