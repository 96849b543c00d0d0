"""Chunks of an initial snapshot: every document once, in bounded pieces."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MinKey, ObjectId, Timestamp
from pymongo import MongoClient

from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk

Client = MongoClient[dict[str, Any]]

# In MongoDB's order of types, and in order within a type.
IDS_IN_ORDER: list[Any] = [
    MinKey(),
    None,
    float("nan"),
    -1.5,
    0,
    Int64(1),
    Decimal128("1.5"),
    2**40,
    "",
    "$name",
    "a",
    {},
    {"a": 1},
    {"a": 1, "b": 2},
    b"bytes",
    ObjectId("0" * 24),
    False,
    True,
    datetime(1970, 1, 2, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=UTC),
    Timestamp(1, 1),
]


def fill(client: Client, mongo: Mongo, documents: list[dict[str, Any]]) -> None:
    client.get_database(mongo.name, codec_options=DECODED).things.insert_many(documents)


async def chunk_after(mongo: Mongo, *after: Any, size: int) -> list[Any]:
    """Return the ids of the next chunk: after one id, or from the beginning."""
    baseline = Baseline(started=True, after=after[0]) if after else Baseline()
    chunk = await read_chunk(mongo, "things", baseline, size=size)
    assert chunk.after == (after or None)
    assert len(chunk.documents) <= size
    assert chunk.end or chunk.documents
    return [each["_id"] for each in chunk.documents]


async def whole(mongo: Mongo, size: int) -> list[list[Any]]:
    """Return the ids of all chunks."""
    found: list[list[Any]] = []
    baseline = Baseline()
    while True:
        chunk = await read_chunk(mongo, "things", baseline, size=size)
        ids = [each["_id"] for each in chunk.documents]
        assert len(ids) <= size
        found.append(ids)
        if chunk.end:
            return found
        baseline = Baseline(started=True, after=ids[-1])


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_chunks_have_every_id_of_any_type_once(
    mongo: Mongo, client: Client, size: int
) -> None:
    """They follow the index order through all types, where `$gt` would stay within one."""
    fill(client, mongo, [{"_id": key} for key in reversed(IDS_IN_ORDER)])
    found = [key for chunk in await whole(mongo, size) for key in chunk]
    assert [bson.encode({"": each}) for each in found] == [
        bson.encode({"": each}) for each in IDS_IN_ORDER
    ]


async def test_a_chunk_continues_after_an_id_that_was_stored_or_is_deleted(
    mongo: Mongo, client: Client
) -> None:
    """The last id may be from a checkpoint, decoded, and its document may be deleted by now."""
    fill(client, mongo, [{"_id": {"a": 1}}, {"_id": {"a": 2}}, {"_id": True}])

    async def after(key: Any) -> list[Any]:
        found = await chunk_after(mongo, key, size=1)
        return [dict(each) if isinstance(each, Mapping) else each for each in found]

    assert await after({"a": 1}) == [{"a": 2}]
    assert await after({"a": 1, "b": 0}) == [{"a": 2}]
    # 1 is deleted; True, which is equal to it in Python, must not be skipped.
    assert await after(1) == [{"a": 1}]
    assert await after(False) == [True]
    assert await after(True) == []


async def test_a_chunk_does_not_skip_true_after_one(mongo: Mongo, client: Client) -> None:
    """Python calls them equal, MongoDB does not."""
    fill(client, mongo, [{"_id": True}])
    assert await chunk_after(mongo, 1, size=5) == [True]


async def test_chunks_follow_the_id_index_of_a_collection_with_a_collation(
    mongo: Mongo, client: Client
) -> None:
    """The index and its bounds have the collation's order."""
    client[mongo.name].create_collection("things", collation={"locale": "en", "strength": 1})
    fill(client, mongo, [{"_id": key} for key in ("a", "B", "c", 1, True)])
    assert await whole(mongo, 2) == [[1, "a"], ["B", "c"], [True]]


async def test_a_chunk_of_large_documents_is_cut_short(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by bytes too, and every chunk makes progress."""
    monkeypatch.setattr("revstream.streams.layouts.core.snapshot_scan._CHUNK_BYTES", 10_000)
    for key, size in enumerate((100, 4000, 7000, 20_000, 30_000, 10, 10, 50_000)):
        fill(client, mongo, [{"_id": key, "text": "x" * size}])
    chunks = await whole(mongo, 100)
    assert [key for chunk in chunks for key in chunk] == list(range(8))
    assert len(chunks) >= 4


async def test_a_chunk_is_read_at_one_cluster_time(mongo: Mongo, client: Client) -> None:
    """It has the database's wall clock of that time, and no later writes."""
    fill(client, mongo, [{"_id": 1}])
    before = await mongo.operation_time()
    chunk = await read_chunk(mongo, "things", Baseline(), size=5)
    assert before <= chunk.at <= await mongo.operation_time()
    assert abs(chunk.wall.timestamp() - chunk.at.time) <= 2
    assert chunk.end
    empty = await read_chunk(mongo, "nowhere", Baseline(), size=5)
    assert (empty.documents, empty.end) == ([], True)


async def test_a_snapshot_ends_though_documents_are_added_at_its_end(
    mongo: Mongo, client: Client
) -> None:
    """A chunk that is not full is the last: later documents have insert events."""
    fill(client, mongo, [{"_id": n} for n in range(4)])
    baseline = Baseline()
    for n in range(10, 20):
        chunk = await read_chunk(mongo, "things", baseline, size=3)
        if chunk.end:
            break
        fill(client, mongo, [{"_id": n}])
        baseline = Baseline(started=True, after=chunk.documents[-1]["_id"])
    assert chunk.end
    assert n < 13
