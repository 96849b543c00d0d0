"""Source of a recorder that shares the process's live stream while both are at the same position.

For each change stream the server scans the whole oplog, including revstream's own writes. So a
stream that would repeat another one of the same process is closed: the recorder takes its events
from the live stream's ring buffer. If that does not reach back to the recorder's position, or is
silent, the recorder reads a stream of its own, as it does at first.

Guarantees: those of `streams.changefeed.source`. Both ways give the same events with the same
tokens, and each begins after the last position of the other. Source:
docs/decisions/0035-joint-sources.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from revstream.streams.changefeed.event import EventBatch
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.live.hub import Hub

__all__ = ["SharedSource"]

# As many as a batch of the recorder's own stream has.
_MOST_EVENTS = 3000
# Seconds between positions while no event arrives.
_QUIET_S = 0.05
# Maximum silence of the live stream, which reports its position ten times a second.
_SILENT_S = 3.0


class SharedSource:
    """Source of one partition of a collection that does not keep versions itself.

    Args:
        own: Source of the partition's events, from positions before the live stream's.
        live: Source that the hub publishes.
    """

    def __init__(self, own: Source, live: Source, hub: Hub, partition: Partition) -> None:
        self._own = own
        self._live = live
        self._hub = hub
        self._partition = partition
        self._collection = partition.collection
        self._joined = False
        self._news = asyncio.Event()
        # Set when the live stream has passed something that the ring buffer does not show.
        self._diverged = False
        self._not_before = ""
        hub.add_observer(self._collection, lambda _: self._news.set(), self._leave_live)

    @property
    def before_images(self) -> bool:
        """True if its own stream requests pre-images; the live one has them."""
        return self._own.before_images

    @before_images.setter
    def before_images(self, wanted: bool) -> None:
        self._own.before_images = wanted

    @property
    def reconnects(self) -> int:
        return self._own.reconnects

    @property
    def trouble(self) -> str | None:
        return (self._live if self._joined else self._own).trouble

    async def batches(self, after: str) -> AsyncGenerator[EventBatch]:
        """Yield batches; see `Source.batches`."""
        position = after
        while True:
            async with aclosing(self._own.batches(position)) as own:
                async for batch in own:
                    position = batch.position
                    yield batch
                    # Not before it has caught up: it would soon fall behind again.
                    if not batch.events and self._joinable(position):
                        break
            self._joined = True
            try:
                async with aclosing(self._live_batches(position)) as shared:
                    async for batch in shared:
                        position = batch.position
                        yield batch
            finally:
                self._joined = False

    async def _live_batches(self, position: str) -> AsyncGenerator[EventBatch]:
        """Yield batches of the live stream's ring buffer until they cannot be used any more."""
        while self._live_is_active() and not self._diverged:
            # Cleared before the read, so that no later event is missed.
            self._news.clear()
            events = self._hub.ring(self._collection).items_after(position)
            if events is None:
                return
            if len(events) > _MOST_EVENTS:
                events = events[:_MOST_EVENTS]
                last = events[-1]
                # The archive makes many records of an event of the whole collection.
                position = (
                    last.token if last.is_write else resume_tokens.token_after_event(last.token)
                )
            else:
                position = max(position, self._hub.position)
            yield EventBatch(tuple(filter(self._partition.concerns, events)), position)
            if not self._news.is_set():
                try:
                    async with asyncio.timeout(_QUIET_S):
                        await self._news.wait()
                except TimeoutError:
                    continue

    def _joinable(self, position: str) -> bool:
        if self._diverged:
            self._not_before, self._diverged = self._hub.position, False
        reached = position >= max(self._not_before, self._hub.ring(self._collection).floor)
        return reached and self._live_is_active()

    def _leave_live(self) -> None:
        self._diverged = True
        self._news.set()

    def _live_is_active(self) -> bool:
        return self._live.connected and time.monotonic() - self._hub.moved_at < _SILENT_S
