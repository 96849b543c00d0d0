"""Write history: every change event of one collection becomes a version in its archive, in order,
once.

Order: archive, then checkpoint. Crash anywhere, restart, and each version is there once: what a
document's last version already covers is passed over. Runs under a lease; a checkpoint with an
older fencing token is refused and ends it (`LeaseLost`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from streams import tokens
from streams.archive import Archive
from streams.bootstrap import Chunk, oldest_start, read_chunk
from streams.checkpoints import Baseline, Checkpoint, Checkpoints
from streams.drafting import Draft, Drafting
from streams.errors import HistoryLost, LeaseLost
from streams.events import Batch, ChangeEvent
from streams.mongo import Mongo
from streams.progress import Progress
from streams.source import Source

__all__ = ["Recorder", "RecorderOptions"]

log = logging.getLogger(__name__)

_GONE = frozenset({"drop", "rename", "dropDatabase"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """Args:
    cache_bytes: last versions kept in memory.
    chunk_documents: documents per chunk of the first reading.
    idle_save_s: how often a quiet stream's position is saved, so that it does not age out of the
        oplog.
    """

    cache_bytes: int = 64 * 1024 * 1024
    chunk_documents: int = 2000
    idle_save_s: float = 5.0


class Recorder:
    """The recorder of one collection. `run` it under a lease."""

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        source: Source,
        checkpoints: Checkpoints,
        progress: Progress,
        *,
        name: str,
        version_field: str | None,
        options: RecorderOptions | None = None,
    ) -> None:
        self.name = name
        self.collection = archive.collection
        self._mongo = mongo
        self._archive = archive
        self._source = source
        self._checkpoints = checkpoints
        self._progress = progress
        self._options = options or RecorderOptions()
        self._drafting = Drafting(
            mongo,
            archive,
            version_field=version_field,
            cache_bytes=self._options.cache_bytes,
            settled=self._settled,
        )
        self._checkpoint = Checkpoint("", "")
        self._stored = self._checkpoint
        self._writing: asyncio.Future[None] | None = None
        self._fencing_token = 0
        self._saved_at = 0.0
        self._chunk: Chunk | None = None
        self._caught_up_at = ""
        self._versions = self._batches = 0

    async def run(self, fencing_token: int) -> None:
        """Record from the stored checkpoint on, for ever.

        Raises:
            LeaseLost: another process has taken over.
        """
        self._fencing_token = fencing_token
        # From what is stored, not from memory: another holder may have gone on in between.
        self._drafting.forget()
        self._chunk = None
        checkpoint = await self._checkpoints.load(self.name)
        if checkpoint is None:
            start = await oldest_start(self._mongo)
            checkpoint = Checkpoint(start, start)
        self._checkpoint = checkpoint
        # Before the first event, so that a crash on it loses nothing; and refuses the last holder.
        await self._save(checkpoint)
        await self._archive.mend(checkpoint.token)
        self._caught_up_at = tokens.moment(await self._mongo.operation_time())
        try:
            while True:
                try:
                    await self._follow()
                except HistoryLost as exc:
                    await self._settled()
                    await self._begin_anew(exc)
        finally:
            await _dismiss(self._writing)
            self._writing = None
            self._progress.leave(self.collection)

    def statistics(self) -> dict[str, Any]:
        baseline = self._checkpoint.baseline
        return {
            "versions": self._versions,
            "skipped": self._drafting.skipped,
            "gaps": self._drafting.gaps,
            "batches": self._batches,
            "reconnects": self._source.reconnects,
            "baseline_documents": baseline.documents,
            "baseline_done": baseline.done,
            "position": self._checkpoint.token,
        }

    async def _follow(self) -> None:
        batches = self._source.batches(self._checkpoint.token)
        upcoming = asyncio.ensure_future(anext(batches))
        try:
            while True:
                batch = await upcoming
                # The next batch is on its way while this one is drafted and written.
                upcoming = asyncio.ensure_future(anext(batches))
                await self._take(batch)
        finally:
            await _dismiss(upcoming)
            await batches.aclose()

    async def _take(self, batch: Batch) -> None:
        """Draft a batch, and the chunk of the first reading that stands in it; write it
        meanwhile."""
        events = batch.events
        if self._chunk is not None and batch.position >= tokens.moment(self._chunk.at):
            before = [each for each in events if each.at <= self._chunk.at]
            await self._write(await self._draft(before))
            # None where another collection has arrived under the name since the chunk was read.
            if self._chunk is not None:
                await self._take_chunk(self._chunk)
                self._chunk = None
            events = events[len(before) :]
        draft = await self._draft(events)
        self._batches += 1
        self._checkpoint = replace(self._checkpoint, token=batch.position)
        # One batch is being written while the next is drafted; never two.
        await self._settled()
        self._writing = asyncio.ensure_future(
            self._commit(draft, self._checkpoint, bool(batch.events))
        )
        baseline = self._checkpoint.baseline
        if not baseline.done and self._chunk is None and batch.position >= self._caught_up_at:
            self._chunk = await read_chunk(
                self._mongo, self.collection, baseline, size=self._options.chunk_documents
            )

    async def _draft(self, events: Sequence[ChangeEvent]) -> Draft:
        """The versions of a batch, not yet written; only what befalls the whole collection is
        written on the way."""
        draft = Draft()
        for writes, group in itertools.groupby(events, key=lambda each: each.is_write):
            if writes:
                await self._write(draft)
                known = self._checkpoint.baseline.done
                draft = await self._drafting.writes(list(group), all_known=known)
                continue
            await self._write(draft)
            draft = Draft()
            for event in group:
                await self._take_fate(event)
        return draft

    async def _take_fate(self, event: ChangeEvent) -> None:
        """What happens to the collection as a whole."""
        arrived = event.renamed_to == self.collection
        if arrived or event.operation in _GONE:
            async for draft in self._drafting.end(event):
                await self._write(draft)
        if event.operation == "dropDatabase":
            # The archive went with it.
            self._drafting.forget()
            await self._archive.prepare()
        if arrived:
            # What stands there now came from elsewhere, whole: read it as if for the first time.
            self._chunk = None
            self._checkpoint = replace(self._checkpoint, baseline=Baseline())
            self._caught_up_at = event.token

    async def _take_chunk(self, chunk: Chunk) -> None:
        baseline = self._checkpoint.baseline
        draft = await self._drafting.chunk(chunk, baseline.documents)
        await self._write(draft)
        number = baseline.documents + len(draft.records)
        async for vanished in self._drafting.vanished(chunk, number):
            await self._write(vanished)
        read = chunk.documents
        done = Baseline(
            done=chunk.end,
            started=bool(read) or baseline.started,
            after=read[-1]["_id"] if read else baseline.after,
            documents=number,
        )
        log.info(
            "first reading",
            extra={"collection": self.collection, "documents": done.documents, "done": done.done},
        )
        self._checkpoint = replace(self._checkpoint, baseline=done)

    async def _settled(self) -> None:
        """Return once what was handed to `_commit` is stored; raises what it raised."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    async def _commit(self, draft: Draft, checkpoint: Checkpoint, written: bool) -> None:
        await self._append(draft)
        self._progress.advance(self.collection, checkpoint.token)
        idle = time.monotonic() - self._saved_at >= self._options.idle_save_s
        written = written or checkpoint.baseline != self._stored.baseline
        # Each save is itself an entry of the oplog: saving every empty batch would feed itself.
        if written or (idle and checkpoint != self._stored):
            await self._save(checkpoint)

    async def _write(self, draft: Draft) -> None:
        """Now, and wait for it."""
        if draft.records:
            await self._settled()
            await self._append(draft)

    async def _append(self, draft: Draft) -> None:
        if not draft.records:
            return
        if not await self._archive.append(draft.records, draft.untils):
            # Deterministic numbers and unique keys: only another writer can have been there first.
            raise LeaseLost(f"{self.name}: another process has written the archive")
        self._versions += len(draft.records)

    async def _save(self, checkpoint: Checkpoint) -> None:
        await self._checkpoints.save(self.name, checkpoint, fencing_token=self._fencing_token)
        self._stored = checkpoint
        self._saved_at = time.monotonic()

    async def _begin_anew(self, lost: HistoryLost) -> None:
        """The oplog no longer reaches back: read the present again and record what differs, marked
        as a gap."""
        now = await self._mongo.operation_time()
        log.error(
            "history lost: reading the present again",
            extra={"collection": self.collection, "reason": lost.message},
        )
        self._checkpoint = replace(
            self._checkpoint, token=tokens.time_prefix(now), baseline=Baseline()
        )
        self._caught_up_at = tokens.moment(now)
        self._chunk = None
        await self._save(self._checkpoint)


async def _dismiss(task: asyncio.Future[Any] | None) -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
