"""Initial snapshot: the start of a new recorder, and the read of the documents that exist.

The start is the oldest entry of the oplog that is not a no-op: documents whose insert is still in
the oplog get their whole history. The others are read in chunks, each at its own cluster time, and
take that position in the stream: a chunk is recorded once every event up to its time is. Documents
that the archive already has are compared with it.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, GatewayError, Unavailable, Unsuitable
from revstream.streams.layouts.core.snapshot_scan import (
    SNAPSHOT_REFUSALS,
    SNAPSHOT_TOO_OLD,
    position_after_key,
    read_documents,
    scan_command,
)
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import grant_command
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk

__all__ = [
    "oldest_start",
    "read_chunk",
]

log = logging.getLogger(__name__)

_CAPPED_POSITION_LOST = 136


async def oldest_start(mongo: Mongo) -> str:
    """Return the token before the oldest change in the oplog; now, if the oplog may not be read.

    Raises:
        Unavailable: MongoDB cannot be reached; try again.
    """
    now = await mongo.operation_time()
    try:
        entry = await _oldest_entry(mongo)
    except Unavailable:
        raise
    except GatewayError as exc:
        facts = {"reason": exc.message}
        if isinstance(exc, Unsuitable):
            facts["grant_command"] = await grant_command(mongo, "read", database="local")
        log.warning("the oplog cannot be read: history begins now", extra=facts)
        entry = None
    return resume_tokens.time_prefix(now if entry is None else entry["ts"])


async def _oldest_entry(mongo: Mongo) -> RawBSONDocument | None:
    attempts = 5
    while True:
        try:
            return await mongo.oldest("oplog.rs", {"op": {"$ne": "n"}}, database="local")
        except DatabaseError as exc:
            attempts -= 1
            # A busy server deletes the oldest entries during the scan.
            if exc.number != _CAPPED_POSITION_LOST or not attempts:
                raise


async def read_chunk(
    mongo: Mongo,
    collection: str,
    baseline: Baseline,
    *,
    size: int,
    layout: SelfVersionedLayout | None = None,
    arrival: ChangeEvent | None = None,
) -> SnapshotChunk:
    """Read the next chunk: at most `size` documents, and not much more than 16 MB.

    Args:
        layout: Layout of a collection that keeps versions itself.
        arrival: Read as of this event, unless the server no longer can.
    """
    if arrival is not None:
        try:
            return await _chunk_at(
                mongo, collection, baseline, size, layout, arrival.wall, arrival.at, arrival
            )
        except DatabaseError as exc:
            if exc.number not in SNAPSHOT_REFUSALS:
                raise
    attempts = 20
    while True:
        wall, at = await mongo.clock()
        try:
            return await _chunk_at(mongo, collection, baseline, size, layout, wall, at, arrival)
        except DatabaseError as exc:
            attempts -= 1
            # The collection or an index was created since the clock was read. Layouts need more
            # than one read.
            if exc.number not in SNAPSHOT_REFUSALS or not attempts:
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
) -> SnapshotChunk | None:
    """Read as of the newest time, in one batch whose reply contains that time.

    For a server that keeps no past (minSnapshotHistoryWindowInSeconds: 0).

    Returns: None where the time had expired before it was read, because documents are written.
    """
    try:
        command = scan_command(collection, _place(baseline), size)
        found, complete, at = await mongo.read_now(command)
    except DatabaseError as exc:
        if exc.number != SNAPSHOT_TOO_OLD:
            raise
        return None
    end = complete and len(found) <= size
    return SnapshotChunk(at, wall, _after(baseline), found[:size], end, arrival=arrival)


async def _chunk_at(
    mongo: Mongo,
    collection: str,
    baseline: Baseline,
    size: int,
    layout: SelfVersionedLayout | None,
    wall: datetime,
    at: Timestamp,
    arrival: ChangeEvent | None,
) -> SnapshotChunk:
    after = _after(baseline)
    if layout is not None:
        versions, end = await layout.read(after, size=size, at=at)
        return SnapshotChunk(at, wall, after, (), end, versions, arrival)
    documents, end = await read_documents(mongo, collection, _place(baseline), size=size, at=at)
    return SnapshotChunk(at, wall, after, documents, end, arrival=arrival)


def _after(baseline: Baseline) -> tuple[Any] | None:
    return (baseline.after,) if baseline.started else None


def _place(baseline: Baseline) -> RawBSONDocument | None:
    if baseline.beyond is not None or not baseline.started:
        return baseline.beyond
    return position_after_key(baseline.after)
