"""`streams.live.shared_source` on a real stream: recorders that share the live stream record the
same as from streams of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.indexes import INDEXES
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.partition import collection_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import Unavailable
from revstream.streams.live import pending_versions as numbers_module
from revstream.streams.live.hub import publish_source
from revstream.streams.live.shared_source import SharedSource
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually
from tests.support.streams import BRISK, Recording, outline, stop_task, unless_ended

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


class Sharing:
    """Recorders of one collection in one process that follows the live stream."""

    def __init__(self, mongo: Mongo, count: int) -> None:
        self.mongo = mongo
        self.live = Source(mongo, ["things"], before_images=True, options=BRISK)
        first, *others = (
            Recording(mongo, partition=each) for each in collection_partitions("things", count)
        )
        self.hub, self.recordings = first.hub, [first]
        self.recordings += [
            Recording(mongo, partition=each.partition, progress=first.progress) for each in others
        ]
        self.own = [each.source for each in self.recordings]
        for each in self.recordings:
            each.recorder._source = SharedSource(each.source, self.live, self.hub, each.partition)

    async def begin(self) -> None:
        for each in self.recordings:
            await each.begin()
        self.hub.restart(resume_tokens.token_from_time(await self.mongo.operation_time()))

    async def shared(self) -> None:
        """Wait until no recorder reads a stream of its own."""
        await eventually(lambda: not any(each.connected for each in self.own))


@pytest.fixture(params=[1, 3])
async def sharing(mongo: Mongo, request: pytest.FixtureRequest) -> Sharing:
    made = Sharing(mongo, request.param)
    await made.begin()
    return made


@pytest.fixture
async def tasks(sharing: Sharing) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run the live stream and the recorders."""
    following = asyncio.create_task(publish_source(sharing.live, sharing.hub))
    recording = [asyncio.create_task(_run(each)) for each in sharing.recordings]
    yield recording
    for each in (*recording, following):
        await stop_task(each)


async def _run(recording: Recording) -> None:
    """Run a recorder as a leased task: writes are refused while the database is being dropped."""
    while True:
        with suppress(Unavailable):
            await recording.recorder.run(1)


async def test_events_of_the_live_stream_are_recorded(
    sharing: Sharing, tasks: list[asyncio.Task[None]], client: Client
) -> None:
    """Events of the whole collection are recorded, too."""
    things = client[sharing.mongo.name].things
    await caught_up(sharing, tasks)
    await sharing.shared()
    things.insert_many([{"_id": n, "n": 0} for n in range(20)])
    for n in range(20):
        things.update_one({"_id": n}, {"$inc": {"n": 1}})
    await caught_up(sharing, tasks)
    # No stream was opened for it.
    assert not any(each.connected for each in sharing.own)
    things.delete_one({"_id": 0})
    things.rename("elsewhere")
    things.insert_one({"_id": 1, "again": True})
    await caught_up(sharing, tasks)
    records = await sharing.recordings[0].versions()
    began = [("INSERT", 1, False), ("UPDATE", 2, False)]
    gone = [*began, ("DELETE", 3, False)]
    assert outline(records, 0) == gone
    assert outline(records, 2) == gone
    assert outline(records, 1) == [*gone, ("INSERT", 4, False)]


async def test_the_archive_is_recreated_after_a_dropped_database(
    sharing: Sharing, tasks: list[asyncio.Task[None]], client: Client
) -> None:
    """The first write recreates it; the ring does not contain the drop of a missing collection."""
    database = client[sharing.mongo.name]
    await caught_up(sharing, tasks)
    await sharing.shared()
    client.drop_database(sharing.mongo.name)
    database.things.insert_one({"_id": 1})
    await eventually(lambda: database["things.versions"].count_documents({}) == 1)
    assert len(database["things.versions"].index_information()) == len(INDEXES) + 1
    await sharing.shared()


async def test_a_live_stream_that_says_nothing_holds_no_recorder_up(
    sharing: Sharing, tasks: list[asyncio.Task[None]], client: Client
) -> None:
    await caught_up(sharing, tasks)
    await sharing.shared()
    sharing.hub.publish = lambda batch: None  # type: ignore[method-assign]
    client[sharing.mongo.name].things.insert_many([{"_id": n} for n in range(10)])
    await caught_up(sharing, tasks)
    assert len(await sharing.recordings[0].versions()) == 10


async def test_events_are_numbered_before_their_versions_are_written(
    sharing: Sharing,
    tasks: list[asyncio.Task[None]],
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The numbers are right whether writers count versions or not, without a read of the
    archive.
    """
    things = client[sharing.mongo.name].things
    numbers = sharing.recordings[0].progress.numbers("things")
    things.insert_many([{"_id": n, "version": n} for n in range(9)])
    await caught_up(sharing, tasks)
    await sharing.shared()
    before = sharing.hub.position
    may_be_written = asyncio.Event()
    insert = Archive.insert

    async def held(archive: Archive, records: Any) -> bool:
        await may_be_written.wait()
        return await insert(archive, records)

    monkeypatch.setattr(Archive, "insert", held)
    monkeypatch.setattr(numbers_module, "_PATIENCE_S", 60.0)
    for n in range(9):
        things.update_one({"_id": n}, {"$set": {"x": n}})
        things.update_one({"_id": n}, {"$inc": {"version": 4}})
    things.delete_one({"_id": 0})
    things.insert_one({"_id": 0, "version": 2})
    things.insert_one({"_id": "new"})
    ring = sharing.hub.ring("things")
    await eventually(lambda: len(ring.items_after(before) or ()) == 21)
    found = await numbers.lookup(ring.items_after(before) or ())
    may_be_written.set()
    await caught_up(sharing, tasks)
    records = {each["_id"]: each for each in await sharing.recordings[0].versions()}
    assert {token: (each.number, each.previous) for token, each in found.items()} == {
        token: (each["v"], records[each["prev"]]["v"] if each["prev"] else None)
        for token, each in records.items()
        if token > before
    }
    assert len(found) == 21


async def caught_up(sharing: Sharing, tasks: list[asyncio.Task[None]]) -> None:
    for recording, task in zip(sharing.recordings, tasks, strict=True):
        await unless_ended(task, recording.caught_up(task))
