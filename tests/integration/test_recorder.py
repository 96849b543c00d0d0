"""Versions of the recorder: one for every write, in order, numbered and attributed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import EventBatch
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.versioning.version import LastVersion
from tests.support.eventually import eventually
from tests.support.streams import Recording, batch, event, outline, token_at, turn, unless_ended

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


@pytest.fixture
async def recording(mongo: Mongo) -> Recording:
    """Return a recorder of `things` with post-images; history begins with the test."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    made = Recording(mongo)
    await made.begin()
    return made


async def test_every_write_becomes_a_version_in_order(recording: Recording, client: Client) -> None:
    """Inserts, updates, replacements and deletions have the document after the write."""
    things = client[recording.mongo.name].things
    things.insert_one({"_id": 1, "a": 1, "big": "x" * 6000})
    things.insert_one({"_id": 2})
    things.update_one({"_id": 1}, {"$set": {"a": 2, "b.c": 3}})
    things.replace_one({"_id": 1}, {"a": 2, "d": 4})
    things.delete_one({"_id": 1})
    records = await recording.record()
    assert outline(records, 1) == [
        ("INSERT", 1, False),
        ("UPDATE", 2, False),
        ("REPLACE", 3, False),
        ("DELETE", 4, False),
    ]
    assert outline(records, 2) == [("INSERT", 1, False)]
    assert [each["doc"] for each in records] == [1, 2, 1, 1, 1]
    assert [each["full"] for each in records if each["doc"] == 1] == [
        {"_id": 1, "a": 1, "big": "x" * 6000},
        {"_id": 1, "a": 2, "big": "x" * 6000, "b": {"c": 3}},
        {"_id": 1, "a": 2, "d": 4},
        None,
    ]
    assert [each["changed"] for each in records if each["doc"] == 1] == [
        ["a", "big"],
        ["a", "b"],
        ["d", "big", "b"],
        [],
    ]
    assert all(each["at"] > other["at"] for other, each in itertools.pairwise(records))
    assert all(isinstance(each["wall"], datetime) for each in records)


@one_driver
async def test_numbers_follow_the_version_field_and_continue_without_it(
    recording: Recording, client: Client
) -> None:
    """Numbers may be skipped and never decrease; a deletion has one, and a reinsertion
    continues.
    """
    things = client[recording.mongo.name].things
    things.insert_one({"_id": 1, "version": 1})
    things.update_one({"_id": 1}, {"$inc": {"version": 1}})
    things.update_one({"_id": 1}, {"$set": {"a": 1}})  # does not count: 3
    things.update_one({"_id": 1}, {"$inc": {"version": 1}})  # says 3, and 3 is taken: 4
    things.update_one({"_id": 1}, {"$set": {"version": 10}})
    things.update_one({"_id": 1}, {"$set": {"version": 2}})  # goes back: 11
    things.update_one({"_id": 1}, {"$set": {"version": "twelve"}})
    things.delete_one({"_id": 1})
    things.insert_one({"_id": 1, "version": 1})
    things.insert_one({"_id": 2, "version": 1.0})
    things.update_one({"_id": 2}, {"$inc": {"version": 6.0}})
    things.insert_one({"_id": 3, "version": Int64(2**40)})
    records = await recording.record()
    assert [n for _, n, _ in outline(records, 1)] == [1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert [n for _, n, _ in outline(records, 2)] == [1, 7]
    assert [n for _, n, _ in outline(records, 3)] == [1]
    assert not any(gap for _, _, gap in outline(records))


@one_driver
async def test_versions_have_the_attribution_of_their_own_write(
    recording: Recording, client: Client
) -> None:
    """Later writes that only keep `_change` have none, and `_change` is not content."""
    things = client[recording.mongo.name].things
    alice = {"id": ObjectId(), "by": "alice", "why": "launch"}
    bob = {"id": ObjectId(), "by": "bob", "restoredFrom": 1}
    things.insert_one({"_id": 1, "a": 1, "_change": alice})
    things.update_one({"_id": 1}, {"$set": {"a": 2}})
    things.replace_one({"_id": 1}, {"a": 3, "_change": alice})
    things.update_one({"_id": 1}, {"$set": {"a": 4, "_change": bob}})
    things.update_one({"_id": 1}, [{"$set": {"a": 5, "_change": {"$literal": {"by": "carol"}}}}])
    things.update_one({"_id": 1}, {"$unset": {"_change": 1}})
    things.delete_one({"_id": 1})
    records = await recording.record()
    assert [each["by"] for each in records] == ["alice", None, None, "bob", "carol", None, None]
    assert [each["why"] for each in records] == ["launch", *[None] * 6]
    assert [each.get("restoredFrom") for each in records] == [None] * 3 + [1] + [None] * 3
    assert [each["full"] and each["full"]["a"] for each in records] == [1, 2, 3, 4, 5, 5, None]
    assert all("_change" not in (each["full"] or {}) for each in records)
    assert [each["changed"] for each in records] == [["a"]] * 5 + [[], []]


@one_driver
async def test_a_clone_does_not_have_the_originals_author(
    recording: Recording, client: Client
) -> None:
    """Restored documents, stale copies written back, and clones in other collections have none
    either.

    It does not matter whether `_change` contains the document's id.
    """
    things = client[recording.mongo.name].things
    bram = {"id": "c1", "by": "bram", "why": "supplier raised prices"}
    bound = {"id": "c2", "by": "bram", "in": "things", "doc": 2}
    things.insert_many([{"_id": 1, "version": 53}, {"_id": 2, "version": 1}])
    things.update_one({"_id": 1}, {"$set": {"a": 1, "_change": bram}, "$inc": {"version": 1}})
    things.update_one({"_id": 2}, {"$set": {"a": 1, "_change": bound}})
    kept = list(things.find().sort("_id", 1))
    # Clones, one of them in an existing document.
    things.insert_many([each | {"_id": f"clone {each['_id']}"} for each in kept])
    things.insert_one({"_id": 3, "_change": {"id": "c3", "by": "cleo"}})
    things.replace_one({"_id": 3}, kept[0] | {"_id": 3})
    # Written back after another write; and restored.
    things.update_one({"_id": 1}, {"$set": {"a": 2, "_change": {"id": "c4", "by": "dora"}}})
    things.replace_one({"_id": 1}, kept[0])
    things.update_one({"_id": 1}, {"$set": {"a": 3, "_change": bram}})
    things.delete_many({"_id": {"$in": [1, 2]}})
    things.insert_many(kept)
    # Of another collection; without an id.
    elsewhere = {"id": "c5", "by": "bram", "in": "others", "doc": "other"}
    things.insert_one({"_id": "other", "_change": elsewhere})
    things.insert_one({"_id": "nameless", "_change": {"by": "bram"}})
    await recording.record()
    # As in another process, from the archive alone.
    things.insert_one({"_id": "later", **{k: v for k, v in kept[1].items() if k != "_id"}})
    things.replace_one({"_id": 3}, kept[0] | {"_id": 3, "a": 5})
    records = await recording.record()
    said = [(each["doc"], each["op"], each["by"]) for each in records if each["by"] is not None]
    assert said == [
        (1, "UPDATE", "bram"),
        (2, "UPDATE", "bram"),
        (3, "INSERT", "cleo"),
        (1, "UPDATE", "dora"),
    ]
    assert [n for _, n, _ in outline(records, "clone 1")] == [1]
    assert [n for _, n, _ in outline(records, 2)] == [1, 2, 3, 4]


@one_driver
async def test_the_numbers_of_a_clone_begin_with_its_insert(
    recording: Recording, client: Client
) -> None:
    """Writers that increment the version field continue with 2, and others, too."""
    things = client[recording.mongo.name].things
    things.insert_one({"_id": "clone", "version": 54})
    things.update_one({"_id": "clone"}, {"$inc": {"version": 1}})
    things.update_one({"_id": "clone"}, {"$set": {"a": 1}})
    things.update_one({"_id": "clone"}, {"$inc": {"version": 2}})
    records = await recording.record()
    assert [n for _, n, _ in outline(records, "clone")] == [1, 2, 3, 4]
    assert [each.get("offset") for each in records] == [53, 53, 53, 53]


@one_driver
async def test_the_reserved_author_is_accepted_from_the_copier_only(
    recording: Recording, client: Client
) -> None:
    """The reserved name is left out unless the Copier has signed it."""
    things = client[recording.mongo.name].things
    things.insert_one({"_id": 1, "_change": {"id": "c1", "by": "revstream:copier", "why": "x"}})
    forged = {"id": "c2", "by": "revstream:copier", "mark": 32 * "0", "in": "things", "doc": 1}
    things.update_one({"_id": 1}, {"$set": {"a": 1, "_change": forged}})
    things.update_one({"_id": 1}, {"$set": {"_change": {"id": "c3", "by": "revstream:x"}}})
    records = await recording.record()
    assert [each["by"] for each in records] == [None, None, None]
    assert records[0]["why"] == "x"


@one_driver
async def test_versions_of_one_transaction_are_in_the_order_of_its_writes(
    recording: Recording, client: Client
) -> None:
    """Several versions of one document have one cluster time; the last is the final state."""
    database = client[recording.mongo.name]
    with client.start_session() as session, session.start_transaction():
        database.things.insert_one({"_id": 1, "n": 0}, session=session)
        for n in (1, 2):
            database.things.update_one({"_id": 1}, {"$set": {"n": n}}, session=session)
        database.things.insert_one({"_id": 2}, session=session)
        database.things.delete_one({"_id": 2}, session=session)
    records = await recording.record()
    assert len({each["at"] for each in records}) == 1
    assert outline(records, 1) == [("INSERT", 1, False), ("UPDATE", 2, False), ("UPDATE", 3, False)]
    assert outline(records, 2) == [("INSERT", 1, False), ("DELETE", 2, False)]
    assert records[2]["full"] == {"_id": 1, "n": 2}


UNUSUAL_IDS = [
    {"b": 1, "a": {"x": [1]}},
    {"a": {"x": [1]}, "b": 1},
    {},
    1,
    True,
    False,
    0,
    1.5,
    float("nan"),
    float("inf"),
    Decimal128("2.50"),
    Int64(2**40),
    "$name",
    "$$ROOT",
    "",
    "a.b",
    None,
    b"bytes",
    ObjectId("0" * 24),
    datetime(2024, 1, 1, tzinfo=UTC),
    DatetimeMS(2**60),
    Timestamp(5, 6),
    MinKey(),
    MaxKey(),
    Code("function() {}"),
]


async def test_documents_with_unusual_ids_have_their_own_histories(
    recording: Recording, client: Client
) -> None:
    """Ids of any type are distinguished as MongoDB does, also after restarts."""
    things = client.get_database(recording.mongo.name, codec_options=DECODED).things
    for key in UNUSUAL_IDS:
        things.insert_one({"_id": key, "n": 1})
    first = await recording.record()
    assert [each["v"] for each in first] == [1] * len(UNUSUAL_IDS)
    for document in list(things.find({})):
        assert things.update_one({"_id": document["_id"]}, {"$set": {"n": 2}}).modified_count == 1
    again = Recording(recording.mongo)
    records = await again.record(fencing_token=2)
    for n, key in enumerate(UNUSUAL_IDS):
        expected = [("INSERT", 1, False), ("UPDATE", 2, False)]
        if key is not None:
            assert outline(records, key) == expected, key
        assert repr(records[n]["doc"]) == repr(things.find_one({"_id": records[n]["doc"]})["_id"])
    for key in ({"b": 1, "a": {"x": [1]}}, float("nan"), Decimal128("2.50"), True):
        things.delete_one({"_id": key})
        things.insert_one({"_id": key})
    records = await Recording(recording.mongo).record(fencing_token=3)
    for key in (float("nan"), Decimal128("2.50"), True):
        assert [n for _, n, _ in outline(records, key)] == [1, 2, 3, 4], key


async def test_an_equal_id_of_another_number_type_continues_the_history(
    recording: Recording, client: Client
) -> None:
    """MongoDB's unique index treats 1, 1.0 and Decimal128("1") as equal, and so does history."""
    things = client[recording.mongo.name].things
    things.insert_one({"_id": 1})
    things.delete_one({"_id": 1})
    first = await recording.record()
    assert [n for _, n, _ in outline(first)] == [1, 2]
    for key in (1.0, Decimal128("1"), Int64(1)):
        things.insert_one({"_id": key})
        things.delete_one({"_id": 1})
    records = await Recording(recording.mongo).record(fencing_token=2)
    assert [n for _, n, _ in outline(records)] == list(range(1, 9))


@one_driver
async def test_content_without_python_types_is_stored_byte_for_byte(
    recording: Recording, client: Client
) -> None:
    """The archive copies the server's bytes; nothing is decoded to Python's values."""
    database = client.get_database(recording.mongo.name, codec_options=DECODED)
    document = {
        "_id": 1,
        "dates": [DatetimeMS(2**62), datetime(1, 1, 1, tzinfo=UTC)],
        "numbers": [Int64(1), 1, 1.0, Decimal128("1.00"), float("nan"), -0.0],
        "ref": {"x": 1, "$ref": "c", "$id": 5, "y": 2},
        "regex": Regex("^a", "i"),
        "code": Code("f", {"x": 1}),
        "keys": {"a.b": 1, "$c": 2, "": 3, "0": [{"1": 1}]},
        "bounds": [MinKey(), MaxKey(), None],
        "big": "é" * 5000,
    }
    database.things.insert_one(document)
    database.things.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.things.update_one({"_id": 1}, {"$set": {"_change": {"id": 1, "by": "x"}}})
    stored = await recording.mongo.find("things", {}, FindOptions(raw=True))
    await recording.record()
    records = await recording.mongo.find(
        "things.versions", {}, FindOptions(sort=[("_id", 1)], raw=True)
    )
    assert isinstance(records[1]["full"], RawBSONDocument)
    expected = {name: value for name, value in stored[0].items() if name != "_change"}
    for record in records[1:]:
        assert bytes(record["full"].raw) == bson.encode(expected)
    assert [each["changed"] for each in records[1:]] == [["n"], []]


@one_driver
async def test_a_burst_larger_than_the_cache_is_recorded_completely(
    recording: Recording, client: Client
) -> None:
    """Evicted versions are read from the archive once they are in it."""
    tight = Recording(recording.mongo, options=RecorderOptions(cache_bytes=5000))
    things = client[recording.mongo.name].things
    things.insert_many([{"_id": n, "text": "x" * 300} for n in range(40)])
    async with tight.running() as task:
        for turn in range(12):
            things.update_many({}, {"$set": {"n": turn}})
        await tight.caught_up(task)
    records = await tight.versions()
    assert len(records) == 40 * 13
    assert {each["v"] for each in records} == set(range(1, 14))
    assert not any(gap for _, _, gap in outline(records))


class Scripted:
    """A source of given batches; after the last one it waits for `then` and stays idle."""

    reconnects = 0

    def __init__(self, batches: list[EventBatch], then: Callable[[], Awaitable[None]]) -> None:
        self._batches = batches
        self._then = then

    async def batches(self, after: str) -> AsyncGenerator[EventBatch]:
        for each in self._batches:
            yield each
        await self._then()
        yield EventBatch((), resume_tokens.token_from_time(Timestamp(2**32 - 1, 1)))
        await asyncio.Event().wait()


class SlowArchive(Archive):
    """An archive whose writes wait for the test; it records reads meanwhile."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "things")
        self.written = asyncio.Event()
        self.reading = False

    async def insert(self, records: Sequence[Document]) -> bool:
        await self.written.wait()
        return await super().insert(records)

    async def last_versions(self, keys: Iterable[Any]) -> dict[Any, LastVersion]:
        self.reading = True
        found = await super().last_versions(keys)
        self.reading = False
        return found


@one_driver
async def test_a_version_in_flight_is_not_read_from_the_archive(mongo: Mongo) -> None:
    """The cache evicts it only after the write: otherwise its number would be used twice."""
    archive = SlowArchive(mongo)

    async def then() -> None:
        # The second batch is in progress; a read for it would happen now.
        for _ in range(100):
            await turn()
        while archive.reading:
            await turn()
        archive.written.set()

    writes = [batch(event(n, after={"_id": 1, "n": n}, operation="replace")) for n in (5, 6)]
    recording = Recording(
        mongo,
        archive=archive,
        source=Scripted(writes, then),
        options=RecorderOptions(cache_bytes=1),
    )
    await archive.prepare()
    start = Checkpoint(token_at(1), token_at(1), Baseline(done=True))
    await recording.checkpoints.save(recording.name, start, fencing_token=0)
    async with recording.running() as task:
        await unless_ended(task, recording.progress.wait("things", token_at(6)))
    assert outline(await recording.versions()) == [("REPLACE", 1, True), ("REPLACE", 2, False)]


@one_driver
async def test_the_checkpoint_of_an_idle_stream_is_saved_at_intervals(recording: Recording) -> None:
    """Otherwise it would fall out of the oplog; a save for each empty batch would cause another
    batch.
    """
    idle = Recording(recording.mongo, options=RecorderOptions(idle_save_s=0.0))
    async with idle.running() as task:
        await idle.caught_up(task)
        first = await idle.checkpoints.load(idle.name)
        assert first is not None
        await recording.mongo.command({"create": "elsewhere"})
        await idle.caught_up(task)
    last = await idle.checkpoints.load(idle.name)
    assert last is not None
    assert last.token > first.token

    seldom = Recording(recording.mongo, options=RecorderOptions(idle_save_s=3600))
    async with seldom.running(2) as task:
        await seldom.caught_up(task)
        saved = await seldom.checkpoints.load(seldom.name)
        batches = seldom.recorder.statistics()["batches"]
        await eventually(lambda: seldom.recorder.statistics()["batches"] > batches + 3)
        assert await seldom.checkpoints.load(seldom.name) == saved


@one_driver
async def test_a_stopping_recorder_saves_its_checkpoint(
    recording: Recording, client: Client
) -> None:
    """It does so for an idle stream, too, whose checkpoint is otherwise saved at intervals."""
    await recording.record()
    seldom = Recording(recording.mongo, options=RecorderOptions(idle_save_s=3600))
    async with seldom.running(2) as task:
        await seldom.caught_up(task)
        client[recording.mongo.name].unrelated.insert_one({})
        await seldom.caught_up(task)
        now = resume_tokens.token_from_time(await recording.mongo.operation_time())
        saved = await seldom.checkpoints.load(seldom.name)
        await unless_ended(task, seldom.progress.wait("things", now))
    stored = await seldom.checkpoints.load(seldom.name)
    assert saved is not None
    assert stored is not None
    assert saved.token < now <= stored.token


@one_driver
async def test_statistics_count_the_work(recording: Recording, client: Client) -> None:
    """The metrics use versions, batches, initial snapshot and position."""
    client[recording.mongo.name].things.insert_many([{"_id": n} for n in range(3)])
    await recording.record()
    found = recording.recorder.statistics()
    assert (found["versions"], found["gaps"], found["skipped"]) == (3, 0, 0)
    assert (found["baseline_documents"], found["baseline_done"]) == (0, True)
    assert found["batches"] > 0
    assert found["position"] >= recording.hub.position
