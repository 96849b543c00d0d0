"""Change events made by hand, and a recorder with all that it needs over one collection of a test's
database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent, EventBatch, identity
from revstream.streams.changefeed.source import Source, SourceOptions
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub, HubOptions
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.recorder import Recorder

T = TypeVar("T")

# A stream that is quiet says so soon; a broken one is opened again at once.
BRISK = SourceOptions(wait_ms=20, retry_first_s=0.01, retry_most_s=0.05)
# Longer than any test may take: what ends it is its own limit.
PATIENT_S = 600
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def raw(document: Mapping[str, Any] | None) -> RawBSONDocument | None:
    """The document as the stream brings it."""
    if document is None:
        return None
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)


def token_at(seconds: int, count: int = 0) -> str:
    """A token as an event has it, `count` being its place within its cluster time."""
    return f"{resume_tokens.time_prefix(Timestamp(seconds, 1))}2B04{count:04X}"


def event(
    seconds: int = 1,
    *,
    key: Any = 1,
    operation: str = "update",
    after: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    update: Mapping[str, Any] | None = None,
    collection: str = "things",
    renamed_to: str | None = None,
    count: int = 0,
) -> ChangeEvent:
    """A change event at a cluster time of so many seconds."""
    return ChangeEvent(
        token=token_at(seconds, count),
        at=Timestamp(seconds, 1),
        wall=FIRST_DAY + timedelta(seconds=seconds),
        operation=operation,
        collection=collection,
        key=key,
        after=raw(after),
        before=raw(before),
        update=raw(update),
        renamed_to=renamed_to,
    )


def batch(*events: ChangeEvent) -> EventBatch:
    """A round trip that brought these, and nothing stands behind the last of them."""
    return EventBatch(events, events[-1].token)


async def turn() -> None:
    """Let every other task that is ready take one step."""
    await asyncio.sleep(0)


async def finished(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end; what it raised of its own is raised here."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


async def unless_ended(task: asyncio.Future[Any], waited: Awaitable[T]) -> T:
    """Return the awaited result; raise if the task ends before it."""
    waiting = asyncio.ensure_future(waited)
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            task.result()
            raise AssertionError("the task ended, which nothing asked of it")
        return waiting.result()
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


class Recording:
    """A recorder, its archive and what else it is given; nothing runs yet.

    Each instance is a process of its own: it shares with others only what lies in the database.
    """

    def __init__(
        self,
        mongo: Mongo,
        collection: str = "things",
        *,
        version_field: str | None = "version",
        fence_field: str | None = None,
        deltas: bool = False,
        options: RecorderOptions | None = None,
        source_options: SourceOptions = BRISK,
        archive: Archive | None = None,
        checkpoints: Checkpoints | None = None,
        source: Any = None,
        hub_options: HubOptions | None = None,
        partition: Partition | None = None,
        progress: ArchiveProgress | None = None,
    ) -> None:
        self.mongo = mongo
        self.collection = collection
        self.version_field = version_field
        self.partition = partition or Partition(collection)
        self.name = self.partition.name
        self.archive = archive or Archive(mongo, collection)
        self.checkpoints = checkpoints or Checkpoints(mongo)
        self.hub = Hub(
            [collection],
            position=resume_tokens.token_from_time(Timestamp(1, 1)),
            options=hub_options,
        )
        self.progress = progress or ArchiveProgress(self.checkpoints, self.hub, limit_s=15)
        self.source = source or Source(
            mongo,
            [collection],
            before_images=False,
            holds=self.partition.contains,
            options=source_options,
        )
        self.recorder = Recorder(
            mongo,
            self.archive,
            self.source,
            self.checkpoints,
            self.progress,
            partition=self.partition,
            version_field=version_field,
            fence_field=fence_field,
            deltas=deltas,
            options=options,
        )

    async def begin(self, *, baseline_done: bool = False) -> Checkpoint:
        """Let history begin now, not at the oldest entry of an oplog that other tests fill."""
        await self.archive.prepare()
        now = resume_tokens.token_from_time(await self.mongo.operation_time())
        checkpoint = Checkpoint(now, now, Baseline(done=baseline_done))
        await CoverageStore(self.mongo).set_begin(self.collection, None)
        if baseline_done:
            await CoverageStore(self.mongo).set_known(self.collection, None)
        await self.checkpoints.save(self.name, checkpoint, fencing_token=0)
        return checkpoint

    @asynccontextmanager
    async def running(self, fencing_token: int = 1) -> AsyncIterator[asyncio.Task[None]]:
        """The recorder at work."""
        task = asyncio.create_task(self.recorder.run(fencing_token))
        try:
            yield task
        finally:
            await finished(task)

    async def caught_up(self, task: asyncio.Task[None]) -> None:
        """Wait until everything written so far, and the first reading, is recorded."""
        while True:
            now = resume_tokens.token_from_time(await self.mongo.operation_time())
            await unless_ended(task, self.progress.wait(self.collection, now, limit_s=PATIENT_S))
            if self.recorder.statistics()["baseline_done"]:
                return

    async def at_rest(self, task: asyncio.Task[None]) -> None:
        """Wait until, beyond that, no write is on its way."""
        await self.caught_up(task)
        await unless_ended(task, self.recorder._pipeline.drain())

    async def record(self, fencing_token: int = 1) -> list[dict[str, Any]]:
        """Run until everything written so far is recorded; the archive, checked."""
        async with self.running(fencing_token) as task:
            # A write that is cancelled on its way may arrive all the same, later.
            await self.at_rest(task)
        return await self.versions()

    async def versions(self) -> list[dict[str, Any]]:
        """The archive in token order, checked: every document's chain is without a hole."""
        records = await self.mongo.find(self.archive.name, {}, sort=[("_id", 1)])
        check_chains(records)
        return records


class LosesHistory(Source):
    """The first time it is asked, it begins where the oplog no longer reaches."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, ["things"], before_images=False, options=BRISK)
        self._asked = 0

    def batches(self, after: str) -> Any:
        self._asked += 1
        if self._asked == 1:
            return self._lost(after)
        assert resume_tokens.cluster_time(after) > Timestamp(1, 1)
        return super().batches(after)

    async def _lost(self, after: str) -> Any:
        raise HistoryLost(f"the oplog no longer reaches back to {after}")
        yield


class Divided:
    """The recorders of all partitions of a collection, in one process."""

    def __init__(
        self, mongo: Mongo, count: int, make: Callable[..., Recording] = Recording, **options: Any
    ) -> None:
        self.mongo = mongo
        self.partitions = collection_partitions("things", count)
        self.hub = Hub(
            ["things"],
            position=resume_tokens.token_from_time(Timestamp(1, 1)),
            options=HubOptions(ring_events=5),
        )
        self.progress = ArchiveProgress(Checkpoints(mongo), self.hub, limit_s=15)
        self.parts = [
            make(mongo, partition=each, progress=self.progress, **options)
            for each in self.partitions
        ]

    async def begin(self, *, baseline_done: bool = False) -> Checkpoint:
        """Begin as if all of them had been started now."""
        start = await self.parts[0].begin(baseline_done=baseline_done)
        await self.begin_at(start)
        return start

    async def begin_at(self, start: Checkpoint) -> None:
        for each in self.parts:
            await Checkpoints(self.mongo).save(each.name, start, fencing_token=0)

    @asynccontextmanager
    async def running(self, fencing_token: int = 1) -> AsyncIterator[asyncio.Task[None]]:
        """All at work; where one ends, so do the others."""
        task = asyncio.create_task(self._run(fencing_token))
        try:
            yield task
        finally:
            await finished(task)

    async def _run(self, fencing_token: int) -> None:
        tasks = [asyncio.create_task(each.recorder.run(fencing_token)) for each in self.parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            for each in tasks:
                if not each.cancelled():
                    each.exception()  # seen: the first one is told

    async def at_rest(self, task: asyncio.Task[None]) -> None:
        """Wait until everything written so far is recorded, and no write is on its way."""
        for each in self.parts:
            await each.at_rest(task)

    async def record(self, fencing_token: int = 1) -> list[dict[str, Any]]:
        """Run until everything written so far is recorded; the archive, checked."""
        async with self.running(fencing_token) as task:
            await self.at_rest(task)
        return await self.parts[0].versions()


def check_chains(records: Sequence[Mapping[str, Any]]) -> None:
    """Numbers grow, `prev` and `first` join each version to its neighbours."""
    for versions in by_document(records):
        first = versions[0]
        assert first["prev"] is None, first
        assert first.get("first") is True, first
        for one, other in pairwise(versions):
            assert other["v"] > one["v"], (one, other)
            assert other["prev"] == one["_id"], (one, other)
            assert "first" not in other, other


def by_document(records: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The versions of each document, in the order in which the documents first appear."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(identity(record["doc"]), []).append(record)
    yield from found.values()


def told(records: Sequence[Mapping[str, Any]], key: Any = None) -> list[tuple[Any, ...]]:
    """(operation, number, whether a gap) of each record, of one document where `key` is given."""
    return [
        (record["op"], record["v"], record.get("gap", False))
        for record in records
        if key is None or identity(record["doc"]) == identity(key)
    ]
