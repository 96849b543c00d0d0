"""Where a recorder begins that has never run, and the reading of what was there before.

The start is the oldest entry of the oplog that is not a no-op: documents whose insert is still in
the oplog get their whole history. The others are read from the present, in chunks, each at its own
cluster time, and placed in the stream at that time: a chunk is recorded once every event up to its
time is. Documents that the archive knows by then are compared with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from streams import tokens
from streams.checkpoints import Baseline
from streams.errors import DatabaseError, GatewayError, Unavailable, Unsuitable
from streams.events import ChangeEvent, identity, is_exact
from streams.mongo import COLLATION, Mongo
from streams.server import remedy
from streams.snapshot_scan import (
    PAST_UNKNOWN,
    SNAPSHOT_TOO_OLD,
    place_behind,
    read_documents,
    scan_command,
)

if TYPE_CHECKING:
    from streams.layouts.keeping import Keeping
    from streams.layouts.kept import Kept

__all__ = [
    "Chunk",
    "behind",
    "holds_everything",
    "oldest_start",
    "read_chunk",
]

log = logging.getLogger(__name__)

_CAPPED_POSITION_LOST = 136


@dataclass(frozen=True)
class Chunk:
    """Documents in `_id` order as they were at cluster time `at`; `end` where no others follow.

    `wall`: the database's clock at that time, since a cluster time knows only seconds.
    `after`: a tuple of the last exact `_id` before them; None where there is none.
    `versions`: of a collection that keeps them itself, all of theirs, instead of the documents.
    `arrival`: the event by which the whole collection came, at which they are recorded.
    """

    at: Timestamp
    wall: datetime
    after: tuple[Any] | None
    documents: Sequence[RawBSONDocument]
    end: bool
    versions: Sequence[Kept] | None = None
    arrival: ChangeEvent | None = None

    @property
    def place(self) -> str:
        """Where its records stand in the stream."""
        return tokens.moment(self.at) if self.arrival is None else self.arrival.token

    @property
    def placed_at(self) -> Timestamp:
        """When they were, as far as their records say."""
        return self.at if self.arrival is None else self.arrival.at

    @property
    def placed_wall(self) -> datetime:
        """The same by the clock."""
        return self.wall if self.arrival is None else self.arrival.wall

    @property
    def is_exact(self) -> bool:
        """Whether they are as the arrival brought them."""
        return self.arrival is not None and self.at == self.arrival.at

    @cached_property
    def keys(self) -> list[Any]:
        """Of the documents whose `_id`s are exact, in their order."""
        if self.versions is None:
            return [each["_id"] for each in self.documents if is_exact(each)]
        return list({identity(each.key): each.key for each in self.versions}.values())


async def holds_everything(mongo: Mongo) -> bool:
    """Return whether the oplog reaches back to the creation of the replica set, before which there
    was nothing."""
    try:
        entry = await mongo.oldest("oplog.rs", {}, database="local")
    except Unavailable:
        raise
    except GatewayError:
        return False
    return entry is not None and "initiating set" in str(entry.get("o", {}).get("msg", ""))


async def oldest_start(mongo: Mongo) -> str:
    """The token before the oldest change that the oplog still holds; now, where the oplog may not
    be read.

    Raises:
        Unavailable: nobody knows yet; to be asked again.
    """
    now = await mongo.operation_time()
    try:
        entry = await _oldest_entry(mongo)
    except Unavailable:
        raise
    except GatewayError as exc:
        facts = {"reason": exc.message}
        if isinstance(exc, Unsuitable):
            facts["remedy"] = await remedy(mongo, "read", database="local")
        log.warning("the oplog cannot be read: history begins now", extra=facts)
        entry = None
    return tokens.time_prefix(now if entry is None else entry["ts"])


async def _oldest_entry(mongo: Mongo) -> RawBSONDocument | None:
    attempts = 5
    while True:
        try:
            return await mongo.oldest("oplog.rs", {"op": {"$ne": "n"}}, database="local")
        except DatabaseError as exc:
            attempts -= 1
            # A busy server lets the oldest entries go while they are looked through.
            if exc.number != _CAPPED_POSITION_LOST or not attempts:
                raise


async def read_chunk(
    mongo: Mongo,
    collection: str,
    baseline: Baseline,
    *,
    size: int,
    layout: Keeping | None = None,
    arrival: ChangeEvent | None = None,
) -> Chunk:
    """The chunk after the last one: at most `size` documents, and not much more than 16 MB.

    Args:
        layout: of a collection that keeps versions itself.
        arrival: read as of this event, unless the server no longer can.
    """
    if arrival is not None:
        try:
            return await _chunk_at(
                mongo, collection, baseline, size, layout, arrival.wall, arrival.at, arrival
            )
        except DatabaseError as exc:
            if exc.number not in PAST_UNKNOWN:
                raise
    attempts = 20
    while True:
        wall, at = await mongo.clock()
        try:
            return await _chunk_at(mongo, collection, baseline, size, layout, wall, at, arrival)
        except DatabaseError as exc:
            attempts -= 1
            # Somebody has created the collection, or an index, since the clock was read. Layouts
            # need more than one read.
            if exc.number not in PAST_UNKNOWN or not attempts:
                raise
            if exc.number == SNAPSHOT_TOO_OLD and layout is None:
                chunk = await _last_chunk(mongo, collection, baseline, size, wall, arrival)
                if chunk is not None:
                    return chunk


async def _last_chunk(
    mongo: Mongo,
    collection: str,
    baseline: Baseline,
    size: int,
    wall: datetime,
    arrival: ChangeEvent | None,
) -> Chunk | None:
    """Read as of the last moment, in one batch, which says what moment that was: of a server that
    keeps no past (minSnapshotHistoryWindowInSeconds: 0).

    Returns: None where that moment, too, was forgotten before it was read, since documents are
    written.
    """
    try:
        command = scan_command(collection, _place(baseline), size)
        found, complete, at = await mongo.read_now(command)
    except DatabaseError as exc:
        if exc.number != SNAPSHOT_TOO_OLD:
            raise
        return None
    end = complete and len(found) <= size
    return Chunk(at, wall, _after(baseline), found[:size], end, arrival=arrival)


async def _chunk_at(
    mongo: Mongo,
    collection: str,
    baseline: Baseline,
    size: int,
    layout: Keeping | None,
    wall: datetime,
    at: Timestamp,
    arrival: ChangeEvent | None,
) -> Chunk:
    after = _after(baseline)
    if layout is not None:
        versions, end = await layout.read(after, size=size, at=at)
        return Chunk(at, wall, after, (), end, versions, arrival)
    documents, end = await read_documents(mongo, collection, _place(baseline), size=size, at=at)
    return Chunk(at, wall, after, documents, end, arrival=arrival)


def _after(baseline: Baseline) -> tuple[Any] | None:
    return (baseline.after,) if baseline.started else None


def _place(baseline: Baseline) -> RawBSONDocument | None:
    if baseline.beyond is not None or not baseline.started:
        return baseline.beyond
    return place_behind(baseline.after)


async def behind(mongo: Mongo, collection: str, after: Any, keys: Sequence[Any]) -> list[Any]:
    """Of these `_id`s, those that a reading has not come to that has read up to `after`."""
    listed = await mongo.command({"listCollections": 1, "filter": {"name": collection}})
    options = [each.get("options", {}) for each in listed["cursor"]["firstBatch"]]
    reply = await mongo.command(
        {
            "aggregate": 1,
            "pipeline": [
                {"$documents": {"$literal": [{"key": each} for each in keys]}},
                {"$match": {"$expr": {"$gt": ["$key", {"$literal": after}]}}},
            ],
            # The order in which chunks are read is that of the collection's own index.
            "collation": options[0].get("collation", COLLATION) if options else COLLATION,
            "cursor": {"batchSize": len(keys) + 1},
        }
    )
    return [each["key"] for each in reply["cursor"]["firstBatch"]]
