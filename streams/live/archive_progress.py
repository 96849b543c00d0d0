"""Progress of each archive, and waiting for it: what makes a read of history complete.

A recorder in this process reports its progress directly. For a recorder elsewhere, its checkpoint
counts together with this process's own stream: if the stream has passed a time, and its last event
of the partition is archived, then everything up to that time is archived. A collection's progress
is that of its slowest partition.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from revstream.streams.changefeed.event import ChangeEvent, key_hash
from revstream.streams.coordination.checkpoint import (
    Baseline,
    Checkpoint,
    Checkpoints,
    complete_sets,
    furthest_checkpoint,
)
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.operation import execution_suspended
from revstream.streams.live.archive_errors import archive_behind_error, snapshot_unread_error
from revstream.streams.live.hub import Hub
from revstream.streams.live.pending_versions import NumberedEvent, PendingVersions

__all__ = ["ArchiveProgress"]

Stored = Mapping[Partition, Checkpoint]

# A stream reports its position ten times a second.
_SILENT_S = 3.0
_READING_POLL_S = 0.1


class ArchiveProgress:
    """Positions of the recorders of all collections, as this process knows them.

    Args:
        limit_s: Maximum wait of a read.
        takeover_s: Minimum wait of a subscription: until another process has taken over from a
            recorder that died.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        hub: Hub,
        *,
        limit_s: float = 5.0,
        takeover_s: float = 0.0,
        poll_s: float = 0.02,
    ) -> None:
        self._checkpoints = checkpoints
        self._hub = hub
        self._limit_s = limit_s
        self.takeover_s = max(limit_s, takeover_s)
        self._poll_s = poll_s
        # Token up to which all of a collection is archived.
        self._known: Mapping[str, str] = {}
        # Token up to which each partition is archived; recorders in this process report theirs.
        self._reached: dict[str, dict[Partition, str]] = {}
        self._here: dict[str, dict[Partition, str]] = {}
        # For collections with a reader of pending versions.
        self._numbers: dict[str, PendingVersions] = {}
        self._moved: dict[str, asyncio.Event] = {}
        self._requests: dict[str, asyncio.Future[dict[Partition, Checkpoint]]] = {}
        # Progress of the initial snapshot, for partitions with a recorder in this process.
        self._baselines: dict[Partition, Baseline] = {}
        # Collections whose initial snapshot is complete in all partitions; and those where it was
        # complete once, even if it is being repeated after a loss of history.
        self._complete: set[str] = set()
        self._begun: set[str] = set()

    def advance(self, partition: Partition, token: str) -> None:
        """Note that the recorder in this process has archived everything up to a token."""
        here = self._here.setdefault(partition.collection, {})
        here[partition] = max(token, here.get(partition, ""))
        if self._all_here(partition.collection):
            self._raise_known(partition.collection, min(here.values()))
            self._wake(partition.collection)

    def note_baseline(self, partition: Partition, baseline: Baseline) -> None:
        """Note the progress of the initial snapshot of a recorder in this process."""
        self._baselines[partition] = baseline
        alike = {
            each: reading
            for each, reading in self._baselines.items()
            if each.collection == partition.collection and each.count == partition.count
        }
        if not baseline.done or len(alike) == partition.count:
            self._note_baselines(partition.collection, alike.values())

    def remove_recorder(self, partition: Partition) -> None:
        """Note that the recorder in this process has stopped; checkpoints count from now on."""
        self.interrupt(partition)
        self._baselines.pop(partition, None)
        self._here.get(partition.collection, {}).pop(partition, None)
        self._wake(partition.collection)

    def interrupt(self, partition: Partition) -> None:
        """Note that the recorder in this process has missed events."""
        if (numbers := self._numbers.get(partition.collection)) is not None:
            numbers.remove_partition(partition)

    def note_drafted(
        self, partition: Partition, token: str, numbered: Mapping[str, NumberedEvent]
    ) -> None:
        """Note that the recorder in this process has built all versions up to a token."""
        if (numbers := self._numbers.get(partition.collection)) is not None:
            numbers.add(partition, token, numbered)

    def numbers(self, collection: str) -> PendingVersions:
        """Return the pending versions that recorders in this process report from now on."""
        return self._numbers.setdefault(collection, PendingVersions())

    def known_position(self, collection: str) -> str:
        """Return a token up to which the collection is known to be archived; without a read."""
        return self._known.get(collection, "")

    async def position(self, collection: str) -> str:
        """Return the token up to which the collection is archived; "" where nothing is.

        Concurrent callers share one read.
        """
        if not self._all_here(collection):
            asking = self._requests.get(collection)
            if asking is None:
                asking = asyncio.ensure_future(self._checkpoints.load_collection(collection))
                asking.add_done_callback(lambda _: self._requests.pop(collection, None))
                self._requests[collection] = asking
            # Shielded: other callers share it.
            self._take_checkpoints(collection, await asyncio.shield(asking))
        return self._known.get(collection, "")

    async def checkpoint(self, collection: str) -> Checkpoint | None:
        """Return the checkpoint of the whole collection; None where no recorder has run for all of
        it.
        """
        return furthest_checkpoint(await self._checkpoints.load_collection(collection))

    async def wait(self, collection: str, token: str, *, limit_s: float | None = None) -> None:
        """Return once everything up to a token is archived.

        Raises:
            ArchiveBehind: Not within the limit; contains the lag in seconds.
        """
        if self.known_position(collection) >= token:
            return
        async with execution_suspended():
            await self._wait(collection, token, self._limit_s if limit_s is None else limit_s)

    async def wait_deletions(self, collection: str, token: str, keys: Collection[Any]) -> None:
        """Return once deletions of these documents up to a token are archived, or known not to
        exist.

        Returns at once where no recorder has ever run.

        Raises:
            ArchiveBehind: Not within the limit.
        """
        if self.known_position(collection) >= token or not await self.position(collection):
            return
        async with execution_suspended():
            archived = asyncio.ensure_future(self._wait(collection, token, self._limit_s))
            streamed = asyncio.ensure_future(self._hub.wait_until(token))
            try:
                await asyncio.wait((archived, streamed), return_when=asyncio.FIRST_COMPLETED)
                if archived.done() or self._may_be_deleted(collection, token, keys):
                    await archived
            finally:
                archived.cancel()
                streamed.cancel()
                await asyncio.wait((archived, streamed))

    def _may_be_deleted(self, collection: str, token: str, keys: Collection[Any]) -> bool:
        """Return whether a document may have been deleted after the archived position."""
        later = self._hub.deletions(collection).items_after(self.known_position(collection))
        if self._hub.position < token or later is None:
            return True
        # Another document with the same hash only costs a wait.
        wanted = set(map(key_hash, keys))
        return any(each.all or each.key_hash in wanted for each in later)

    async def _wait(self, collection: str, token: str, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self.known_position(collection) < token:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                # Read once more: the last reply may have been slow.
                known = await self.position(collection)
                if known >= token:
                    break
                raise archive_behind_error(collection, known, token, limit_s)
            if self._all_here(collection):
                moved = self._moved.setdefault(collection, asyncio.Event())
                try:
                    async with asyncio.timeout(remaining):
                        await moved.wait()
                except TimeoutError:
                    continue
                continue
            known = await self.position(collection)
            if known >= token or self._stream_shows_archived(collection, known, token):
                self._raise_known(collection, token)
                return
            await asyncio.sleep(min(self._poll_s, remaining))

    def is_complete(self, collection: str) -> bool:
        """Return whether the initial snapshot is known to be complete; without a read."""
        return collection in self._complete

    def has_begun(self, collection: str) -> bool:
        """Return whether the initial snapshot was complete once; a repetition after a loss does not
        matter.
        """
        return collection in self._begun

    async def wait_complete(
        self, collection: str, token: str, *, limit_s: float | None = None
    ) -> None:
        """Return once everything up to a token and the initial snapshot are archived.

        Raises:
            ArchiveBehind: Not within the limit.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        await self.wait(collection, token, limit_s=limit_s)
        if self.is_complete(collection):
            return
        async with execution_suspended():
            # If another process records, its checkpoint shows the snapshot's progress.
            await self.position(collection)
            while not self.is_complete(collection):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise snapshot_unread_error(
                        collection, await self.checkpoint(collection), limit_s
                    )
                await asyncio.sleep(min(_READING_POLL_S, remaining))
                await self.position(collection)

    def known_positions(self) -> tuple[str, Mapping[str, str]]:
        """Return the stream's position and the known archived position of each collection; without
        a read.
        """
        return self._hub.position, self._known

    def partition_position(self, partition: Partition) -> str:
        """Return a token up to which a partition is known to be archived; without a read."""
        reached = self._partition_positions(partition.collection).get(partition, "")
        return max(reached, self._known.get(partition.collection, ""))

    def lag_s(self, partition: Partition) -> float:
        """Return the age of the oldest change that is not known to be archived; 0 where all are.

        If the archive's position is before the ring buffer, as after an outage, or if the live
        stream is silent, the age of the position itself is returned: no pending change is older.
        """
        _, oldest = self._pending(partition)
        return self._lag_s(partition.collection, self.partition_position(partition), oldest)

    def lag_events(self, partition: Partition) -> int:
        """Return the number of changes in the ring buffer that are not known to be archived."""
        return self._pending(partition)[0]

    def lag_after_s(self, collection: str, token: str) -> float:
        """Return the age of the oldest change after a token, like `lag_s`.

        For a listener that starts at the very beginning, the oldest change in the ring buffer
        counts.
        """
        _, oldest = self._hub.ring(collection).pending_after(token)
        return self._lag_s(collection, token, oldest)

    def _lag_s(self, collection: str, token: str, oldest: ChangeEvent | None) -> float:
        if resume_tokens.BEGINNING < token < self._hub.ring(collection).floor:
            return _age_s(resume_tokens.cluster_time(token).as_datetime())
        if oldest is not None:
            return _age_s(oldest.wall)
        silent_s = self._hub.silent_s
        if silent_s < _SILENT_S or token <= resume_tokens.BEGINNING:
            return 0.0
        return min(silent_s, _age_s(resume_tokens.cluster_time(token).as_datetime()))

    def _pending(self, partition: Partition) -> tuple[int, ChangeEvent | None]:
        """Return the number of pending events, and the oldest."""
        ring, reached = self._hub.ring(partition.collection), self.partition_position(partition)
        if partition.count == 1:
            return ring.pending_after(reached)
        events = ring.items_after(reached)
        if events is None:
            # More may be pending than the ring buffer has; its oldest event is younger than the
            # oldest of them.
            waiting = ring.items_after(ring.floor) or []
        else:
            waiting = [each for each in events if partition.concerns(each)]
        return len(waiting), waiting[0] if waiting else None

    def _all_here(self, collection: str) -> bool:
        here = self._here.get(collection)
        return here is not None and any(each.count == len(here) for each in here)

    def _partition_positions(self, collection: str) -> Mapping[Partition, str]:
        if self._all_here(collection):
            return self._here[collection]
        return self._reached.get(collection, {})

    def _take_checkpoints(self, collection: str, stored: Stored) -> None:
        """Merge stored checkpoints; a recorder in this process is ahead of its own."""
        here = self._here.get(collection, {})
        fresh = {
            partition: replace(each, token=max(each.token, here.get(partition, "")))
            for partition, each in stored.items()
        }
        best = max(
            complete_sets(fresh).values(),
            key=lambda each: min(one.token for one in each.values()),
            default=None,
        )
        if best is None:
            return
        readings = (self._baselines.get(name, each.baseline) for name, each in best.items())
        self._note_baselines(collection, list(readings))
        self._reached[collection] = {name: each.token for name, each in best.items()}
        self._raise_known(collection, min(self._reached[collection].values()))

    def _raise_known(self, collection: str, token: str) -> None:
        known = max(token, self._known.get(collection, ""))
        # A copy, so that `known_positions` returned before stays unchanged.
        self._known = {**self._known, collection: known}

    def _note_baselines(self, collection: str, readings: Collection[Baseline]) -> None:
        for names, reached in (
            (self._complete, all(each.done for each in readings)),
            (self._begun, all(each.done or each.doubt for each in readings)),
        ):
            if reached:
                names.add(collection)
            else:
                names.discard(collection)

    def _wake(self, collection: str) -> None:
        moved = self._moved.pop(collection, None)
        if moved is not None:
            moved.set()

    def _stream_shows_archived(self, collection: str, known: str, token: str) -> bool:
        """Return whether this process's stream shows that all events up to a token are archived.

        Each partition may have archived its own events in between: as far as all have, the position
        is raised, and these events are not examined again.
        """
        later = self._hub.ring(collection).items_after(known)
        if self._hub.position < token or later is None:
            return False
        for event in later:
            if event.token > token:
                break
            if not self._archived(collection, event):
                return False
            self._raise_known(collection, event.token)
        return True

    def _archived(self, collection: str, event: ChangeEvent) -> bool:
        reached = self._partition_positions(collection)
        count = len(reached)
        if not count:
            return False
        if not event.is_write or count == 1:
            return event.token <= min(reached.values())
        return event.token <= reached[Partition(collection, event.key_hash % count, count)]


def _age_s(since: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - since).total_seconds())
