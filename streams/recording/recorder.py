"""Recorder: stores every change event of one partition as a version, in order, once.

It writes the archive, then the checkpoint. After a crash anywhere, each version still exists once:
events that a document's last version already contains are skipped. It runs under a lease; a
checkpoint with an older fencing token is refused and ends it (`LeaseLost`).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.layouts.core.translation import translate_events
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.shared_source import SharedSource
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.bootstrap.collection_arrival import (
    CollectionArrival,
    advance_baseline,
)
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk
from revstream.streams.recording.bootstrap.preparation import CollectionPreparation
from revstream.streams.recording.bootstrap.starting_checkpoint import (
    remove_former_checkpoints,
    starting_checkpoint,
)
from revstream.streams.recording.commit_pipeline import CommitPipeline
from revstream.streams.recording.coverage_writer import UNREADABLE, CoverageWriter
from revstream.streams.recording.health import CollectionStuck, RecorderHealth
from revstream.streams.recording.layout_repair import repair_layout
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.version_builder import VersionBuilder
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from revstream.streams.recording.versions.version_batch import VersionBatch

__all__ = ["Recorder"]

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]

_COLLECTION_ENDS = frozenset({"drop", "rename", "dropDatabase"})


class Recorder:
    """The recorder of one partition of a collection. Call `run` under the partition's lease.

    Args:
        source: Source of at least the partition's events; one of the whole collection works too.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        source: Source | SharedSource,
        checkpoints: Checkpoints,
        progress: ArchiveProgress,
        *,
        version_field: str | None,
        fence_field: str | None = None,
        partition: Partition | None = None,
        deltas: bool = False,
        options: RecorderOptions | None = None,
        report: Report = lambda collection, read, total: None,
        setup: CollectionSetup | None = None,
    ) -> None:
        """Create a recorder.

        Args:
            report: Called with the name, the documents read and the documents in total of the
                initial
                snapshot; the numbers are equal at the end, and both 0 where it is aborted.
            setup: Creates the images and indexes of the collection.
        """
        self.partition = partition or Partition(archive.collection)
        self.name = self.partition.name
        self.collection = archive.collection
        self._mongo = mongo
        self._archive = archive
        self._layout = archive.layout
        self._source = source
        self._checkpoints = checkpoints
        self._progress = progress
        self._options = options or RecorderOptions()
        self._report = report
        self._preparation = CollectionPreparation(self.collection, self._layout, setup)
        self._pipeline = CommitPipeline(
            self.name,
            archive,
            self._save,
            on_archived=functools.partial(progress.advance, self.partition),
            idle_save_s=self._options.idle_save_s,
        )
        self._builder = VersionBuilder(
            mongo,
            archive,
            self.partition,
            version_field=version_field,
            fence_field=fence_field,
            deltas=deltas,
            cache_bytes=self._options.cache_bytes,
            drain=self._pipeline.drain,
        )
        self._coverage = CoverageWriter(mongo, archive, self.partition)
        self._arrival = CollectionArrival(
            self._builder, self._pipeline, self._coverage, self._read_chunk
        )
        self._checkpoint = Checkpoint("", "")
        self._fencing_token = 0
        self._chunk: SnapshotChunk | None = None
        self._health = RecorderHealth(mongo, checkpoints, self.partition)
        self._caught_up_at = self._upto = ""
        self._batches = self._aside = 0

    async def run(self, fencing_token: int) -> None:
        """Record from the stored checkpoint on, for ever.

        Raises:
            LeaseLost: Another process has taken over.
        """
        self._fencing_token = fencing_token
        while True:
            try:
                await self._run()
            except CollectionStuck as exc:
                await self._health.note(exc, self._upto, fencing_token=fencing_token)
                await asyncio.sleep(self._health.pause_s)

    async def _run(self) -> None:
        """Record until the collection is stuck."""
        # From the stored state, not from memory: another holder may have made progress in between.
        self._builder.clear()
        self._archive.recheck_indexes()
        self._preparation.done = False
        self._chunk = None
        await self._checkpoints.claim(self.name, fencing_token=self._fencing_token)
        self._checkpoint = checkpoint = await starting_checkpoint(
            self._mongo, self._checkpoints, self.partition
        )
        self._health.begin(checkpoint.trouble)
        await self._coverage.begin(checkpoint)
        # Before the first event, so that a crash on it loses nothing.
        await self._pipeline.save(checkpoint)
        self._progress.note_baseline(self.partition, checkpoint.baseline)
        await self._coverage.drop_open_gaps(
            await remove_former_checkpoints(self._mongo, self._checkpoints, self.partition)
        )
        self._caught_up_at = resume_tokens.token_from_time(await self._mongo.operation_time())
        repairs = self._layout.keeps and self.partition.index == 0
        recovering = asyncio.ensure_future(repair_layout(self._layout)) if repairs else None
        try:
            while True:
                try:
                    await self._follow()
                except HistoryLost as exc:
                    await self._pipeline.drain()
                    await self._restart_after_loss(exc)
        except asyncio.CancelledError:
            await self._pipeline.flush()
            raise
        finally:
            try:
                await cancel_and_wait(recovering)
            finally:
                try:
                    await self._pipeline.abort()
                finally:
                    self._progress.remove_recorder(self.partition)
                    self._report(self.partition.label, 0, 0)

    def statistics(self) -> dict[str, Any]:
        baseline = self._checkpoint.baseline
        return {
            "versions": self._pipeline.versions,
            "duplicates": self._builder.duplicates,
            "skipped": self._builder.skipped,
            "gaps": self._builder.gaps,
            "unrecorded": self._builder.unrecorded,
            "set_aside": self._builder.aside,
            "batches": self._batches,
            "reconnects": self._source.reconnects,
            "baseline_documents": baseline.documents,
            "baseline_read": baseline.read,
            "baseline_total": baseline.total,
            "baseline_done": baseline.done,
            "position": self._checkpoint.token,
        }

    @property
    def trouble(self) -> str | None:
        """Reason why the stream is not open; None where it is, or is about to be."""
        return self._source.trouble

    @property
    def collection_trouble(self) -> str | None:
        """Reason why the collection's history is not recorded, or is incomplete."""
        return self._health.trouble

    async def _follow(self) -> None:
        # The pre-image of a write is the first version of a document that has none yet.
        self._source.before_images = not self._checkpoint.baseline.done
        batches = self._source.batches(self._checkpoint.token)
        upcoming = asyncio.ensure_future(anext(batches))
        try:
            while True:
                batch = await upcoming
                # The next batch is read while this one is built and written.
                upcoming = asyncio.ensure_future(anext(batches))
                try:
                    await self._take_batch(batch)
                except Exception as exc:
                    self._upto = batch.position
                    raise await self._health.stuck_from(exc) from exc
        finally:
            try:
                await cancel_and_wait(upcoming)
            finally:
                await batches.aclose()

    async def _take_batch(self, batch: EventBatch) -> None:
        """Build the versions of a batch and of a chunk that belongs into it; the pipeline writes
        them.
        """
        await self._health.check()
        events = batch.events
        await self._preparation.after_batch(written=any(each.is_write for each in events))
        if batch.passed_over or (self._layout.keeps and any(each.bare for each in events)):
            await self._restart_after_unread(batch.position)
        if self._chunk is not None and batch.position >= resume_tokens.token_from_time(
            self._chunk.at
        ):
            before = [each for each in events if each.at <= self._chunk.at]
            await self._pipeline.write(await self._build(before))
            # None where another collection has arrived under the name since the chunk was read.
            if self._chunk is not None:
                await self._take_chunk(self._chunk)
                self._chunk = None
            events = events[len(before) :]
        versions = await self._build(events)
        self._batches += 1
        # Never back: records of the chunk sort after the chunk's time.
        position = max(self._checkpoint.token, batch.position)
        self._progress.note_drafted(self.partition, position, versions.numbered)
        self._checkpoint = replace(self._checkpoint, token=position)
        await self._pipeline.put(versions, self._checkpoint, worth_saving=bool(batch.events))
        baseline = self._checkpoint.baseline
        if not baseline.done and self._chunk is None and batch.position >= self._caught_up_at:
            if not baseline.started:
                total = await self._mongo.estimated_count(self.collection)
                baseline = replace(baseline, total=total)
                self._checkpoint = replace(self._checkpoint, baseline=baseline)
                self._report(self.partition.label, 0, total)
            self._chunk = await self._read_chunk(baseline)
        if self._builder.aside != self._aside:
            self._aside = self._builder.aside
            await self._health.count_set_aside()
        if self._checkpoint.baseline.done or self._chunk is not None:
            await self._health.note_progress(position, fencing_token=self._fencing_token)

    async def _restart_after_unread(self, position: str) -> None:
        """Repeat the snapshot after an unreadable write: nothing is known of it."""
        self._progress.interrupt(self.partition)
        log.error(
            "a change could not be read: reading the documents again",
            extra={"collection": self.collection},
        )
        await self._coverage.open_gap(self._checkpoint.token, UNREADABLE)
        self._chunk = None
        self._caught_up_at = position
        self._checkpoint = replace(self._checkpoint, baseline=Baseline(doubt=position))
        self._progress.note_baseline(self.partition, self._checkpoint.baseline)

    async def _build(self, events: Sequence[ChangeEvent]) -> VersionBatch:
        """Build the versions of a batch; events of the whole collection are written at once."""
        versions = VersionBatch()
        for writes, group in itertools.groupby(events, key=lambda each: each.is_write):
            if writes:
                await self._pipeline.write(versions)
                writes_of_documents = await self._translate(list(group))
                versions = await self._builder.build_from_events(
                    writes_of_documents, self._checkpoint.baseline
                )
                continue
            await self._pipeline.write(versions)
            versions = VersionBatch()
            for event in group:
                await self._handle_collection_event(event)
        return versions

    async def _translate(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The writes of this partition's documents."""
        if not self._layout.keeps:
            return events
        writes_of_documents, untranslated = await translate_events(self._layout, events)
        for event, fault in untranslated:
            # Only one of several partitions does it; the document, and so its partition, is
            # unknown.
            if self.partition.index == 0:
                await self._builder.set_aside(event, fault)
        return [each for each in writes_of_documents if self.partition.concerns(each)]

    async def _handle_collection_event(self, event: ChangeEvent) -> None:
        """Handle drop, rename and dropDatabase events."""
        arrived = event.renamed_to == self.collection
        if arrived or event.operation in _COLLECTION_ENDS:
            async for versions in self._builder.mass_deletions.all_documents(event):
                await self._pipeline.write(versions)
        if event.operation == "dropDatabase":
            # The archive was dropped with it.
            self._builder.clear()
            self._archive.recheck_indexes()
            if self._preparation.done:
                await self._archive.prepare()
            await self._coverage.begin_again(event)
        dropped = event.operation == "dropDatabase" and self._preparation.done
        if arrived or dropped or event.operation == "drop":
            await self._preparation.prepare(create=True)
        elif event.operation == "rename":
            # Not at once: it would block the rename of another collection to this name.
            self._preparation.done = False
        if arrived:
            self._chunk = None
            self._progress.note_baseline(self.partition, Baseline(doubt=event.token))
            read = await self._arrival.record(event, self._checkpoint.baseline)
            self._checkpoint = replace(self._checkpoint, baseline=read)
            self._progress.note_baseline(self.partition, read)
            self._report(self.partition.label, read.read, read.total)

    async def _take_chunk(self, chunk: SnapshotChunk) -> None:
        baseline = self._checkpoint.baseline
        versions = await self._builder.build_from_chunk(
            chunk, baseline.documents, doubt=baseline.doubt
        )
        await self._pipeline.write(versions)
        await self._archive.mark_spanning(versions.spanning)
        number = baseline.documents + len(versions.records)
        async for vanished in self._builder.mass_deletions.missing_in_chunk(chunk, number):
            await self._pipeline.write(vanished)
        read = advance_baseline(baseline, chunk, number)
        self._report(self.partition.label, read.read, read.total)
        if read.done:
            await self._coverage.mark_complete(chunk, lost=bool(read.doubt))
        place = resume_tokens.token_after_event(resume_tokens.token_from_time(chunk.at))
        self._checkpoint = replace(self._checkpoint, token=place, baseline=read)
        self._progress.note_baseline(self.partition, read)

    async def _read_chunk(
        self, baseline: Baseline, arrival: ChangeEvent | None = None
    ) -> SnapshotChunk:
        return await read_chunk(
            self._mongo,
            self.collection,
            baseline,
            size=self._options.chunk_documents,
            layout=self._layout if isinstance(self._layout, SelfVersionedLayout) else None,
            arrival=arrival,
        )

    async def _save(self, checkpoint: Checkpoint) -> None:
        await self._checkpoints.save(self.name, checkpoint, fencing_token=self._fencing_token)

    async def _restart_after_loss(self, lost: HistoryLost) -> None:
        """Repeat the snapshot after a loss of history; documents that differ get versions with a
        gap.
        """
        self._progress.interrupt(self.partition)
        now = await self._mongo.operation_time()
        log.error(
            "history lost: reading the documents again",
            extra={"collection": self.collection, "reason": lost.message},
        )
        await self._coverage.open_gap(self._checkpoint.token)
        start = resume_tokens.time_prefix(now)
        self._checkpoint = replace(self._checkpoint, token=start, baseline=Baseline(doubt=start))
        self._progress.note_baseline(self.partition, self._checkpoint.baseline)
        self._caught_up_at = resume_tokens.token_from_time(now)
        self._chunk = None
        await self._pipeline.save(self._checkpoint)
