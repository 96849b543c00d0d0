"""Start of a recorder that has never run, and the initial snapshot of existing documents."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, Unavailable
from revstream.streams.maintenance.verification import Verification
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import enable_collection_images
from revstream.streams.recording.bootstrap.initial_snapshot import oldest_start, read_chunk
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from tests.support.streams import Recording, outline

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
MIXED_IDS = [1, True, False, 2.5, "a", "$a", {"a": 1}, {"a": {"b": 2}}, b"x", None]


async def recording_after(mongo: Mongo, chunk_documents: int = 3, **options: Any) -> Recording:
    """Return a recorder whose history begins after all writes so far."""
    made = Recording(mongo, options=RecorderOptions(chunk_documents=chunk_documents), **options)
    await made.begin()
    return made


async def test_documents_whose_insert_is_in_the_oplog_have_their_whole_history(
    mongo: Mongo, client: Client
) -> None:
    """A new recorder begins at the oldest oplog entry; no document gets a BASELINE."""
    things = client[mongo.name].things
    things.insert_many([{"_id": n} for n in range(3)])
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    things.delete_one({"_id": 2})
    recording = Recording(mongo)
    await recording.archive.prepare()
    async with recording.running() as task:
        await recording.caught_up(task)
        begun = await recording.checkpoints.load(recording.name)
    records = await recording.versions()
    assert outline(records) == [
        ("INSERT", 1, False),
        ("INSERT", 1, False),
        ("INSERT", 1, False),
        ("UPDATE", 2, False),
        ("DELETE", 2, False),
    ]
    assert begun is not None
    assert begun.start == await oldest_start(mongo) or begun.start < records[0]["_id"]


async def test_the_start_is_stored_before_the_first_event(mongo: Mongo, client: Client) -> None:
    """A crash at the first event loses nothing."""
    client[mongo.name].things.insert_one({"_id": 1})
    recording = Recording(mongo)

    class Unreachable(Exception):
        pass

    class NoEvents:
        reconnects = 0

        def batches(self, after: str) -> Any:
            raise Unreachable

    dying = Recording(mongo, source=NoEvents())
    with pytest.raises(Unreachable):
        await dying.recorder.run(1)
    stored = await recording.checkpoints.load(recording.name)
    assert stored is not None
    assert stored.token == stored.start
    assert not stored.baseline.done


async def test_the_oldest_start_is_the_oldest_write_in_the_oplog(mongo: Mongo) -> None:
    """Heartbeats do not count; without access to the oplog the start is now.

    The token is before every event of its time.
    """
    start = await oldest_start(mongo)
    oldest = await mongo.oldest("oplog.rs", {"op": {"$ne": "n"}}, database="local")
    assert oldest is not None
    assert oldest["op"] != "n"
    assert start <= resume_tokens.time_prefix(oldest["ts"])

    class Forbidden:
        async def operation_time(self) -> Timestamp:
            return Timestamp(7, 1)

        async def oldest(self, *args: Any, **options: Any) -> None:
            raise DatabaseError("not authorized on local")

    assert await oldest_start(Forbidden()) == resume_tokens.time_prefix(Timestamp(7, 1))  # type: ignore[arg-type]


async def test_the_oplog_is_read_again_if_its_oldest_entry_is_deleted(mongo: Mongo) -> None:
    """The error is not taken for missing access: history would begin now."""
    answers: list[Any] = [DatabaseError("position lost", number=136) for _ in range(3)]
    answers.append({"ts": Timestamp(7, 1)})

    class Forgetful:
        async def operation_time(self) -> Timestamp:
            return Timestamp(9, 1)

        async def oldest(self, *args: Any, **options: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert await oldest_start(Forgetful()) == resume_tokens.time_prefix(Timestamp(7, 1))  # type: ignore[arg-type]


async def test_a_failed_read_of_the_start_is_not_replaced_by_now(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection at the first start must not lose the writes that are still in the oplog."""

    async def lost(*_: Any, **__: Any) -> Any:
        raise Unavailable("the connection to MongoDB was lost")

    monkeypatch.setattr(mongo, "oldest", lost)
    with pytest.raises(Unavailable):
        await oldest_start(mongo)


async def test_documents_from_before_history_get_a_baseline_at_a_known_time(
    mongo: Mongo, client: Client
) -> None:
    """Each baseline has the cluster time of its chunk; ids of all types are in one order."""
    things = client[mongo.name].things
    for key in MIXED_IDS:
        things.insert_one({"_id": key, "version": 4, "_change": {"id": 1, "by": "alice"}})
    recording = await recording_after(mongo)
    records = await recording.record()
    assert len(records) == len(MIXED_IDS)
    for key in MIXED_IDS:
        if key is not None:
            assert outline(records, key) == [("BASELINE", 4, False)], key
    assert len({each["at"] for each in records}) == 4  # chunks of three
    for record in records:
        assert record["at"] == record["readAt"] == resume_tokens.cluster_time(record["_id"])
        assert record["_id"].startswith(resume_tokens.token_from_time(record["at"]))
        assert abs(record["wall"].timestamp() - record["at"].time) <= 2
        assert (record["by"], record["full"]["version"]) == (None, 4)
        assert "_change" not in record["full"]
    assert recording.recorder.statistics()["baseline_documents"] == len(MIXED_IDS)
    stored = await recording.checkpoints.load(recording.name)
    assert stored is not None
    assert stored.baseline.done


@pytest.mark.parametrize("images", [True, False])
async def test_writes_during_the_initial_snapshot_are_in_order_with_it(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, images: bool
) -> None:
    """Writes before and after a document's chunk are one chain; its last state is the current
    document.
    """
    options = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
    await mongo.command({"create": "things", **options})
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "n": 0, "a": {"b": 0}} for n in range(10)])
    recording = await recording_after(mongo, chunk_documents=2)
    turns = 0

    async def with_writes_around(*args: Any, **settings: Any) -> SnapshotChunk:
        nonlocal turns
        await asyncio.to_thread(write, turns := turns + 1)
        chunk = await read_chunk(*args, **settings)
        await asyncio.to_thread(write, turns := turns + 1)
        return chunk

    def write(turn: int) -> None:
        for n in range(10):
            things.update_one({"_id": n}, {"$set": {"n": turn, "a.b": turn}})
        things.insert_one({"_id": 100 + turn, "n": turn})
        things.insert_one({"_id": -turn, "n": turn})
        things.delete_one({"_id": 99 + turn})
        if turn == 3:
            things.delete_one({"_id": 8})
            things.delete_one({"_id": 0})
        if turn == 4:
            things.insert_one({"_id": 0, "n": "again"})

    monkeypatch.setattr("revstream.streams.recording.recorder.read_chunk", with_writes_around)
    records = await recording.record()
    present = {each["_id"]: each for each in things.find({})}
    last = {each["doc"]: each["full"] for each in records}
    assert {key: full for key, full in last.items() if full is not None} == present
    assert turns >= 10
    for n in (1, 5, 9):
        states = [record["full"]["n"] for record in records if record["doc"] == n]
        assert states == sorted(set(states))
        assert states[-1] == turns
        kinds = [op for op, _, _ in outline(records, n)]
        assert kinds[0] == "BASELINE"
        assert not any(gap for _, _, gap in outline(records, n))
        assert set(kinds[1:]) == {"UPDATE"}


@one_driver
async def test_an_update_of_an_unknown_document_without_post_image_is_left_to_the_snapshot(
    mongo: Mongo, client: Client
) -> None:
    """Without a state the update cannot be applied; the baseline contains it, and there is no
    gap.
    """
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "n": 0})
    recording = await recording_after(mongo)
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    records = await recording.record()
    assert outline(records) == [("BASELINE", 1, False)]
    assert records[0]["full"] == {"_id": 1, "n": 1}
    assert recording.recorder.statistics()["skipped"] == 1


@one_driver
async def test_an_initial_snapshot_continues_after_an_earlier_process(
    mongo: Mongo, client: Client
) -> None:
    """It continues after the stored `_id` of any type, even if that document is gone."""
    things = client[mongo.name].things
    things.insert_many([{"_id": key} for key in (1, 2, {"a": 1}, {"a": 2}, True)])
    recording = await recording_after(mongo, chunk_documents=1)
    await recording.checkpoints.save(
        recording.name,
        Checkpoint(
            resume_tokens.token_from_time(await mongo.operation_time()),
            resume_tokens.time_prefix(Timestamp(1, 1)),
            Baseline(started=True, after={"a": 1}, documents=3),
        ),
        fencing_token=0,
    )
    records = await recording.record()
    assert [each["doc"] for each in records] == [{"a": 2}, True]
    assert recording.recorder.statistics()["baseline_documents"] == 5


@one_driver
async def test_the_snapshot_of_an_empty_collection_ends_at_once(
    mongo: Mongo, client: Client
) -> None:
    """The collection may not exist yet; later inserts are not baselines."""
    recording = await recording_after(mongo)
    async with recording.running() as task:
        await recording.caught_up(task)
        client[mongo.name].things.insert_one({"_id": 1})
        await recording.caught_up(task)
    assert outline(await recording.versions()) == [("INSERT", 1, False)]


@one_driver
async def test_a_document_read_twice_is_recorded_once(mongo: Mongo, client: Client) -> None:
    """A second initial snapshot adds no version for unchanged documents."""
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "x": {"y": n}, "_change": {"by": "a"}} for n in range(5)])
    recording = await recording_after(mongo)
    first = await recording.record()
    again = Recording(mongo)
    stored = await again.checkpoints.load(again.name)
    assert stored is not None
    await again.checkpoints.save(again.name, replace(stored, baseline=Baseline()), fencing_token=2)
    assert await again.record(fencing_token=2) == first
    assert again.recorder.statistics()["versions"] == 0


@one_driver
async def test_a_chunk_is_read_again_where_the_collection_was_just_changed(
    mongo: Mongo, client: Client
) -> None:
    """An index created after the cluster time was read makes that read fail once."""
    client[mongo.name].things.insert_one({"_id": 1})
    early = await mongo.clock()
    client[mongo.name].things.insert_one({"_id": 2})
    await mongo.command({"drop": "things"})
    client[mongo.name].things.insert_one({"_id": 3})
    clocks = [early]

    class EarlyClock:
        def __getattr__(self, name: str) -> Any:
            return getattr(mongo, name)

        async def clock(self) -> Any:
            return clocks.pop() if clocks else await mongo.clock()

    chunk = await read_chunk(EarlyClock(), "things", Baseline(), size=5)  # type: ignore[arg-type]
    assert [each["_id"] for each in chunk.documents] == [3]
    assert chunk.at > early[1]
    assert chunk.end


@pytest.mark.parametrize("deltas", [False, True], ids=["FULL", "DELTA"])
async def test_documents_written_before_their_snapshot_begin_with_the_pre_image(
    mongo: Mongo, client: Client, deltas: bool
) -> None:
    """The BASELINE is the pre-image, followed by the write with its changes, without a gap.

    The same holds in a transaction, where several writes have one time.
    """
    await enable_collection_images(mongo, "things")
    things = client[mongo.name].things
    text = "x" * 300
    things.insert_many([{"_id": n, "n": 0, "text": text, "version": 7} for n in range(6)])
    recording = Recording(mongo, deltas=deltas)
    await recording.begin()
    update = {"$set": {"n": 1}, "$inc": {"version": 1}}
    things.update_one({"_id": 0}, update)
    things.replace_one({"_id": 1}, {"n": 2, "text": text, "version": 8})
    things.delete_one({"_id": 2})
    with client.start_session() as session, session.start_transaction():
        for key in (3, 4, 3):
            things.update_one({"_id": key}, {"$inc": {"n": 1, "version": 1}}, session=session)
    records = await recording.record()
    begun, written = ("BASELINE", 7, False), ("UPDATE", 8, False)
    assert outline(records, 0) == [begun, written]
    assert outline(records, 1) == [begun, ("REPLACE", 8, False)]
    assert outline(records, 2) == [begun, ("DELETE", 8, False)]
    assert outline(records, 3) == [begun, written, ("UPDATE", 9, False)]
    assert outline(records, 4) == [begun, written]
    assert outline(records, 5) == [begun]
    assert {tuple(each["changed"]) for each in records if each["op"] in ("UPDATE", "REPLACE")} == {
        ("n",)
    }
    statistics = recording.recorder.statistics()
    assert (statistics["gaps"], statistics["unrecorded"]) == (0, 0)
    oldest = await recording.archive.find({"op": "BASELINE"}, FindOptions(sort=[("doc", 1)]))
    expected = {"n": 0, "text": text, "version": 7}
    assert [each["full"] for each in oldest] == [{"_id": n, **expected} for n in range(6)]
    checkpoint = await recording.checkpoints.load(recording.name)
    verification = Verification(mongo, recording.archive, checkpoint, version_field="version")
    assert (await verification.run()).findings == []


async def test_unknown_states_before_recording_are_not_lost_history(
    mongo: Mongo, client: Client
) -> None:
    """Without images a replacement has an unknown state before it: a gap that is counted apart."""
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "n": 0} for n in range(2)])
    recording = Recording(mongo)
    await recording.begin()
    things.replace_one({"_id": 0}, {"n": 1})
    things.replace_one({"_id": 0}, {"n": 2})
    records = await recording.record()
    assert outline(records, 0) == [("REPLACE", 1, True), ("REPLACE", 2, False)]
    assert [each.get("unrecorded", False) for each in records if each["doc"] == 0] == [True, False]
    statistics = recording.recorder.statistics()
    assert (statistics["gaps"], statistics["unrecorded"]) == (0, 1)
