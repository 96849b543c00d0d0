"""The recorder killed at every step: after a restart each version is recorded once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.recording.options import RecorderOptions
from tests.support.exhaustive import scaled
from tests.support.streams import BRISK, PartitionRecorders, Recording, check_chains, outline

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

# Small batches and chunks, so that a short history has many steps.
# The steps at which a crash is tested: each one, or every n-th.
STRIDE = scaled(all=1, fast=3)
SMALL = RecorderOptions(chunk_documents=2, cache_bytes=2000)


class Killed(Exception):
    """The process is killed here."""


class Fuse:
    """Counts down at every step; at zero the process does nothing any more."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.at = ""

    def burn(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.at = step
        if self.left <= 0:
            raise Killed(step)


async def whole(write: Awaitable[Any]) -> Any:
    """Complete a write in flight when another one is the last: MongoDB executes commands without a
    waiting client.
    """
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class CrashingArchive(Archive):
    """Each write has two steps, before and after it; writes of several records have one between."""

    def __init__(self, mongo: Mongo, collection: str, fuse: Fuse) -> None:
        super().__init__(CrashingMongo(mongo, fuse), collection)  # type: ignore[arg-type]


class CrashingMongo:
    """Forwards everything, with steps around the writes of the archive."""

    def __init__(self, mongo: Mongo, fuse: Fuse) -> None:
        self._mongo = mongo
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mongo, name)

    async def insert_in_order(self, collection: str, records: Sequence[Document]) -> None:
        self._fuse.burn("before insert")
        for record in records:
            await whole(self._mongo.insert_in_order(collection, [record]))
            self._fuse.burn("within insert")


class CrashingCheckpoints(Checkpoints):
    def __init__(self, mongo: Mongo, fuse: Fuse) -> None:
        super().__init__(mongo)
        self._fuse = fuse

    async def save(self, name: str, checkpoint: Checkpoint, *, fencing_token: int) -> None:
        self._fuse.burn("before checkpoint")
        await whole(super().save(name, checkpoint, fencing_token=fencing_token))
        self._fuse.burn("after checkpoint")


def crashing(mongo: Mongo, fuse: Fuse, **more: Any) -> Recording:
    """Return a recorder whose process ends with the fuse."""
    return Recording(
        mongo,
        options=SMALL,
        archive=CrashingArchive(mongo, "things", fuse),
        checkpoints=CrashingCheckpoints(mongo, fuse),
        **more,
    )


def divided(mongo: Mongo, fuse: Fuse, count: int) -> PartitionRecorders:
    """Return the recorders of all partitions in one process, which end together."""
    return PartitionRecorders(mongo, count, lambda mongo, **more: crashing(mongo, fuse, **more))


def written(client: Client, name: str) -> None:
    """Write a history with all kinds of writes: several of one document, a transaction, a drop."""
    things = client[name].things
    things.insert_many([{"_id": n, "version": 1} for n in range(3)])
    things.update_many({}, {"$inc": {"version": 1}})
    things.update_one({"_id": 1}, {"$set": {"a": 1}})
    things.delete_one({"_id": 2})
    with client.start_session() as session, session.start_transaction():
        things.insert_one({"_id": 2, "again": True}, session=session)
        things.update_one({"_id": 2}, {"$set": {"b": 1}}, session=session)
        things.update_one({"_id": 0}, {"$set": {"b": 1}}, session=session)
    things.drop()
    things.insert_many([{"_id": n, "new": True} for n in (1, 9)])


async def forgotten(mongo: Mongo, start: Checkpoint | None) -> None:
    """Empty the archive, and reset the recorder's checkpoint; None for no checkpoint."""
    for name in ("things.versions", "revstream.checkpoints"):
        await mongo.command({"delete": name, "deletes": [{"q": {}, "limit": 0}]})
    if start is not None:
        await Checkpoints(mongo).save("recorder:things", start, fencing_token=0)


async def test_a_divided_recorder_killed_at_any_step_leaves_the_same_archive(
    mongo: Mongo, client: Client
) -> None:
    """Each partition leaves a prefix of its records; in the end all records are the same."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    start = await Recording(mongo).begin()
    written(client, mongo.name)
    undivided = await Recording(mongo, options=SMALL).record()

    async def restart() -> None:
        await forgotten(mongo, None)
        await PartitionRecorders(mongo, 3).begin_at(start)

    await restart()
    fuse = Fuse(10**9)
    expected = await divided(mongo, fuse, 3).record()
    steps = 10**9 - fuse.left
    # Except for the numbers of a drop's records, and their order.
    assert sorted(map(_content, expected), key=repr) == sorted(map(_content, undivided), key=repr)

    for last_step in range(1, steps + 1, STRIDE):
        await restart()
        fuse = Fuse(last_step)
        with suppress(Killed):
            await divided(mongo, fuse, 3).record()
        records = await PartitionRecorders(mongo, 3, options=SMALL).record(fencing_token=2)
        assert records == expected, f"after step {last_step}, {fuse.at}"


def _content(record: dict[str, Any]) -> dict[str, Any]:
    names = ("_id", "prev")
    # The chain uses them, too.
    record = {name: value for name, value in record.items() if name != "chain"}
    return record | {name: (record[name] or "").partition("-")[0] for name in names}


@pytest.mark.parametrize("deltas", [False, True])
async def test_a_recorder_killed_at_any_step_leaves_the_same_archive(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, deltas: bool
) -> None:
    """Records and tokens are the same as without a crash, whatever the last step was."""
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    start = await Recording(mongo).begin()
    written(client, mongo.name)
    fuse = Fuse(10**9)
    expected = await crashing(mongo, fuse, deltas=deltas).record()
    assert any("patch" in each for each in expected) is deltas
    assert outline(expected, 2) == [
        ("INSERT", 1, False),
        ("UPDATE", 2, False),
        ("DELETE", 3, False),
        ("INSERT", 4, False),
        ("UPDATE", 5, False),
        ("DELETE", 6, False),
    ]
    steps = 10**9 - fuse.left

    seen = set()
    for last_step in range(1, steps + 1, STRIDE):
        await forgotten(mongo, start)
        fuse = Fuse(last_step)
        dying = crashing(mongo, fuse, deltas=deltas)
        with suppress(Killed):
            await dying.record()
        seen.add(fuse.at)
        records = await Recording(mongo, deltas=deltas, options=SMALL).record(fencing_token=2)
        assert records == expected, f"after step {last_step}, {fuse.at}"
    assert seen >= {
        "before insert",
        "within insert",
        "before checkpoint",
        "after checkpoint",
    }


async def test_records_after_the_checkpoint_are_continued(mongo: Mongo, client: Client) -> None:
    """A crash with concurrent writes in flight leaves versions up to any position."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    start = await Recording(mongo).begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_many([{"_id": n} for n in range(2)])
    things.update_many({}, {"$set": {"n": 1}})
    things.update_one({"_id": 1}, {"$set": {"n": 2}})
    things.delete_one({"_id": 0})
    expected = await Recording(mongo).record()
    assert len(expected) == 6

    for done in range(len(expected) + 1):
        checkpoint = replace(start, token=expected[done - 1]["_id"]) if done else start
        for there in range(done, len(expected) + 1):
            await forgotten(mongo, checkpoint)
            if there:
                client[mongo.name]["things.versions"].insert_many(expected[:there])
            records = await Recording(mongo).record(fencing_token=2)
            assert records == expected, f"checkpoint behind {done}, {there} inserted"


async def test_a_recorder_killed_repeatedly_still_finishes(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process gets only a few steps, and the next one finishes its work."""
    # A process must be able to complete one group of writes.
    monkeypatch.setattr("revstream.streams.recording.commit_pipeline._MOST_RECORDS", 2)
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    await Recording(mongo).begin()
    things = client[mongo.name].things
    things.insert_many([{"_id": n} for n in range(4)])
    for turn in range(5):
        things.update_many({}, {"$set": {"n": turn}})
    lives = 0
    while True:
        lives += 1
        fuse = Fuse(14)
        with suppress(Killed):
            await _in_small_batches(mongo, fuse).record(fencing_token=lives)
            break
    assert lives > 3
    records = await Recording(mongo).versions()
    assert [n for _, n, _ in outline(records, 3)] == [1, 2, 3, 4, 5, 6]
    assert len(records) == 24


def _in_small_batches(mongo: Mongo, fuse: Fuse) -> Recording:
    return Recording(
        mongo,
        archive=CrashingArchive(mongo, "things", fuse),
        checkpoints=CrashingCheckpoints(mongo, fuse),
        source=Source(
            mongo, ["things"], before_images=False, options=replace(BRISK, batch_events=2)
        ),
    )


async def test_an_initial_snapshot_killed_at_any_step_gives_each_document_one_baseline(
    mongo: Mongo, client: Client
) -> None:
    """It resumes: no document is repeated or left out, and concurrent writes are in order."""
    things = client[mongo.name].things
    things.insert_many([{"_id": key, "n": 0} for key in (1, True, "a", {"a": 1}, 2.5)])
    start = await Recording(mongo).begin()
    things.update_one({"_id": "a"}, {"$set": {"n": 1}})
    fuse = Fuse(10**9)
    await crashing(mongo, fuse).record()
    steps = 10**9 - fuse.left

    for last_step in range(1, steps + 1, STRIDE):
        await forgotten(mongo, start)
        fuse = Fuse(last_step)
        with suppress(Killed):
            await crashing(mongo, fuse).record()
        # Written between the crash and the restart.
        things.update_one({"_id": 2.5}, {"$inc": {"n": 1}})
        restart = Recording(mongo, options=SMALL)
        records = await restart.record(fencing_token=2)
        check_chains(records)
        where = f"after step {last_step}, {fuse.at}"
        for key in (1, True, {"a": 1}):
            assert outline(records, key) == [("BASELINE", 1, False)], where
        for key in ("a", 2.5):
            states = [record["full"]["n"] for record in records if record["doc"] == key]
            assert states == sorted(set(states)), where
            assert states[-1] == things.find_one({"_id": key})["n"], where
            assert outline(records, key)[0][0] == "BASELINE", where
