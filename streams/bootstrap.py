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
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from streams import tokens
from streams.checkpoints import Baseline
from streams.documents import DECODED, Document
from streams.errors import DatabaseError, GatewayError, Unavailable, Unsuitable
from streams.mongo import Mongo
from streams.server import remedy

__all__ = ["Chunk", "oldest_start", "read_chunk", "read_documents"]

log = logging.getLogger(__name__)

_SNAPSHOT_UNAVAILABLE = 246
_CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents in `_id` order as they were at cluster time `at`; `end` where no others follow.

    `wall`: the database's clock at that time, since a cluster time knows only seconds.
    `after`: a tuple of the `_id` behind which they stand; None for the first chunk.
    """

    at: Timestamp
    wall: datetime
    after: tuple[Any] | None
    documents: Sequence[RawBSONDocument]
    end: bool


async def oldest_start(mongo: Mongo) -> str:
    """The token before the oldest change that the oplog still holds; now, where the oplog may not
    be read.

    Raises:
        Unavailable: nobody knows yet; to be asked again.
    """
    now = await mongo.operation_time()
    try:
        entry = await mongo.oldest("oplog.rs", {"op": {"$ne": "n"}}, database="local")
    except Unavailable:
        raise
    except GatewayError as exc:
        facts = {"reason": exc.message}
        if isinstance(exc, Unsuitable):
            facts["remedy"] = await remedy(mongo, "read", database="local")
        log.warning("the oplog cannot be read: history begins now", extra=facts)
        entry = None
    return tokens.time_prefix(now if entry is None else entry["ts"])


async def read_chunk(mongo: Mongo, collection: str, baseline: Baseline, *, size: int) -> Chunk:
    """The chunk after the last one: at most `size` documents, and not much more than 16 MB."""
    after = (baseline.after,) if baseline.started else None
    attempts = 5
    while True:
        wall, at = await mongo.clock()
        try:
            documents, end = await read_documents(mongo, collection, after, size=size, at=at)
        except DatabaseError as exc:
            attempts -= 1
            # Somebody has created the collection, or an index, since the clock was read.
            if exc.number != _SNAPSHOT_UNAVAILABLE or not attempts:
                raise
        else:
            return Chunk(at, wall, after, documents, end)


async def read_documents(
    mongo: Mongo, collection: str, after: tuple[Any] | None, *, size: int, at: Timestamp
) -> tuple[list[RawBSONDocument], bool]:
    """In `_id` order, ids of all types in one; and whether no others follow."""
    command: Document = {"find": collection, "hint": {"_id": 1}, "sort": {"_id": 1}}
    command |= {"limit": size + 1, "batchSize": size + 1}
    if after is not None:
        # `min` bounds the index itself (so in the collection's own collation), across types, where
        # $gt compares within one type; it includes the bound.
        command["min"] = {"_id": after[0]}
    found, complete = await mongo.read_at(command, at, most_bytes=_CHUNK_BYTES)
    # By their bytes: Python takes 1 for True, and no raw document for a decoded one.
    if after is not None and found and _encoded(found[0]["_id"]) == _encoded(after[0]):
        found = found[1:]
    return found[:size], complete and len(found) < size


def _encoded(value: Any) -> bytes:
    return bson.encode({"": value}, codec_options=DECODED)
