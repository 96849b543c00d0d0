"""Hand-made change events, and a recorder with its dependencies over one collection of a test's
database.
"""

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
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.recorder import Recorder

T = TypeVar("T")

# An idle stream returns soon; a broken stream is reopened at once.
BRISK = SourceOptions(wait_ms=20, retry_first_s=0.01, retry_most_s=0.05)
# Longer than any test may take: other limits end it first.
PATIENT_S = 600
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)


def raw(document: Mapping[str, Any] | None) -> RawBSONDocument | None:
    """Return the document as the change stream delivers it."""
    if document is None:
        return None
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)


def token_at(seconds: int, count: int = 0) -> str:
    """Return a resume token; `count` is its position within the cluster time."""
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
    """Return a change event at a cluster time of `seconds`."""
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
    """Return a batch that ends at the last of these events."""
    return EventBatch(events, events[-1].token)


async def turn() -> None:
    """Let every other task that is ready run one step."""
    await asyncio.sleep(0)


async def stop_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end; raises its own exception, if any."""
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
    """A recorder, its archive and its other dependencies; nothing runs yet.

    Each instance acts as a process of its own: it shares only the database with others.
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
        """Start history now, not at the oldest oplog entry: other tests fill the oplog."""
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
        """Run the recorder during the context."""
        task = asyncio.create_task(self.recorder.run(fencing_token))
        try:
            yield task
        finally:
            await stop_task(task)

    async def caught_up(self, task: asyncio.Task[None]) -> None:
        """Wait until all writes so far, and the initial snapshot, are recorded."""
        while True:
            now = resume_tokens.token_from_time(await self.mongo.operation_time())
            await unless_ended(task, self.progress.wait(self.collection, now, limit_s=PATIENT_S))
            if self.recorder.statistics()["baseline_done"]:
                return

    async def at_rest(self, task: asyncio.Task[None]) -> None:
        """Wait for `caught_up`, and until no archive write is in flight."""
        await self.caught_up(task)
        await unless_ended(task, self.recorder._pipeline.drain())

    async def record(self, fencing_token: int = 1) -> list[dict[str, Any]]:
        """Run until all writes so far are recorded; returns the archive, checked."""
        async with self.running(fencing_token) as task:
            # A write that is cancelled in flight may still arrive later.
            await self.at_rest(task)
        return await self.versions()

    async def versions(self) -> list[dict[str, Any]]:
        """Return the archive in token order, checked: no document's chain has a hole."""
        records = await self.mongo.find(self.archive.name, {}, FindOptions(sort=[("_id", 1)]))
        check_chains(records)
        return records


class LosesHistory(Source):
    """A source that once starts before the oldest oplog entry."""

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
        raise HistoryLost(f"oplog: its oldest entry is after {after}")
        yield


class PartitionRecorders:
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
        """Start as if all partitions had been started now."""
        start = await self.parts[0].begin(baseline_done=baseline_done)
        await self.begin_at(start)
        return start

    async def begin_at(self, start: Checkpoint) -> None:
        for each in self.parts:
            await Checkpoints(self.mongo).save(each.name, start, fencing_token=0)

    @asynccontextmanager
    async def running(self, fencing_token: int = 1) -> AsyncIterator[asyncio.Task[None]]:
        """Run all recorders; when one ends, the others end, too."""
        task = asyncio.create_task(self._run(fencing_token))
        try:
            yield task
        finally:
            await stop_task(task)

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
                    each.exception()  # seen: the first one is raised

    async def at_rest(self, task: asyncio.Task[None]) -> None:
        """Wait until all writes so far are recorded and no archive write is in flight."""
        for each in self.parts:
            await each.at_rest(task)

    async def record(self, fencing_token: int = 1) -> list[dict[str, Any]]:
        """Run until all writes so far are recorded; returns the archive, checked."""
        async with self.running(fencing_token) as task:
            await self.at_rest(task)
        return await self.parts[0].versions()


def check_chains(records: Sequence[Mapping[str, Any]]) -> None:
    """Check that numbers grow and that `prev` and `first` link each version to its neighbours."""
    for versions in by_document(records):
        first = versions[0]
        assert first["prev"] is None, first
        assert first.get("first") is True, first
        for one, other in pairwise(versions):
            assert other["v"] > one["v"], (one, other)
            assert other["prev"] == one["_id"], (one, other)
            assert "first" not in other, other


def by_document(records: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the versions of each document, in order of the first version."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(identity(record["doc"]), []).append(record)
    yield from found.values()


def outline(records: Sequence[Mapping[str, Any]], key: Any = None) -> list[tuple[Any, ...]]:
    """Return (operation, number, whether there is a gap) of each record, or of one document's."""
    return [
        (record["op"], record["v"], record.get("gap", False))
        for record in records
        if key is None or identity(record["doc"]) == identity(key)
    ]
