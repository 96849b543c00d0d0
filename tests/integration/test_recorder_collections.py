"""Events of a whole collection: dropped, renamed, its database dropped, created again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.indexes import INDEXES
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint
from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from tests.support.archives import last_of_each
from tests.support.eventually import eventually
from tests.support.streams import (
    LosesHistory,
    Recording,
    batch,
    event,
    outline,
    stop_task,
    token_at,
    unless_ended,
)

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


@pytest.fixture
async def recording(mongo: Mongo) -> Recording:
    """Return a recorder of `things` without post-images; history begins with the test."""
    made = Recording(mongo)
    await made.begin()
    return made


async def test_a_dropped_collection_is_a_deletion_of_each_of_its_documents(
    recording: Recording, client: Client
) -> None:
    """Documents that are inserted again continue their numbers."""
    things = client[recording.mongo.name].things
    things.insert_many([{"_id": n} for n in range(3)])
    things.delete_one({"_id": 2})
    things.drop()
    things.insert_one({"_id": 1, "again": True})
    records = await recording.record()
    assert outline(records, 0) == [("INSERT", 1, False), ("DELETE", 2, False)]
    assert outline(records, 1) == [("INSERT", 1, False), ("DELETE", 2, False), ("INSERT", 3, False)]
    assert outline(records, 2) == [("INSERT", 1, False), ("DELETE", 2, False)]
    dropped = [each for each in records if "-" in each["_id"]]
    assert len(dropped) == 2
    assert len({each["at"] for each in dropped}) == 1
    assert len({each["_id"].partition("-")[0] for each in dropped}) == 1


async def test_a_large_collection_is_dropped_page_by_page(
    recording: Recording, client: Client
) -> None:
    """There are more documents than in one page; each is deleted once, with consecutive tokens."""
    things = client[recording.mongo.name].things
    things.insert_many([{"_id": n} for n in range(2500)])
    things.drop()
    records = await recording.record()
    assert len(records) == 5000
    assert {each["op"] for each in records[2500:]} == {"DELETE"}
    assert {each["doc"] for each in records[2500:]} == set(range(2500))


async def test_a_second_drop_deletes_only_newer_documents(
    recording: Recording, client: Client
) -> None:
    """No document is deleted twice."""
    things = client[recording.mongo.name].things
    for key in ("a", "b"):
        things.insert_one({"_id": key})
        things.drop()
    records = await recording.record()
    assert outline(records) == [("INSERT", 1, False), ("DELETE", 2, False)] * 2


async def test_a_collection_renamed_away_deletes_its_documents(
    recording: Recording, client: Client
) -> None:
    """Its documents are recorded as they are when it comes back."""
    things = client[recording.mongo.name].things
    things.insert_many([{"_id": n, "n": n} for n in range(3)])
    things.rename("elsewhere")
    client[recording.mongo.name].elsewhere.update_one({"_id": 1}, {"$set": {"n": 100}})
    first = await recording.record()
    assert outline(first, 1) == [("INSERT", 1, False), ("DELETE", 2, False)]
    client[recording.mongo.name].elsewhere.rename("things")
    things.update_one({"_id": 2}, {"$set": {"n": 200}})
    records = await Recording(recording.mongo).record(fencing_token=2)
    assert outline(records, 1)[:2] == outline(first, 1)
    assert outline(records, 1)[2:] == [("BASELINE", 3, False)]
    assert outline(records, 2)[2:] == [("BASELINE", 3, False), ("UPDATE", 4, False)]
    last = {each["doc"]: each["full"] for each in records}
    assert last == {n: {"_id": n, "n": value} for n, value in ((0, 0), (1, 100), (2, 200))}


async def test_a_collection_renamed_over_another_replaces_it(
    recording: Recording, client: Client
) -> None:
    """Old documents are deleted, new ones recorded, and common ones continue their numbers."""
    database = client[recording.mongo.name]
    database.other.insert_many([{"_id": n, "from": "other"} for n in (2, 3)])
    database.things.insert_many([{"_id": n, "from": "things"} for n in (1, 2)])
    async with recording.running() as task:
        await recording.caught_up(task)
        database.other.rename("things", dropTarget=True)
        database.things.insert_one({"_id": 4})
        await recording.caught_up(task)
    records = await recording.versions()
    assert outline(records, 1) == [("INSERT", 1, False), ("DELETE", 2, False)]
    assert outline(records, 2) == [
        ("INSERT", 1, False),
        ("DELETE", 2, False),
        ("BASELINE", 3, False),
    ]
    assert outline(records, 3) == [("BASELINE", 1, False)]
    assert outline(records, 4) == [("INSERT", 1, False)]
    full = {each["doc"]: each["full"] for each in records if each["full"]}
    assert full[2] == {"_id": 2, "from": "other"}


async def test_a_collection_renamed_during_the_initial_snapshot_is_read_from_its_start(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that was read after the rename, and before its event, is not a valid position."""
    database = client[mongo.name]
    database.things.insert_many([{"_id": n} for n in (1, 2, 3)])
    database.other.insert_many([{"_id": n, "other": True} for n in range(10)])
    recording = Recording(mongo, options=RecorderOptions(chunk_documents=2))
    await recording.begin()
    chunks = 0

    async def arrives_before_the_second_chunk(*args: Any, **options: Any) -> SnapshotChunk:
        nonlocal chunks
        chunks += 1
        if chunks == 2:
            await asyncio.to_thread(database.other.rename, "things", dropTarget=True)
        return await read_chunk(*args, **options)

    monkeypatch.setattr(
        "revstream.streams.recording.recorder.read_chunk", arrives_before_the_second_chunk
    )
    records = await recording.record()
    present = {each["doc"]: each["full"] for each in records}
    assert present == {n: {"_id": n, "other": True} for n in range(10)}


async def test_a_dropped_database_takes_its_archive_with_it(
    recording: Recording, client: Client
) -> None:
    """The recorder continues with a new archive, which has its indexes.

    The lease and the checkpoint are dropped, too, and writes during the drop are refused: the
    leased task starts again, from the beginning if no checkpoint is left.
    """
    database = client[recording.mongo.name]
    versions = database["things.versions"]
    database.things.insert_many([{"_id": n} for n in range(3)])
    leases = Leases(recording.mongo, "one", LeaseOptions(duration_s=1, renew_every_s=0.05))
    listener = LeasedTask("recorder:things", leases, recording.recorder.run)
    task = asyncio.create_task(listener.run())

    def standing() -> dict[Any, Any]:
        return {
            each["doc"]: each["full"] for each in last_of_each(versions) if each["op"] != "DELETE"
        }

    try:
        await eventually(lambda: len(standing()) == 3)
        await asyncio.to_thread(client.drop_database, database.name)
        database.things.insert_many([{"_id": n} for n in (1, 7)])
        database.things.update_one({"_id": 1}, {"$set": {"n": 1}})
        expected = {1: {"_id": 1, "n": 1}, 7: {"_id": 7}}
        await eventually(lambda: standing() == expected, within_s=30)
    finally:
        await stop_task(task)
    await recording.versions()
    indexes = versions.index_information()
    assert any(each.get("unique") for each in indexes.values())
    assert len(indexes) == len(INDEXES) + 1


async def test_the_cache_is_cleared_after_a_dropped_database(
    recording: Recording, client: Client
) -> None:
    """The archive has no versions any more: numbers begin again."""
    one, dropped, two = (
        event(5, after={"_id": 1}, operation="insert"),
        event(6, operation="dropDatabase", key=None, collection=""),
        event(7, after={"_id": 1}, operation="insert"),
    )
    database = client[recording.mongo.name]
    gone = asyncio.Event()

    class Scripted:
        reconnects = 0

        async def batches(self, after: str) -> Any:
            yield batch(one)
            await gone.wait()
            yield batch(dropped, two)
            await asyncio.Event().wait()

    scripted = Recording(recording.mongo, source=Scripted())
    start = Checkpoint(token_at(1), token_at(1), Baseline(done=True))
    await scripted.checkpoints.save(scripted.name, start, fencing_token=0)
    async with scripted.running() as task:
        await unless_ended(task, scripted.progress.wait("things", token_at(5)))
        await eventually(
            lambda: database["revstream.checkpoints"].find_one({"token": token_at(5)}) is not None
        )
        database["things.versions"].drop()
        gone.set()
        await unless_ended(task, scripted.progress.wait("things", token_at(7)))
    assert outline(await scripted.versions()) == [("INSERT", 1, False)]
    assert len(database["things.versions"].index_information()) == len(INDEXES) + 1


async def test_a_database_dropped_without_a_recorder_is_recorded_afterwards(
    recording: Recording, client: Client
) -> None:
    """The stream continues after the invalidate event, also after a restart."""
    name = recording.mongo.name
    client[name].things.insert_one({"_id": 1})
    before = await recording.checkpoints.load(recording.name)
    assert before is not None
    client.drop_database(name)
    client[name].things.insert_one({"_id": 2})
    await recording.archive.prepare()
    await recording.checkpoints.save(recording.name, before, fencing_token=0)
    records = await recording.record()
    assert outline(records, 2) == [("INSERT", 1, False)]
    assert recording.source.reconnects == 0


async def test_a_recorder_records_only_its_own_collection(
    recording: Recording, client: Client
) -> None:
    """Drops, renames and writes of other collections have no effect."""
    database = client[recording.mongo.name]
    database.things.insert_one({"_id": 1})
    database.other.insert_one({"_id": 1})
    database.other.rename("another")
    database.another.drop()
    assert outline(await recording.record()) == [("INSERT", 1, False)]


async def test_lost_history_is_marked_with_gaps(mongo: Mongo, client: Client) -> None:
    """A new snapshot gives changed documents a version and deleted ones a deletion, with gaps."""
    things = client[mongo.name].things
    things.insert_many([{"_id": key, "n": 0} for key in ("same", "changed", "gone", 5)])
    things.insert_one({"_id": "deleted"})
    recording = Recording(mongo, source=LosesHistory(mongo))
    start = await recording.begin()
    first = await Recording(mongo).record()
    assert {each["op"] for each in first} == {"BASELINE"}
    things.delete_one({"_id": "deleted"})
    await Recording(mongo).record(fencing_token=2)

    # These writes are in no stream.
    things.update_one({"_id": "changed"}, {"$set": {"n": 1, "version": 9}})
    things.delete_many({"_id": {"$in": ["gone", 5]}})
    things.insert_one({"_id": "new"})
    async with recording.running(3) as task:
        await recording.caught_up(task)
        things.update_one({"_id": "same"}, {"$set": {"n": 2}})
        await recording.caught_up(task)
    records = await recording.versions()
    assert outline(records, "same") == [("BASELINE", 1, False), ("UPDATE", 2, False)]
    assert outline(records, "changed") == [("BASELINE", 1, False), ("REPLACE", 9, True)]
    assert outline(records, "gone") == [("BASELINE", 1, False), ("DELETE", 2, True)]
    assert outline(records, 5) == [("BASELINE", 1, False), ("DELETE", 2, True)]
    assert outline(records, "deleted") == [("BASELINE", 1, False), ("DELETE", 2, False)]
    assert outline(records, "new") == [("BASELINE", 1, True)]
    checkpoint = await recording.checkpoints.load(recording.name)
    assert checkpoint is not None
    assert checkpoint.start == start.start
    assert recording.recorder.statistics()["gaps"] == 4
