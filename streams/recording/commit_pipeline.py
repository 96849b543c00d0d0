"""Put what is drafted into the archive while more is drafted, and the checkpoint behind it.

Both writes of a batch wait for a majority: its versions are inserted, the checkpoint is saved. Of
batches that follow each other, one of each is on its way at once. What comes while versions are
being inserted waits and goes together: the further MongoDB is behind, the larger what is written at
once. A checkpoint costs MongoDB as much as a batch of one version, so of those that come within a
twentieth of a second one is saved.

Guarantees: versions are inserted in stream order, and no checkpoint is saved before all up to it is
stored. So a crash leaves a prefix.
Source: docs/decisions/0030-committing.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.core.errors import GatewayError, LeaseLost
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.recording.versions.version_batch import VersionBatch

__all__ = ["CommitPipeline"]

# What may be lost without harm is not waited for any longer.
_FLUSH_LIMIT_S = 1.0

# Of what waits while versions are being inserted; one batch more may come.
_MOST_RECORDS = 5000
_MOST_BYTES = 7 * 1024 * 1024
# Other processes look for checkpoints every 20 ms, where somebody waits for history.
_SAVE_EVERY_S = 0.05

Save = Callable[[Checkpoint], Awaitable[None]]


@dataclass(slots=True)
class _PendingBatch:
    """What goes into the archive at once.

    `checkpoint`: up to which that is all. `worth_saving`: whether something has happened up to
    there.
    """

    batch: VersionBatch
    checkpoint: Checkpoint
    worth_saving: bool

    @property
    def full(self) -> bool:
        return len(self.batch.records) >= _MOST_RECORDS or self.batch.size_bytes >= _MOST_BYTES


class CommitPipeline:
    """Of one recorder, from one `begin` to one `end`.

    Args:
        save: stores a checkpoint, or raises `LeaseLost`.
        archived: told of each place up to which every version is there.
        idle_save_s: how often the checkpoint is saved where nothing happens.
        save_every_s: how often it is where much happens.
    Attributes:
        versions: how many were inserted.
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
        """Take it on; waits while too much of what came before waits.

        Args:
            checkpoint: up to which that is all.
            worth_saving: whether something has happened up to there.
        Raises:
            LeaseLost: another process has written in between; and what else became of those before.
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
        """Write it, and wait for it: more follows before a checkpoint may be saved."""
        if batch.records:
            await self.drain()
            await self._append(batch)

    async def save(self, checkpoint: Checkpoint) -> None:
        """Save it, and wait for it. Nothing else may be on its way."""
        await self._store(checkpoint)
        self._stored = self._archived = checkpoint
        self._saved_at = time.monotonic()

    async def drain(self) -> None:
        """Return once all that was put is archived and saved; raises what became of it."""
        self._hurry.set()
        try:
            # The one begins the other; shielded: who is cancelled while waiting finishes it in
            # `end`.
            if self._inserting is not None:
                await asyncio.shield(self._inserting)
            if self._saving is not None:
                await asyncio.shield(self._saving)
        finally:
            self._hurry.clear()

    async def flush(self) -> None:
        """Finish what is being written and store how far it has come, so that whoever takes over
        need not read it again; not at any price."""
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_FLUSH_LIMIT_S):
                await self.drain()
                if self._archived != self._stored:
                    await self.save(self._archived)

    async def abort(self) -> None:
        """Give up what is on its way, and forget it."""
        try:
            await cancel_and_wait(self._inserting, self._saving)
        finally:
            self._inserting = self._saving = None
            self._waiting = self._unsaved = None
            self._room.set()

    async def _insert(self) -> None:
        """Insert what waits, until nothing does; the checkpoint goes beside the next insert."""
        try:
            while self._waiting is not None:
                pending, self._waiting = self._waiting, None
                self._room.set()
                await self._append(pending.batch)
                self._note_archived(pending)
        finally:
            # Who waits there is told why it has ended.
            self._room.set()

    async def _append(self, batch: VersionBatch) -> None:
        if batch.records and not await self._archive.insert(batch.records):
            # Deterministic numbers and unique keys: only another writer can have been there first.
            raise LeaseLost(f"{self._name}: another process has written the archive")
        self.versions += len(batch.records)

    def _note_archived(self, pending: _PendingBatch) -> None:
        """It is archived: say so, and have the checkpoint saved."""
        self._archived = checkpoint = pending.checkpoint
        self._on_archived(checkpoint.token)
        idle = time.monotonic() - self._saved_at >= self._idle_save_s
        worth_saving = pending.worth_saving or checkpoint.baseline != self._stored.baseline
        # Each save is itself an entry of the oplog: saving every empty batch would feed itself.
        if worth_saving or (idle and checkpoint != self._stored):
            self._unsaved = checkpoint
            if self._saving is not None and self._saving.done():
                self._saving.result()
                self._saving = None
            if self._saving is None:
                self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        """The newest, until that is saved; those in between are passed over."""
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
