"""Coverage: the intervals in which a collection's history is known completely.

It says where the archive begins, from where on every document is known, how far back retention has
left it, and which windows were lost in between.

One document per collection, `revstream.horizons`, which also stores the horizon of retention:
`{_id, token, begun: {at, wall} | null, known: {at, wall}, gaps: [{partition, from, fromWall, to,
toWall, why}]}`.

`from` is the first cluster time of which nothing is known, `to` the first at which all is known
again; null while the current documents are being read. `begun` is null if the oplog reached back to
the creation of the replica set: then nothing existed before. Source:
docs/decisions/0041-coverage.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = [
    "COLLECTION",
    "UNLIMITED",
    "Coverage",
    "CoverageStore",
    "Gap",
    "TimeMark",
    "boundary_stages",
    "coverage_stage",
    "history_lost_error",
]

COLLECTION = "revstream.horizons"

_MOST_GAPS = 1000
"""Maximum number of gaps per collection; beyond it, the two oldest are merged."""


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A cluster time, and the corresponding time of the database's clock."""

    at: Timestamp
    wall: datetime

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> TimeMark | None:
        return None if record is None else cls(record["at"], record["wall"])

    @property
    def record(self) -> Document:
        return {"at": self.at, "wall": self.wall}


@dataclass(frozen=True, slots=True)
class Gap:
    """A window of lost history, from `start` to before `end`; None while it is open."""

    start: TimeMark
    end: TimeMark | None
    why: str

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Gap:
        end = record["to"]
        return cls(
            TimeMark(record["from"], record["fromWall"]),
            None if end is None else TimeMark(end, record["toWall"]),
            record["why"],
        )

    def contains(self, at: Timestamp) -> bool:
        return self.start.at <= at and (self.end is None or at < self.end.at)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The known intervals of one collection.

    Attributes:
        horizon: Token of the last version that replaced one deleted by retention; "" where
            retention
            has deleted none.
        begun: Beginning of the archive; None where nothing existed before.
        known: Time from which every document is known; None where all are from the beginning.
    """

    horizon: str = ""
    begun: TimeMark | None = None
    known: TimeMark | None = None
    gaps: tuple[Gap, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Coverage:
        if not record:
            return UNLIMITED
        return cls(
            horizon=record.get("token") or "",
            begun=TimeMark.from_record(record.get("begun")),
            known=TimeMark.from_record(record.get("known")),
            gaps=tuple(map(Gap.from_record, record.get("gaps") or ())),
        )

    @property
    def open_gap(self) -> Gap | None:
        """The first gap whose end is not known yet."""
        return next((each for each in self.gaps if each.end is None), None)

    def error_at(self, collection: str, at: Timestamp) -> HistoryLost | ArchiveBehind | None:
        """Return the error for a time at which the state of the whole collection is not known.

        The time is before all documents are known, or in a gap.
        """
        limits = [each for each in (self.begun, self.known) if each is not None]
        limit = max(limits, key=lambda each: each.at, default=None)
        if limit is not None and at < limit.at:
            return history_lost_error(collection, limit, "was not recorded")
        return self.gap_error(collection, at)

    def is_found_after_gap(self, at: Timestamp) -> bool:
        """Return whether a document first recorded at this time was read after a gap."""
        return any(
            each.start.at <= at and (each.end is None or at <= each.end.at) for each in self.gaps
        )

    def gap_error(
        self, collection: str, at: Timestamp, *, stood: Timestamp | None = None
    ) -> HistoryLost | ArchiveBehind | None:
        """Return the error for a time in a gap; None otherwise.

        Args:
            stood: Time of the version that is known to be the last one by then. One that was
                written
                within the gap was recorded after the loss.
        """
        for gap in self.gaps:
            if not gap.contains(at) or (stood is not None and stood >= gap.start.at):
                continue
            if gap.end is None:
                return ArchiveBehind(
                    f"history of {collection}: lost from {_when(gap.start.at)} on "
                    f"({gap.why}); the documents are being read again; try again later",
                    collection=collection,
                )
            why = f"was lost ({gap.why})"
            return history_lost_error(collection, gap.end, why, lost_from=gap.start)
        return None


UNLIMITED = Coverage()


class CoverageStore:
    """Stored coverage of all collections; only recorders write it."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def load(self, collection: str) -> Coverage:
        """Read the coverage of a collection."""
        found = await self._mongo.find(COLLECTION, {"_id": collection}, FindOptions(limit=1))
        return Coverage.from_record(found[0] if found else None)

    async def gaps(self, collections: Iterable[str]) -> dict[str, Sequence[Gap]]:
        """Read the gaps by collection, oldest first."""
        query = {"_id": {"$in": list(collections)}}
        found = await self._mongo.find(COLLECTION, query, FindOptions(projection={"gaps": 1}))
        return {each["_id"]: Coverage.from_record(each).gaps for each in found}

    async def has_mark(self, collection: str, name: str) -> bool:
        """Return whether the mark `begun` or `known` is stored; null counts as stored."""
        query = {"_id": collection, name: {"$exists": True}}
        return bool(
            await self._mongo.find(COLLECTION, query, FindOptions(projection={"_id": 1}, limit=1))
        )

    async def set_begin(self, collection: str, begun: TimeMark | None) -> None:
        """Store the beginning of the archive; the latest of several partitions counts."""
        await self._raise_mark(collection, "begun", begun)

    async def set_known(self, collection: str, known: TimeMark | None) -> None:
        """Store from where on every document is known; the latest of several partitions counts."""
        await self._raise_mark(collection, "known", known)

    async def _raise_mark(self, collection: str, name: str, mark: TimeMark | None) -> None:
        stored: Document = {"$ifNull": [f"${name}", None]}
        if mark is not None:
            later = {"$lt": [f"${name}.at", mark.at]}
            stored = {"$cond": [later, {"$literal": mark.record}, f"${name}"]}
        await self._mongo.find_one_and_update(
            COLLECTION, {"_id": collection}, [{"$set": {name: stored}}], upsert=True
        )

    async def open_gap(self, collection: str, partition: str, start: TimeMark, why: str) -> None:
        """Store that history is lost from a time on; once per partition until the gap is closed."""
        gap = {"partition": partition, "from": start.at, "fromWall": start.wall}
        gap |= {"to": None, "toWall": None, "why": why}
        gaps: Document = {"$ifNull": ["$gaps", []]}
        mine = {"$and": [{"$eq": ["$$this.partition", partition]}, {"$eq": ["$$this.to", None]}]}
        known = {"$anyElementTrue": [{"$map": {"input": gaps, "in": mine}}]}
        added = {"$concatArrays": [gaps, [{"$literal": gap}]]}
        first, second = ({"$arrayElemAt": ["$gaps", n]} for n in (0, 1))
        later = {"to": "$$second.to", "toWall": "$$second.toWall", "why": "several windows"}
        merged = {
            "$let": {
                "vars": {"first": first, "second": second},
                "in": {"$mergeObjects": ["$$first", later]},
            }
        }
        rest = {"$slice": ["$gaps", 2, _MOST_GAPS]}
        bounded = {
            "$cond": [
                {"$gt": [{"$size": "$gaps"}, _MOST_GAPS]},
                {"$concatArrays": [[merged], rest]},
                "$gaps",
            ]
        }
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": collection},
            [{"$set": {"gaps": {"$cond": [known, gaps, added]}}}, {"$set": {"gaps": bounded}}],
            upsert=True,
        )

    async def close_gap(self, collection: str, partition: str, end: TimeMark) -> None:
        """Store the end of a partition's open gap: from there on all is known again."""
        mine = {"$and": [{"$eq": ["$$this.partition", partition]}, {"$eq": ["$$this.to", None]}]}
        closed = {"$mergeObjects": ["$$this", {"to": end.at, "toWall": end.wall}]}
        gaps = {"$map": {"input": "$gaps", "in": {"$cond": [mine, closed, "$$this"]}}}
        query = {"_id": collection, "gaps": {"$exists": True}}
        await self._mongo.find_one_and_update(COLLECTION, query, [{"$set": {"gaps": gaps}}])

    async def drop_open_gaps(self, collection: str, partitions: Iterable[str]) -> None:
        """Delete the open gaps of former partitions; those of today's partitions cover them."""
        gone = {"to": None, "partition": {"$in": list(partitions)}}
        await self._mongo.find_one_and_update(
            COLLECTION, {"_id": collection}, {"$pull": {"gaps": gone}}
        )


def coverage_stage(collection: str, at: Timestamp) -> Document:
    """Build a pipeline stage that appends a document with the coverage, read at the same time.

    Its field `coverage` is the input of `Coverage.from_record`; of the gaps it has those that
    contain `at`.
    """
    begins = {"$lte": ["$$this.from", at]}
    ends = {"$or": [{"$eq": ["$$this.to", None]}, {"$gt": ["$$this.to", at]}]}
    gaps: Document = {"input": {"$ifNull": ["$gaps", []]}, "cond": {"$and": [begins, ends]}}
    shown = {"token": "$token", "begun": "$begun", "known": "$known", "gaps": {"$filter": gaps}}
    pipeline: list[Document] = [
        {"$match": {"_id": collection}},
        {"$project": {"_id": 0, "coverage": shown}},
    ]
    return {"$unionWith": {"coll": COLLECTION, "pipeline": pipeline}}


def history_lost_error(
    subject: str, mark: TimeMark, why: str, *, lost_from: TimeMark | None = None
) -> HistoryLost:
    """Return the error that names the time from which on the answer is known, and the beginning of
    a gap.

    It does not name the requested time: for a time of the clock only the last record before it is
    known here.
    """
    facts = {} if lost_from is None else {"lostFrom": _text(lost_from.wall)}
    before = "" if lost_from is None else f"before {_text(lost_from.wall)} or "
    return HistoryLost(
        f"history of {subject}: the requested time {why}; request a time {before}from "
        f"{_text(mark.wall)} on",
        oldestResumeToken=resume_tokens.token_from_time(mark.at),
        oldestTime=_text(mark.wall),
        **facts,
    )


def boundary_stages(time: Any) -> list[Document]:
    """Build stages over `revstream.horizons`: the last boundary by a time of the clock, as `at`."""
    gaps = {"$ifNull": ["$gaps", []]}
    starts = {"$map": {"input": gaps, "in": {"at": "$$this.from", "wall": "$$this.fromWall"}}}
    ends = {"$map": {"input": gaps, "in": {"at": "$$this.to", "wall": "$$this.toWall"}}}
    return [
        {"$project": {"mark": {"$concatArrays": [["$begun", "$known"], starts, ends]}}},
        {"$unwind": "$mark"},
        {"$match": {"mark.wall": {"$lte": time}}},
        {"$sort": {"mark.at": -1}},
        {"$limit": 1},
        {"$project": {"at": "$mark.at"}},
    ]


def _when(at: Timestamp) -> str:
    return f"{at.as_datetime():%F %T}Z"


def _text(wall: datetime) -> str:
    return f"{wall:%FT%T}.{wall.microsecond // 1000:03d}Z"
