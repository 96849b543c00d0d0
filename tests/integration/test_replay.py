"""Replay from any token to live events: one order, no gap, no duplicate, whatever is written
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from bson import Decimal128, Timestamp
from pymongo import MongoClient

from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.routing import Interest
from revstream.streams.changefeed.source import Source
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost, SlowConsumer, Unavailable
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import HubOptions, publish_source
from revstream.streams.live.replay import Idle, Part, Replay, ReplayedRecords
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from tests.support.streams import BRISK, Recording, stop_task, unless_ended

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
Between = Callable[[], Awaitable[None]]


def _keys(key: Any) -> tuple[Any, ...]:
    return () if key is None else (key,)


class Process:
    """A process that follows the change stream; with `recording` if it also holds the lease."""

    def __init__(self, mongo: Mongo, *, ring_events: int = 5, backlog_events: int = 1000) -> None:
        self.mongo = mongo
        options = HubOptions(ring_events=ring_events, backlog_events=backlog_events)
        self.recording = Recording(mongo, hub_options=options)
        self.hub = self.recording.hub
        self.progress = self.recording.progress
        self.recorder: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def started(
        cls, mongo: Mongo, *, recorder: bool = True, **options: Any
    ) -> AsyncIterator[Process]:
        process = cls(mongo, **options)
        if await process.recording.checkpoints.load(process.recording.name) is None:
            await process.recording.begin(baseline_done=True)
        process.hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
        source = Source(mongo, ["things"], before_images=True, options=BRISK)
        async with AsyncExitStack() as stack:
            if recorder:
                process.recorder = await stack.enter_async_context(process.recording.running())
            follower = asyncio.create_task(publish_source(source, process.hub))
            stack.push_async_callback(stop_task, follower)
            yield process

    async def await_published(self) -> None:
        """Wait until the hub has published all writes so far."""
        await self.hub.wait_until(resume_tokens.token_from_time(await self.mongo.operation_time()))

    async def recorded(self) -> None:
        """Wait until all writes so far are in the archive and published."""
        await self.await_published()
        assert self.recorder is not None
        await self.recording.caught_up(self.recorder)

    def replay(self, *, archive: Archive | None = None, page: int = 3) -> Replay:
        archive = archive or self.recording.archive
        horizons = Horizons(self.mongo)
        return Replay(archive, self.hub, self.progress, horizons, page=page, quiet_s=0.01)


class ReceivedTokens:
    """The tokens that a subscriber receives; a drop has those of its records."""

    def __init__(self, archive: Archive) -> None:
        self.tokens: list[str] = []
        self.parts: list[str] = []
        self.quiet = ""
        self._archive = archive

    async def take(self, part: Part) -> None:
        self.parts.append(type(part).__name__)
        if isinstance(part, Idle):
            assert part.token >= max(self.tokens, default="")
            assert part.token > self.quiet
            self.quiet = part.token
        elif isinstance(part, ReplayedRecords):
            self.tokens += [each["_id"] for each in part.records]
        else:
            for event in part.events:
                self.tokens += await self._of_event(event)

    async def _of_event(self, event: ChangeEvent) -> list[str]:
        if event.is_write:
            return [event.token]
        records = await self._archive.scan(
            event.token, resume_tokens.token_after_event(event.token), limit=10**6
        )
        return [each["_id"] for each in records]

    async def until(self, parts: Any, last: str) -> None:
        """Receive parts until a token is reached."""
        async for part in parts:
            await self.take(part)
            if max(self.tokens[-1:], default="") >= last or self.quiet >= last:
                return


async def archived(process: Process, after: str, key: Any = None) -> list[str]:
    """Return the tokens that a subscriber must receive, in order."""
    await process.recorded()
    query: dict[str, Any] = {"_id": {"$gt": after}}
    if key is not None:
        query["doc"] = key
    records = await process.mongo.find("things.versions", query, FindOptions(sort=[("_id", 1)]))
    return [each["_id"] for each in records]


class WriteInjector:
    """Writes between the steps of a replay, a number of times, with different waits."""

    def __init__(self, client: Client, process: Process, wait: str, times: int) -> None:
        self.things = client[process.mongo.name].things
        self.process = process
        self.left = times
        self.written = 0
        self._wait = wait
        self._busy = False

    async def write(self) -> None:
        if self.left <= 0 or self._busy:
            return
        self._busy = True
        self.left -= 1
        for _ in range(3):
            self.written += 1
            self.things.update_one({"_id": self.written % 4}, {"$set": {"n": self.written}})
        if self._wait == "seen":
            await self.process.await_published()
        elif self._wait == "recorded":
            await self.process.recorded()
        self._busy = False


class InjectedArchive(Archive):
    def __init__(self, mongo: Mongo, between: Between) -> None:
        super().__init__(mongo, "things")
        self._between = between

    async def scan(
        self, after: str, upto: str, *, limit: int, match: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        await self._between()
        found = await super().scan(after, upto, limit=limit, match=match)
        await self._between()
        return found


def inject_into(
    monkeypatch: pytest.MonkeyPatch, progress: ArchiveProgress, between: Between
) -> None:
    position, wait = progress.position, progress.wait

    async def injected_position(collection: str) -> str:
        await between()
        found = await position(collection)
        await between()
        return found

    async def injected_wait(collection: str, token: str, **options: Any) -> None:
        await between()
        await wait(collection, token, **options)
        await between()

    monkeypatch.setattr(progress, "position", injected_position)
    monkeypatch.setattr(progress, "wait", injected_wait)


@pytest.mark.parametrize("key", [None, 1])
@pytest.mark.parametrize("wait", ["nothing", "seen", "recorded"])
async def test_a_replay_under_writes_has_no_gap_and_no_duplicate(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, wait: str, key: Any
) -> None:
    """It goes from the archive through the ring to live events, for all documents and for one."""
    async with Process.started(mongo) as process:
        start = process.hub.position
        inject = WriteInjector(client, process, wait, times=14)
        inject.things.insert_many([{"_id": n} for n in range(4)])
        inject.things.update_many({}, {"$set": {"n": 0}})
        await process.recorded()
        inject_into(monkeypatch, process.progress, inject.write)
        replay = process.replay(archive=InjectedArchive(mongo, inject.write))
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(replay.follow(start, interest=Interest(keys=_keys(key)))) as parts:
            async for part in parts:
                await received.take(part)
                await inject.write()
                if isinstance(part, Idle) and inject.left <= 0:
                    break
            inject.things.update_one({"_id": 1}, {"$set": {"n": "last"}})
            expected = await archived(process, start, key)
            await received.until(parts, expected[-1])
    assert received.tokens == expected
    assert len(expected) > (12 if key else 40)
    # The numbers of events from the ring and of live ones depend on timing.
    assert "ReplayedRecords" in received.parts or wait == "nothing"
    assert "LiveEvents" in received.parts


async def test_a_replay_resumes_from_each_of_its_tokens(mongo: Mongo, client: Client) -> None:
    """Tokens of records, events and checkpoints, in archive and ring, also within a transaction."""
    async with Process.started(mongo) as process:
        start = process.hub.position
        things = client[mongo.name].things
        things.insert_many([{"_id": n} for n in range(4)])
        with client.start_session() as session, session.start_transaction():
            for n in range(4):
                things.update_one({"_id": n}, {"$set": {"n": n}}, session=session)
        things.delete_one({"_id": 0})
        expected = await archived(process, start)
        assert len(expected) == 9
        for n, token in enumerate([start, *expected]):
            received = ReceivedTokens(process.recording.archive)
            async with aclosing(process.replay().follow(token)) as parts:
                await received.until(parts, expected[-1])
            assert received.tokens == expected[n:]
            async with aclosing(process.replay().follow(received.quiet or token)) as parts:
                part = await anext(parts)
                assert isinstance(part, Idle) or n < 9


@one_driver
@pytest.mark.parametrize("ring_events", [1, 100])
@pytest.mark.parametrize("page", [1, 2, 50])
async def test_a_drop_is_replayed_from_each_of_its_tokens(
    mongo: Mongo, client: Client, ring_events: int, page: int
) -> None:
    """It is one event in the ring and one record per document in the archive; later events
    follow.
    """
    async with Process.started(mongo, ring_events=ring_events) as process:
        start = process.hub.position
        things = client[mongo.name].things
        things.insert_many([{"_id": n} for n in range(5)])
        things.drop()
        dropped = await archived(process, start)
        assert len(dropped) == 10
        quiet = process.hub.position
        for after, expected in [(start, dropped)] + [
            (token, dropped[n + 1 :]) for n, token in enumerate(dropped)
        ]:
            received = ReceivedTokens(process.recording.archive)
            async with aclosing(process.replay(page=page).follow(after)) as parts:
                await received.until(parts, dropped[-1])
            assert received.tokens == expected
            assert received.quiet >= dropped[-1] or expected
        things.insert_one({"_id": 9})
        every = await archived(process, start)
        for after in (start, dropped[6], dropped[-1], quiet):
            received = ReceivedTokens(process.recording.archive)
            async with aclosing(process.replay(page=page).follow(after)) as parts:
                await received.until(parts, every[-1])
            assert received.tokens == [each for each in every if each > after]


@one_driver
async def test_a_replay_contains_a_drop_that_is_the_last_event(
    mongo: Mongo, client: Client
) -> None:
    """The checkpoint of the recorder is then after all records of the drop."""
    process = Process(mongo, ring_events=1)
    begun = await process.recording.begin(baseline_done=True)
    process.hub.restart(begun.token)
    things = client[mongo.name].things
    things.insert_many([{"_id": n} for n in range(3)])
    things.drop()
    expected = [each["_id"] for each in await Recording(mongo).record()]
    # A recorder elsewhere and this process's stream have both just reached the drop.
    full = replace(BRISK, batch_events=4)
    source = Source(mongo, ["things"], before_images=False, options=full)
    async with aclosing(source.batches(begun.token)) as batches:
        while process.hub.statistics()["published"] < 4:
            process.hub.publish(await anext(batches))
    assert process.hub.position.startswith(expected[-1].partition("-")[0])
    place = replace(begun, token=process.hub.position)
    await process.recording.checkpoints.save(process.recording.name, place, fencing_token=2)
    received = ReceivedTokens(process.recording.archive)
    async with aclosing(process.replay().follow(begun.token)) as parts:
        await received.until(parts, process.hub.position)
    assert received.tokens == expected
    assert received.quiet > expected[-1]


class Untouchable:
    """A database whose use fails the test."""

    name = "none"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the database was asked: {name}")


@one_driver
async def test_a_token_in_the_ring_needs_no_command(mongo: Mongo, client: Client) -> None:
    """Ten thousand clients may reconnect at once without a read of MongoDB."""
    async with Process.started(mongo, ring_events=100) as process:
        start = process.hub.position
        client[mongo.name].things.insert_many([{"_id": n} for n in range(5)])
        expected = await archived(process, start)
        untouched = Archive(Untouchable(), "things")  # type: ignore[arg-type]
        progress = ArchiveProgress(Untouchable(), process.hub)  # type: ignore[arg-type]
        horizons = Horizons(Untouchable())  # type: ignore[arg-type]
        replay = Replay(untouched, process.hub, progress, horizons, quiet_s=0.01)
        for after, key in ((start, None), (expected[2], None), (start, 3), (None, None)):
            received = ReceivedTokens(untouched)
            async with aclosing(replay.follow(after, interest=Interest(keys=_keys(key)))) as parts:
                await received.until(parts, process.hub.position)
            wanted = [] if after is None else [each for each in expected if each > after]
            assert received.tokens == (wanted if key is None else expected[3:4])
            assert "ReplayedRecords" not in received.parts


@one_driver
async def test_a_token_ahead_of_this_processs_stream_is_awaited(
    mongo: Mongo, client: Client
) -> None:
    """The client received more elsewhere, and gets nothing twice."""
    async with Process.started(mongo) as ahead:
        process = Process(mongo)
        process.hub.restart(ahead.hub.position)
        start = ahead.hub.position
        things = client[mongo.name].things
        things.insert_many([{"_id": n} for n in range(5)])
        every = await archived(ahead, start)
        received = ReceivedTokens(ahead.recording.archive)
        async with aclosing(process.replay().follow(every[2])) as parts:
            await received.take(await anext(parts))
            assert (received.parts, received.quiet) == (["Idle"], every[2])
            source = Source(mongo, ["things"], before_images=False, options=BRISK)
            follower = asyncio.create_task(publish_source(source, process.hub))
            try:
                await unless_ended(follower, received.until(parts, every[-1]))
            finally:
                await stop_task(follower)
    assert received.tokens == every[3:]


@one_driver
async def test_a_token_older_than_the_archive_is_history_lost(mongo: Mongo, client: Client) -> None:
    """The error has the oldest valid token, which works."""
    async with Process.started(mongo, ring_events=1) as process:
        things = client[mongo.name].things
        things.insert_many([{"_id": n} for n in range(5)])
        expected = await archived(process, "")
        with pytest.raises(HistoryLost, match="1970-01-01 00:00:07Z was requested") as caught:
            await anext(process.replay().follow(resume_tokens.token_from_time(Timestamp(7, 1))))
        oldest = caught.value.extensions["oldestResumeToken"]
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(process.replay().follow(oldest)) as parts:
            await received.until(parts, expected[-1])
        assert received.tokens == expected


@one_driver
async def test_a_token_older_than_the_ring_is_history_lost_without_an_archive(
    mongo: Mongo, client: Client
) -> None:
    """The oldest valid token is the ring's."""
    process = Process(mongo)
    process.hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
    source = Source(mongo, ["things"], before_images=False, options=BRISK)
    follower = asyncio.create_task(publish_source(source, process.hub))
    client[mongo.name].things.insert_many([{"_id": n} for n in range(8)])
    await process.await_published()
    with pytest.raises(HistoryLost, match="history of things: not recorded") as caught:
        await anext(process.replay().follow(resume_tokens.token_from_time(Timestamp(7, 1))))
    received = ReceivedTokens(process.recording.archive)
    oldest = caught.value.extensions["oldestResumeToken"]
    async with aclosing(process.replay().follow(oldest)) as parts:
        await received.until(parts, process.hub.position)
    assert len(received.tokens) == 5
    await stop_task(follower)


@one_driver
async def test_a_replay_waits_for_a_recorder_that_is_behind_the_ring(
    mongo: Mongo, client: Client
) -> None:
    """Evicted events are not in the archive yet; after a limit the error has the lag."""
    async with Process.started(mongo, recorder=False, ring_events=2) as process:
        start = process.hub.position
        client[mongo.name].things.insert_many([{"_id": n} for n in range(9)])
        await process.await_published()
        process.progress._limit_s = 0.05
        with pytest.raises(ArchiveBehind) as caught:
            await anext(process.replay().follow(start))
        assert caught.value.extensions["lagSeconds"] >= 0
        process.progress._limit_s = 15
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(process.replay().follow(start)) as parts:
            waiting = asyncio.ensure_future(anext(parts))
            async with process.recording.running() as task:
                await received.take(await unless_ended(task, waiting))
                process.recorder = task
                expected = await archived(process, start)
                await unless_ended(task, received.until(parts, expected[-1]))
        assert received.tokens == expected
        assert received.parts[0] == "ReplayedRecords"


@one_driver
@pytest.mark.parametrize("key", [True, 1, {"a": 1}, "$x", float("nan"), Decimal128("2.5")])
async def test_a_replay_of_one_document_has_only_its_events(
    mongo: Mongo, client: Client, key: Any
) -> None:
    """Archive, ring and live events distinguish any ids: 1 and true are two."""
    async with Process.started(mongo) as process:
        start = process.hub.position
        things = client[mongo.name].things
        keys = [True, 1, {"a": 1}, {"a": True}, "$x", float("nan"), Decimal128("2.5"), 2]

        def write(turn: int) -> None:
            for each in keys:
                things.update_one({"_id": each}, {"$set": {"n": turn}}, upsert=True)

        write(1)
        write(2)
        await process.recorded()
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(
            process.replay().follow(start, interest=Interest(keys=_keys(key)))
        ) as parts:
            while not received.quiet:
                await received.take(await anext(parts))
            write(3)
            expected = await archived(process, start, key)
            await received.until(parts, expected[-1])
        assert len(expected) == 3
        assert received.tokens == expected


@one_driver
async def test_an_idle_subscriber_gets_checkpoint_events(mongo: Mongo, client: Client) -> None:
    """Their tokens only move forward, and never beyond an event that it must still get."""
    async with Process.started(mongo) as process:
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(process.replay().follow(None)) as parts:
            first = await anext(parts)
            assert isinstance(first, Idle)
            await received.take(first)
            client[mongo.name].elsewhere.insert_one({})
            await process.await_published()
            while received.quiet <= first.token:
                await received.take(await anext(parts))
            client[mongo.name].things.insert_one({"_id": 1})
            while not received.tokens:
                await received.take(await anext(parts))
        assert set(received.parts) == {"Idle", "LiveEvents"}


@one_driver
async def test_a_slow_subscriber_resumes_at_its_end(mongo: Mongo, client: Client) -> None:
    """It loses nothing."""
    async with Process.started(mongo, ring_events=100, backlog_events=3) as process:
        start = process.hub.position
        received = ReceivedTokens(process.recording.archive)
        async with aclosing(process.replay().follow(None)) as parts:
            await received.take(await anext(parts))
            client[mongo.name].things.insert_many([{"_id": n} for n in range(10)])
            expected = await archived(process, start)
            with pytest.raises(SlowConsumer):
                await received.until(parts, expected[-1])
        assert received.tokens == expected[:3]
        async with aclosing(process.replay().follow(received.tokens[-1])) as parts:
            await received.until(parts, expected[-1])
        assert received.tokens == expected


@one_driver
async def test_a_subscriber_that_leaves_is_removed(mongo: Mongo) -> None:
    """This holds in any phase; an interrupted subscription gets an error to resume."""
    async with Process.started(mongo) as process:
        for key in (None, 5):
            parts = process.replay().follow(None, interest=Interest(keys=_keys(key)))
            await anext(parts)
            assert process.hub.statistics()["subscribers"] == 1
            await parts.aclose()
            assert process.hub.statistics()["subscribers"] == 0
        parts = process.replay().follow(None)
        await anext(parts)
        process.hub.restart(process.hub.position)
        with pytest.raises(Unavailable):
            while True:
                await anext(parts)
        assert process.hub.statistics()["subscribers"] == 0
