"""Commit pipeline: inserts versions while more are built, then saves the checkpoint.

Both writes of a batch wait for a majority: the insert of its versions, then the checkpoint. Of
consecutive batches, one of each is in flight at a time. Versions that arrive during an insert wait
and are inserted together: the slower MongoDB is, the larger the inserts. A checkpoint costs MongoDB
as much as a batch of one version, so at most one per twentieth of a second is saved.

Guarantees: versions are inserted in stream order, and no checkpoint is saved before everything up
to it is stored. So a crash leaves a prefix. Source: docs/decisions/0030-committing.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.core import tracing
from revstream.streams.core.errors import GatewayError, LeaseLost
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.recording.versions.version_batch import VersionBatch

__all__ = ["CommitPipeline"]

# Maximum wait at the end, for writes that may be lost without harm.
_FLUSH_LIMIT_S = 1.0

# Limits of what waits during an insert; one more batch may arrive.
_MOST_RECORDS = 5000
_MOST_BYTES = 7 * 1024 * 1024
# Links of a span: OpenTelemetry's own default limit.
_MOST_LINKS = 128
# Other processes read checkpoints every 20 ms while an operation waits for history.
_SAVE_EVERY_S = 0.05

Save = Callable[[Checkpoint], Awaitable[None]]


@dataclass(slots=True)
class _PendingBatch:
    """Versions of one insert.

    Attributes:
        checkpoint: Checkpoint that these versions complete.
        worth_saving: At least one event is between this checkpoint and the last.
    """

    batch: VersionBatch
    checkpoint: Checkpoint
    worth_saving: bool

    @property
    def full(self) -> bool:
        return len(self.batch.records) >= _MOST_RECORDS or self.batch.size_bytes >= _MOST_BYTES


class CommitPipeline:
    """Pipeline of one recorder, until `abort`.

    Args:
        save: Stores a checkpoint, or raises `LeaseLost`.
        on_archived: Called with each token up to which every version is stored.
        idle_save_s: Seconds between checkpoints while no event arrives.
        save_every_s: Seconds between checkpoints while many events arrive.

    Attributes:
        versions: Number of inserted versions.
    """

    def __init__(
        self,
        name: str,
        archive: Archive,
        save: Save,
        *,
        on_archived: Callable[[str], None],
        idle_save_s: float,
        save_every_s: float = _SAVE_EVERY_S,
    ) -> None:
        self.versions = 0
        self._name = name
        self._archive = archive
        self._store = save
        self._on_archived = on_archived
        self._idle_save_s = idle_save_s
        self._save_every_s = save_every_s
        self._stored = self._archived = Checkpoint("", "")
        self._saved_at = 0.0
        self._waiting: _PendingBatch | None = None
        self._unsaved: Checkpoint | None = None
        # At most one of each.
        self._inserting: asyncio.Future[None] | None = None
        self._saving: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._hurry = asyncio.Event()

    async def put(self, batch: VersionBatch, checkpoint: Checkpoint, *, worth_saving: bool) -> None:
        """Add a batch; waits while too many earlier versions wait.

        Args:
            checkpoint: Checkpoint that this batch completes.
            worth_saving: At least one event is between this checkpoint and the last.

        Raises:
            LeaseLost: Another process has written in between; or an earlier write failed so.
        """
        await self._room.wait()
        for task in (self._inserting, self._saving):
            if task is not None and task.done():
                task.result()
        if self._waiting is None:
            self._waiting = _PendingBatch(batch, checkpoint, worth_saving)
        else:
            self._waiting.batch.extend(batch)
            self._waiting.checkpoint = checkpoint
            self._waiting.worth_saving |= worth_saving
        if self._waiting.full:
            self._room.clear()
        if self._inserting is None or self._inserting.done():
            self._inserting = asyncio.ensure_future(self._insert())

    async def write(self, batch: VersionBatch) -> None:
        """Insert a batch and wait for it; more follows before a checkpoint may be saved."""
        if batch.records:
            await self.drain()
            await self._append(batch)

    async def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint and wait for it. No other write may be in flight."""
        await self._store(checkpoint)
        self._stored = self._archived = checkpoint
        self._saved_at = time.monotonic()

    async def drain(self) -> None:
        """Return once all batches are archived and the checkpoint is saved; raise their errors."""
        self._hurry.set()
        try:
            # The insert starts the save. Shielded: `abort` ends them if the caller is cancelled.
            if self._inserting is not None:
                await asyncio.shield(self._inserting)
            if self._saving is not None:
                await asyncio.shield(self._saving)
        finally:
            self._hurry.clear()

    async def flush(self) -> None:
        """Finish the writes in flight and save the position, so that the next holder need not read
        it again.

        Gives up after a second.
        """
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_FLUSH_LIMIT_S):
                await self.drain()
                if self._archived != self._stored:
                    await self.save(self._archived)

    async def abort(self) -> None:
        """Cancel the writes in flight and drop the rest."""
        try:
            await cancel_and_wait(self._inserting, self._saving)
        finally:
            self._inserting = self._saving = None
            self._waiting = self._unsaved = None
            self._room.set()

    async def _insert(self) -> None:
        """Insert waiting batches until none is left; the checkpoint is saved beside the next
        insert.
        """
        try:
            while self._waiting is not None:
                pending, self._waiting = self._waiting, None
                self._room.set()
                await self._append(pending.batch)
                self._note_archived(pending)
        finally:
            # A waiting `put` raises the error of this task.
            self._room.set()

    async def _append(self, batch: VersionBatch) -> None:
        tracer = tracing.installed()
        if tracer is None or not batch.records:
            await self._store_versions(batch)
            return
        facts: tracing.Attributes = {
            "recorder.name": self._name,
            "recorder.versions": len(batch.records),
        }
        with tracer.span(
            f"record {self._archive.collection}", facts, links=batch.traces()[:_MOST_LINKS]
        ):
            await self._store_versions(batch)

    async def _store_versions(self, batch: VersionBatch) -> None:
        if batch.records and not await self._archive.insert(batch.records):
            # Numbers are deterministic and keys unique: only another writer can have inserted them
            # before.
            raise LeaseLost(f"{self._name}: another process wrote to the archive")
        self.versions += len(batch.records)

    def _note_archived(self, pending: _PendingBatch) -> None:
        """Report that a batch is archived, and have its checkpoint saved."""
        self._archived = checkpoint = pending.checkpoint
        self._on_archived(checkpoint.token)
        idle = time.monotonic() - self._saved_at >= self._idle_save_s
        worth_saving = pending.worth_saving or checkpoint.baseline != self._stored.baseline
        # Each save is itself an entry of the oplog: saving every empty batch would trigger the
        # next.
        if worth_saving or (idle and checkpoint != self._stored):
            self._unsaved = checkpoint
            if self._saving is not None and self._saving.done():
                self._saving.result()
                self._saving = None
            if self._saving is None:
                self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        """Save the newest checkpoint, until no newer exists; those in between are skipped."""
        while self._unsaved is not None:
            early_s = self._saved_at + self._save_every_s - time.monotonic()
            if early_s > 0 and self._unsaved.baseline == self._stored.baseline:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(early_s):
                        await self._hurry.wait()
            checkpoint, self._unsaved = self._unsaved, None
            await self._store(checkpoint)
            self._stored = checkpoint
            self._saved_at = time.monotonic()
