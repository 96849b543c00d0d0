"""Persistent records of documents whose delivery failed while the receiver accepted others.

One record per document in `revstream.deliveries`, whatever number of its versions wait: those are
in the archive, from `v` on. `{sink, collection, doc, v, token, since, attempts, tries, triedAt,
nextAt, reason, parked, drop}`; `token` is that of the first waiting version, where known.

Guarantees: writes of a process that lost its lease are refused. Commands only store a request
(`retry`, `drop`), which the holder of the sink's lease executes: no other process adds or removes a
record.
Source: docs/decisions/0021-sinks.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId

from revstream.streams.changefeed.event import identity
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write

__all__ = [
    "COLLECTION",
    "DropRequest",
    "PendingDeliveries",
    "PendingDelivery",
    "find_deliveries",
    "request_drop",
    "request_retry",
]

COLLECTION = "revstream.deliveries"
_DROPS = "revstream.drops"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRequest:
    """An operator's request to skip the version with this token: author, reason and time."""

    token: str | None
    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDelivery:
    """A document whose versions from `number` on wait.

    Attributes:
        attempts: Counted attempts (see `streams.listeners.webhooks.sink`).
        tries: All attempts of the first waiting version.
        reason: Reason of the last failure, with the receiver's text: for `revstream deliveries`
            only.
        parked: When retries stopped, until an operator requests one.
    """

    sink: str
    collection: str
    document: Any
    number: int
    token: str | None
    since: datetime
    next_at: datetime
    attempts: int = 0
    tries: int = 0
    tried_at: datetime | None = None
    reason: str | None = None
    parked: datetime | None = None
    drop: DropRequest | None = None
    id: ObjectId | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PendingDelivery:
        drop = record.get("drop")
        return cls(
            id=record["_id"],
            sink=record["sink"],
            collection=record["collection"],
            document=record["doc"],
            number=record["v"],
            token=record["token"],
            since=record["since"],
            next_at=record["nextAt"],
            attempts=record["attempts"],
            tries=record["tries"],
            tried_at=record["triedAt"],
            reason=record["reason"],
            parked=record["parked"],
            drop=None if drop is None else DropRequest(**drop),
        )

    @property
    def state(self) -> Document:
        """Return the stored fields that change from attempt to attempt."""
        return {
            "v": self.number,
            "token": self.token,
            "attempts": self.attempts,
            "tries": self.tries,
            "triedAt": self.tried_at,
            "nextAt": self.next_at,
            "reason": self.reason,
            "parked": self.parked,
        }


class PendingDeliveries:
    """Pending deliveries of one sink. Writes raise LeaseLost if another process has taken over."""

    def __init__(self, mongo: Mongo, checkpoints: Checkpoints, sink: str) -> None:
        self.sink = sink
        self._mongo = mongo
        self._checkpoints = checkpoints

    async def prepare(self) -> None:
        await self._mongo.create_index(COLLECTION, [("sink", 1), ("doc", 1)], unique=True)
        await self._mongo.create_index(COLLECTION, [("sink", 1), ("parked", 1), ("nextAt", 1)])

    async def position(self) -> str:
        """Return the sink's position: no version after it is set aside."""
        stored = await self._checkpoints.load(self.sink)
        return "" if stored is None else stored.token

    async def count(self) -> tuple[int, int]:
        """Return the numbers of waiting and of parked documents."""
        waiting = await self._mongo.count(COLLECTION, {"sink": self.sink})
        parked = {"sink": self.sink, "parked": {"$ne": None}}
        return waiting, await self._mongo.count(COLLECTION, parked) if waiting else 0

    async def find_waiting(self, documents: Sequence[Any]) -> set[Any]:
        """Return which of these documents wait, by `identity`."""
        found = await self._mongo.find(
            COLLECTION,
            {"sink": self.sink, "doc": {"$in": list(documents)}},
            FindOptions(projection={"doc": 1}),
        )
        return {identity(each["doc"]) for each in found}

    async def due(
        self, now: datetime, *, limit: int, besides: Sequence[ObjectId | None]
    ) -> list[PendingDelivery]:
        """Return due deliveries, the longest overdue first."""
        found = await self._mongo.find(
            COLLECTION,
            {
                "sink": self.sink,
                "_id": {"$nin": list(besides)},
                "$or": [
                    {"parked": None, "nextAt": {"$lte": now}},
                    {"drop": {"$exists": True}},
                ],
            },
            FindOptions(sort=[("nextAt", 1)], limit=limit),
        )
        return [PendingDelivery.from_record(each) for each in found]

    async def put(
        self, waiting: Sequence[PendingDelivery], fencing_token: int
    ) -> list[PendingDelivery]:
        """Store these deliveries, all or none. Returns them with their ids."""
        rows = [
            {
                "_id": ObjectId(),
                "sink": each.sink,
                "collection": each.collection,
                "doc": each.document,
                "since": each.since,
                **each.state,
            }
            for each in waiting
        ]

        async def insert(writing: WriteSession) -> None:
            for row in rows:
                await writing.insert(COLLECTION, row)

        await self._guarded(insert, fencing_token)
        return [PendingDelivery.from_record(each) for each in rows]

    async def save(self, waiting: PendingDelivery, fencing_token: int) -> None:
        async def change(writing: WriteSession) -> None:
            await writing.change(COLLECTION, {"_id": waiting.id}, {"$set": waiting.state})

        await self._guarded(change, fencing_token)

    async def forget_drop(self, waiting: PendingDelivery, fencing_token: int) -> None:
        """Remove a drop request for a version that no longer waits."""

        async def change(writing: WriteSession) -> None:
            await writing.change(COLLECTION, {"_id": waiting.id}, {"$unset": {"drop": ""}})

        await self._guarded(change, fencing_token)

    async def drop(
        self, waiting: PendingDelivery, after: PendingDelivery, fencing_token: int
    ) -> None:
        """Skip the first waiting version as `waiting.drop` requests, and store a record of that.

        The record has author, reason and time, and no content.
        """
        drop = waiting.drop
        assert drop is not None
        line = {
            "sink": waiting.sink,
            "collection": waiting.collection,
            "doc": waiting.document,
            "v": waiting.number,
            "by": drop.by,
            "why": drop.why,
            "at": drop.at,
        }

        async def change(writing: WriteSession) -> None:
            await writing.insert(_DROPS, line)
            done = {"$set": after.state, "$unset": {"drop": ""}}
            await writing.change(COLLECTION, {"_id": waiting.id}, done)

        await self._guarded(change, fencing_token)

    async def remove(self, waiting: PendingDelivery, fencing_token: int) -> None:
        """Remove the record of a document without waiting versions."""

        async def remove(writing: WriteSession) -> None:
            await writing.remove(COLLECTION, {"_id": waiting.id})

        await self._guarded(remove, fencing_token)

    async def _guarded(
        self, work: Callable[[WriteSession], Awaitable[None]], fencing_token: int
    ) -> None:
        async def guarded(writing: WriteSession) -> None:
            await self._checkpoints.guard(writing, self.sink, fencing_token=fencing_token)
            await work(writing)

        await write(self._mongo, guarded, transaction=True)


async def find_deliveries(
    mongo: Mongo, query: Mapping[str, Any] | None = None
) -> list[PendingDelivery]:
    """Return the matching deliveries of all sinks, the longest waiting first."""
    found = await mongo.find(COLLECTION, query or {}, FindOptions(sort=[("since", 1), ("_id", 1)]))
    return [PendingDelivery.from_record(each) for each in found]


async def request_retry(mongo: Mongo, query: Mapping[str, Any], now: datetime) -> int:
    """Request immediate new attempts of the matching deliveries, parked ones too. Returns how
    many.
    """
    anew = {"parked": None, "attempts": 0, "tries": 0, "triedAt": None, "nextAt": now}
    return await mongo.update_all(COLLECTION, query, {"$set": anew})


async def request_drop(mongo: Mongo, waiting: PendingDelivery, drop: DropRequest) -> bool:
    """Request that the first waiting version is skipped. Returns whether it still is the first."""
    mine = {"_id": waiting.id, "token": drop.token}
    mark = {"$set": {"drop": {"token": drop.token, "by": drop.by, "why": drop.why, "at": drop.at}}}
    return await mongo.update_each(COLLECTION, [(mine, mark)]) == 1
