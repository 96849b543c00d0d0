"""Delivery of versions to a handler: in order, each at least once, across failures and
takeovers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.horizon import Horizons
from revstream.streams.changefeed.source import Source
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import LeaseLost, Unavailable
from revstream.streams.listeners.consumer import Consumer, ConsumerOptions, Handler
from revstream.streams.live.hub import Hub, HubOptions, publish_source
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.version import Version
from tests.support.eventually import eventually
from tests.support.streams import Recording, stop_task

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

BRISK = ConsumerOptions(
    page=3, look_every_s=0.01, idle_save_s=0.01, retry_first_s=0.01, retry_most_s=0.02
)


class RecordingHandler(Handler):
    """Handler that stores what it receives, and fails where a test wants it."""

    name = "noting"
    collection = "things"

    def __init__(self, **fails: Any) -> None:
        self.seen: list[tuple[Any, int]] = []
        self.calls: list[int] = []
        self.begun: list[int] = []
        self.ended = 0
        self.reasons: list[str] = []
        self.left = 0
        # Versions up to the saved checkpoint; the next holder receives the others again.
        self.done = 0
        # How often versions of a document fail, and with which error.
        self.fails = fails

    async def begin(self, fencing_token: int) -> None:
        self.begun.append(fencing_token)

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        self.calls.append(len(versions))
        for each in versions:
            failures = self.fails.get(each.document, [])
            if failures:
                raise failures.pop(0)
            self.seen.append((each.document, each.number))

    async def turn(self, fencing_token: int) -> bool:
        self.done = len(self.seen)
        self.left = max(0, self.left - 1)
        return self.left > 0

    async def end(self) -> None:
        self.ended += 1

    async def lost(self, reason: str) -> None:
        self.reasons.append(reason)


class FromTheStart(RecordingHandler):
    start = "beginning"


def consumer_of(
    recording: Recording,
    handler: Handler,
    options: ConsumerOptions = BRISK,
    hub: Hub | None = None,
    opened_at: str = resume_tokens.BEGINNING,
) -> Consumer:
    return Consumer(
        handler,
        recording.archive,
        hub or recording.hub,
        recording.progress,
        recording.checkpoints,
        Horizons(recording.mongo),
        opened_at=opened_at,
        options=options,
    )


@asynccontextmanager
async def working(consumer: Consumer, fencing_token: int = 1) -> Any:
    task = asyncio.create_task(consumer.run(fencing_token))
    try:
        yield task
    finally:
        await stop_task(task)


async def written(recording: Recording, client: Client, **documents: int) -> None:
    """Record more versions of each document, in turn; the values are the numbers of versions."""
    things = client[recording.mongo.name].things
    for n in range(max(documents.values())):
        for key, count in documents.items():
            if n < count:
                change = {"$inc": {"version": 1}, "$set": {"n": n}}
                things.update_one({"_id": key}, change, upsert=True)
    await recorded(recording)


async def recorded(recording: Recording) -> None:
    """Wait until all is recorded and the checkpoint saved, for which a stopping recorder does
    not wait.
    """
    while True:
        stored = await recording.checkpoints.load(recording.name)
        assert stored is not None
        records = await recording.record(stored.fencing_token + 1)
        stored = await recording.checkpoints.load(recording.name)
        assert stored is not None
        if stored.token >= records[-1]["_id"]:
            return


def history(**documents: int) -> list[tuple[str, int]]:
    """Return the expected deliveries of `written`, in order."""
    return [
        (key, n + 1)
        for n in range(max(documents.values()))
        for key, count in documents.items()
        if n < count
    ]


async def test_each_version_is_delivered_once_and_in_order(mongo: Mongo, client: Client) -> None:
    """Versions in the archive and new ones are delivered page by page, deletions included."""
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=4, b=3)
    handler = FromTheStart()
    consumer = consumer_of(recording, handler)
    async with working(consumer):
        await eventually(lambda: len(handler.seen) == 7)
        client[mongo.name].things.delete_one({"_id": "a"})
        await recorded(recording)
        await eventually(lambda: len(handler.seen) == 8)
    assert handler.seen == [*history(a=4, b=3), ("a", 5)]
    assert max(handler.calls) == 3
    assert (handler.begun, consumer.versions, consumer.failures) == ([1], 8, 0)


async def test_a_new_listener_begins_at_its_start_position(mongo: Mongo, client: Client) -> None:
    """It begins with versions since the start of its process, also with those from before its first
    run; later it continues after its checkpoint.
    """
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=2)
    opened_at = resume_tokens.token_from_time(await mongo.operation_time())
    await written(recording, client, b=1)
    handler = RecordingHandler()
    async with working(consumer_of(recording, handler, opened_at=opened_at)):
        await written(recording, client, c=1)
        await eventually(lambda: handler.done == 2)
    assert handler.seen == [("b", 1), ("c", 1)]
    await written(recording, client, d=2)
    again = RecordingHandler()
    async with working(consumer_of(recording, again), 2):
        await eventually(lambda: again.seen == [("d", 1), ("d", 2)])


async def test_a_listener_from_the_beginning_has_a_checkpoint_after_its_first_read(
    mongo: Mongo, client: Client
) -> None:
    """Other processes compute its lag from the checkpoint, which exists even without versions."""
    recording = Recording(mongo)
    start = await recording.begin()
    rarely = ConsumerOptions(look_every_s=0.01, idle_save_s=3600)
    handler = FromTheStart()
    consumer = consumer_of(recording, handler, rarely)
    places = client[mongo.name]["revstream.checkpoints"]
    async with working(consumer):
        query = {"_id": "noting", "token": start.token}
        await eventually(lambda: places.find_one(query))
        assert (handler.seen, consumer.lag_s) == ([], 0.0)


async def test_a_failed_version_is_delivered_again_before_later_ones(
    mongo: Mongo, client: Client
) -> None:
    """The order is kept, nothing is skipped, and the failure is reported while it lasts."""
    recording = Recording(mongo)
    await recording.begin()
    handler = FromTheStart(b=[ValueError("no"), KeyError("b")])
    consumer = consumer_of(recording, handler)
    await written(recording, client, a=1, b=1, c=1)
    async with working(consumer):
        await eventually(lambda: ("c", 1) in handler.seen)
    assert handler.seen == [("a", 1), ("a", 1), ("a", 1), ("b", 1), ("c", 1)]
    assert (consumer.failures, consumer.trouble) == (2, None)


@pytest.mark.parametrize("failure", [LeaseLost("late"), Unavailable("gone")])
async def test_a_lost_lease_and_a_mongodb_failure_end_the_listener(
    mongo: Mongo, client: Client, failure: Exception
) -> None:
    """The next holder receives the versions that were not handled."""
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=5)
    handler = FromTheStart()
    handle, calls = handler.handle, 0

    async def ends(versions: Sequence[Version], fencing_token: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise failure
        await handle(versions, fencing_token)

    handler.handle = ends  # type: ignore[method-assign]
    with pytest.raises(type(failure)):
        await consumer_of(recording, handler).run(1)
    assert handler.seen == history(a=3)
    assert handler.ended == 1
    following = FromTheStart()
    async with working(consumer_of(recording, following), 2):
        await eventually(lambda: following.seen == history(a=5)[3:])


async def test_a_deposed_listener_cannot_save_its_checkpoint(mongo: Mongo, client: Client) -> None:
    """It learns this after handling its current versions, which its successor receives, too."""
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=1)
    reached, go_on = asyncio.Event(), asyncio.Event()
    zombie = FromTheStart()
    handle = zombie.handle

    async def slowly(versions: Sequence[Version], fencing_token: int) -> None:
        reached.set()
        await go_on.wait()
        await handle(versions, fencing_token)

    zombie.handle = slowly  # type: ignore[method-assign]
    task = asyncio.create_task(consumer_of(recording, zombie).run(1))
    await reached.wait()
    successor = FromTheStart()
    async with working(consumer_of(recording, successor), 2):
        await eventually(lambda: successor.seen == [("a", 1)])
        go_on.set()
        with pytest.raises(LeaseLost, match="fencing token 1, minimum is 2"):
            await task
        await written(recording, client, a=1)
        await eventually(lambda: successor.seen == [("a", 1), ("a", 2)])
    assert zombie.seen == [("a", 1)]


async def test_deferred_work_runs_between_pages(mongo: Mongo, client: Client) -> None:
    """Deferred work does not wait for a version, and versions do not wait for it."""
    recording = Recording(mongo)
    await recording.begin()
    handler = FromTheStart()
    handler.left = 50
    async with working(consumer_of(recording, handler, ConsumerOptions(look_every_s=30))):
        await eventually(lambda: handler.left == 0)


async def test_failures_are_visible_to_other_processes(mongo: Mongo, client: Client) -> None:
    """The checkpoint shows a failure while it lasts, and none of a holder that is gone."""
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=1)
    handler = FromTheStart(a=[ValueError("no")] * 1000)

    async def reported_error() -> str | None:
        stored = await recording.checkpoints.load("noting")
        return None if stored is None else stored.trouble

    async with working(consumer_of(recording, handler), 1):
        await eventually(lambda: len(handler.calls) > 3)
        assert await reported_error() == "ValueError"
    assert handler.ended == 1
    again = FromTheStart(a=[ValueError("again")])
    consumer = consumer_of(recording, again)
    async with working(consumer, 2):
        await eventually(lambda: consumer.versions == 1)
        assert await reported_error() is None
    assert len(again.calls) == 2


async def test_versions_truncated_before_delivery_are_reported_once(
    mongo: Mongo, client: Client
) -> None:
    """Later versions are delivered all the same. A new listener has no loss to report."""
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=1)
    handler = FromTheStart()
    async with working(consumer_of(recording, handler)):
        await eventually(lambda: handler.done == 1)
    assert handler.seen == [("a", 1)]
    await written(recording, client, a=1, b=1)
    records = await recording.versions()
    await Horizons(mongo).advance("things", records[-1]["_id"])
    async with working(consumer_of(recording, handler), 2):
        await eventually(lambda: len(handler.seen) == 3)
        await written(recording, client, b=1)
        await eventually(lambda: len(handler.seen) == 4)
    [reason] = handler.reasons
    assert "were deleted before noting handled them" in reason
    late = FromTheStart()
    late.name = "late"
    async with working(consumer_of(recording, late)):
        await eventually(lambda: late.seen == handler.seen)
    assert late.reasons == []


@pytest.mark.parametrize("damage", [{"kept": 99}, {"parts": 2}])
async def test_an_unreadable_version_is_reported_and_skipped(
    mongo: Mongo, client: Client, damage: dict[str, int]
) -> None:
    """The archive is damaged, or another program has removed a version from a self-versioned
    layout.

    The version is not tried again, even if it is the last of its page or alone.
    """
    recording = Recording(mongo)
    await recording.begin()
    await written(recording, client, a=4, b=3)
    archive = client[mongo.name]["things.versions"]
    gone = {"$set": {"packed": True, **damage}, "$unset": {"full": "", "patch": ""}}
    for key, number in (("b", 1), ("a", 2)):
        archive.update_one({"doc": key, "v": number}, gone)
    handler = FromTheStart()
    async with working(consumer_of(recording, handler)) as task:
        await eventually(lambda: task.done() or len(handler.seen) == 5)
        await written(recording, client, c=1)
        await eventually(lambda: task.done() or ("c", 1) in handler.seen)
        assert not task.done()
    left = [each for each in history(a=4, b=3) if each not in (("b", 1), ("a", 2))]
    assert handler.seen == [*left, ("c", 1)]
    first, second = handler.reasons
    assert first.startswith("version 1 of things/'b': ")
    assert second.startswith("version 2 of things/'a': ")


async def test_the_stream_wakes_the_listener_and_never_ends_it(
    mongo: Mongo, client: Client
) -> None:
    """It polls rarely, and is never a slow consumer."""
    recording = Recording(mongo)
    await recording.begin()
    now = resume_tokens.token_from_time(await mongo.operation_time())
    hub = Hub(["things"], position=now, options=HubOptions(backlog_events=2))
    source = Source(mongo, ["things"], before_images=False)
    handler = FromTheStart()
    rarely = ConsumerOptions(look_every_s=3600)
    stream = asyncio.create_task(publish_source(source, hub))
    try:
        async with (
            recording.running(),
            working(consumer_of(recording, handler, rarely, hub)),
        ):
            await eventually(lambda: handler.begun == [1])
            for n in range(20):
                change = {"$inc": {"version": 1}, "$set": {"n": n}}
                client[mongo.name].things.update_one({"_id": "a"}, change, upsert=True)
            await eventually(lambda: len(handler.seen) == 20, within_s=30)
            hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
            client[mongo.name].things.insert_one({"_id": "b", "version": 1})
            await eventually(lambda: ("b", 1) in handler.seen, within_s=30)
    finally:
        await stop_task(stream)
    assert handler.seen == [*history(a=20), ("b", 1)]
