"""Scan of a collection in `_id` order at a cluster time, in bounded batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.database import COLLATION, Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document
from revstream.streams.raw_bson.fields import document_from_elements, find_element, rename_element

__all__ = [
    "SNAPSHOT_REFUSALS",
    "SNAPSHOT_TOO_OLD",
    "find_unscanned",
    "position_after_key",
    "position_after_last",
    "read_documents",
    "scan_command",
]

SNAPSHOT_TOO_OLD = 239
_SNAPSHOT_UNAVAILABLE = 246
SNAPSHOT_REFUSALS = frozenset({SNAPSHOT_TOO_OLD, _SNAPSHOT_UNAVAILABLE})
"""Codes of refused reads at a cluster time.

The server keeps no history of that age, or the collection or an index was created since.
"""
_CHUNK_BYTES = 16 * 1024 * 1024


def position_after_key(key: Any) -> RawBSONDocument:
    """Return the scan position after an `_id`."""
    return RawBSONDocument(bson.encode({"_id": key}, codec_options=DECODED), RAW)


def position_after_last(documents: Sequence[RawBSONDocument]) -> RawBSONDocument:
    """Return the scan position after the last document: its `_id` with its bytes.

    Decoding may change the `_id`.
    """
    return RawBSONDocument(document_from_elements([_id_of(documents[-1])]), RAW)


def _id_of(document: RawBSONDocument) -> bytes:
    element = find_element(bytes(document.raw), b"_id")
    assert element is not None
    return element


async def read_documents(
    mongo: Mongo, collection: str, place: RawBSONDocument | None, *, size: int, at: Timestamp
) -> tuple[list[RawBSONDocument], bool]:
    """Return the next documents in `_id` order, ids of all types together, and whether they are the
    last.

    They are at most `size` documents, and not much more than 16 MB.
    """
    command = scan_command(collection, place, size)
    found, complete = await mongo.read_at(command, at, most_bytes=_CHUNK_BYTES)
    return found[:size], complete and len(found) <= size


def scan_command(collection: str, place: RawBSONDocument | None, size: int) -> Document:
    command: Document = {"find": collection, "hint": {"_id": 1}, "sort": {"_id": 1}}
    command |= {"limit": size + 1, "batchSize": size + 1}
    if place is not None:
        # `min` bounds the index itself (so it uses the collection's own collation), across types,
        # where $gt compares within one type. The bound is inclusive.
        command["min"] = place
        value = RawBSONDocument(
            document_from_elements([rename_element(_id_of(place), "$literal")]), RAW
        )
        command["filter"] = {"$expr": {"$ne": ["$_id", value]}}
    return command


async def find_unscanned(
    mongo: Mongo, collection: str, after: Any, keys: Sequence[Any]
) -> list[Any]:
    """Return those of these `_id`s that come after `after` in the order of a scan."""
    listed = await mongo.command({"listCollections": 1, "filter": {"name": collection}})
    options = [each.get("options", {}) for each in listed["cursor"]["firstBatch"]]
    reply = await mongo.command(
        {
            "aggregate": 1,
            "pipeline": [
                {"$documents": {"$literal": [{"key": each} for each in keys]}},
                {"$match": {"$expr": {"$gt": ["$key", {"$literal": after}]}}},
            ],
            # Chunks are read in the order of the collection's own `_id` index.
            "collation": options[0].get("collation", COLLATION) if options else COLLATION,
            "cursor": {"batchSize": len(keys) + 1},
        }
    )
    return [each["key"] for each in reply["cursor"]["firstBatch"]]
