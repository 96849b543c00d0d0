"""Lost history: a new snapshot is taken under writes, and states that cannot be known have gaps."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.horizon import Horizons
from revstream.streams.changefeed.source import Source
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.core.snapshot_scan import find_unscanned
from revstream.streams.live.hub import publish_source
from revstream.streams.live.replay import Replay, ReplayedRecords
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from tests.support.eventually import eventually
from tests.support.streams import BRISK, LosesHistory, Recording, outline, stop_task

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
KEYS = range(10)


async def losing(mongo: Mongo, client: Client, *, images: bool = True) -> Recording:
    """Record ten documents; then the even ones change unseen, and the history is found lost."""
    options = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
    await mongo.command({"create": "things", **options})
    things = client[mongo.name].things
    things.insert_many([{"_id": key, "n": 0} for key in KEYS])
    await Recording(mongo).begin()
    await Recording(mongo).record()
    things.update_many({"_id": {"$mod": [2, 0]}}, {"$set": {"n": "unseen"}})
    return Recording(mongo, source=LosesHistory(mongo), options=RecorderOptions(chunk_documents=2))


@pytest.mark.parametrize("images", [True, False])
async def test_writes_during_the_new_snapshot_are_not_based_on_doubtful_states(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, images: bool
) -> None:
    """Every version has a real state, and every later write is a version.

    Only the first version of a document that may have changed unseen has a gap.
    """
    recording = await losing(mongo, client, images=images)
    things = client[mongo.name].things
    turns = 0

    def write() -> None:
        nonlocal turns
        turns += 1
        things.update_many({}, {"$set": {"turn": turns}})

    async def with_writes_around(*args: Any, **settings: Any) -> SnapshotChunk:
        await asyncio.to_thread(write)
        chunk = await read_chunk(*args, **settings)
        await asyncio.to_thread(write)
        return chunk

    monkeypatch.setattr("revstream.streams.recording.recorder.read_chunk", with_writes_around)
    records = await recording.record(fencing_token=2)
    assert turns == 10
    present = {each["_id"]: each for each in things.find()}
    for key in KEYS:
        [baseline, first, *later] = [each for each in records if each["doc"] == key]
        assert baseline["full"] == {"_id": key, "n": 0}
        assert {each["full"]["n"] for each in (first, *later)} == {0 if key % 2 else "unseen"}
        assert first.get("gap"), first
        assert not any(each.get("gap") for each in later)
        # With images from the first write on, without them from its snapshot on.
        seen = [each["full"]["turn"] for each in (first, *later)]
        assert seen == list(range(1 if images else seen[0], 11))
        assert later[-1]["full"] == present[key]


@one_driver
async def test_an_unchanged_document_has_no_gap_after_its_new_snapshot(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next version and its deletion have none, although other documents are still to be
    read.
    """
    recording = await losing(mongo, client)
    things = client[mongo.name].things

    async def with_writes_behind(*args: Any, **settings: Any) -> SnapshotChunk:
        baseline = args[2]
        if baseline.started and baseline.after < 5:
            # 1 and 3 were read, 7 and 9 were not.
            await asyncio.to_thread(
                things.update_many, {"_id": {"$in": [1, 9]}}, {"$inc": {"n": 1}}
            )
        if baseline.started and baseline.after == 3:
            await asyncio.to_thread(things.delete_many, {"_id": {"$in": [3, 7]}})
        return await read_chunk(*args, **settings)

    monkeypatch.setattr("revstream.streams.recording.recorder.read_chunk", with_writes_behind)
    records = await recording.record(fencing_token=2)
    assert [gap for _, _, gap in outline(records, 1)] == [False, False, False]
    assert [gap for _, _, gap in outline(records, 9)] == [False, True, False]
    assert outline(records, 3)[1:] == [("DELETE", 2, False)]
    assert outline(records, 7)[1:] == [("DELETE", 2, True)]
    assert outline(records, 5) == [("BASELINE", 1, False)]


@one_driver
async def test_history_lost_during_the_new_snapshot_restarts_it(
    mongo: Mongo, client: Client
) -> None:
    """Documents read before may have changed since; each difference is one version."""
    recording = await losing(mongo, client)
    things = client[mongo.name].things
    read = 0

    class LosesItTwice(LosesHistory):
        async def _lose_again(self, after: str) -> Any:
            nonlocal read
            async for batch in Source.batches(self, after):
                stored = await recording.checkpoints.load(recording.name)
                if stored is not None and stored.baseline.read > 4:
                    read = stored.baseline.read
                    things.update_one({"_id": 1}, {"$set": {"n": "unseen too"}})
                    # The snapshot begins after that.
                    client[mongo.name].unrelated.insert_one({})
                    async for each in self._lost(after):
                        yield each
                yield batch

        def batches(self, after: str) -> Any:
            self._asked += 1
            if self._asked == 1:
                return self._lost(after)
            return self._lose_again(after) if self._asked == 2 else Source.batches(self, after)

    again = Recording(mongo, source=LosesItTwice(mongo), options=RecorderOptions(chunk_documents=2))
    records = await again.record(fencing_token=2)
    assert read > 4
    for key in KEYS:
        changed = key == 1 or key % 2 == 0
        gap = [("REPLACE", 2, True)] if changed else []
        assert outline(records, key) == [("BASELINE", 1, False), *gap]


@one_driver
async def test_a_subscriber_from_before_receives_all_differences(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for subscribers during the snapshot, too, whose tokens are within the ring.

    The gap comes into the archive alone.
    """
    recording = await losing(mongo, client)
    start = (await recording.versions())[0]["_id"]
    go_on = asyncio.Event()

    async def held_up(*args: Any, **settings: Any) -> SnapshotChunk:
        if args[2].started:
            await go_on.wait()
        return await read_chunk(*args, **settings)

    monkeypatch.setattr("revstream.streams.recording.recorder.read_chunk", held_up)
    recording.hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
    live = Source(mongo, ["things"], before_images=True, options=BRISK)
    follower = asyncio.create_task(publish_source(live, recording.hub))
    found: list[dict[str, Any]] = []
    joined = asyncio.Event()

    async def resume() -> None:
        horizons = Horizons(mongo)
        replay = Replay(
            recording.archive, recording.hub, recording.progress, horizons, quiet_s=0.01
        )
        async with aclosing(replay.follow(start)) as parts:
            async for part in parts:
                if isinstance(part, ReplayedRecords):
                    found.extend(part.records)
                else:
                    joined.set()

    try:
        async with recording.running(2):
            subscriber = asyncio.create_task(resume())
            await eventually(lambda: any(each.get("gap") for each in found))
            assert not joined.is_set()
            go_on.set()
            await eventually(joined.is_set)
            await stop_task(subscriber)
    finally:
        await stop_task(follower)
    records = [each["_id"] for each in await recording.versions()]
    assert [each["_id"] for each in found] == records[1:]
    assert sum(each.get("gap", False) for each in found) == 5


@one_driver
@pytest.mark.parametrize(
    ("collation", "expected"), [(None, ["a", "c"]), ("en", ["B", "c"])], ids=["simple", "en"]
)
async def test_ids_after_a_position_are_in_the_collections_own_order(
    mongo: Mongo, collation: str | None, expected: list[str]
) -> None:
    """Ids that no longer exist are included."""
    options = {} if collation is None else {"collation": {"locale": collation}}
    await mongo.command({"create": "things", **options})
    after = "Z" if collation is None else "a"
    assert await find_unscanned(mongo, "things", after, ["a", "B", "c", 5]) == expected
