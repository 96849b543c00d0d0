"""A recorder's source, which is the process's live stream for as long as the two are abreast.

Each change stream searches all of the oplog on the server, what revstream itself writes included.
So one that would be told what another one has just told the same process is not kept open: the
recorder takes its events from the live stream's ring. Where that does not reach back to the
recorder's place, or is silent, the recorder reads a stream of its own, as it does at first.

Guarantees: those of `streams.changefeed.source`. Both ways tell the same events under the same
tokens, and each begins behind the last position of the other.
Source: docs/decisions/0035-joint-sources.md.
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

# As many as a batch of a recorder's own stream has.
_MOST_EVENTS = 3000
# How often the place reached is told where nothing happens.
_QUIET_S = 0.05
# A live stream that is not heard of for so long keeps nobody waiting; it speaks ten times a second.
_SILENT_S = 3.0


class SharedSource:
    """Of one partition of a collection that does not keep versions itself.

    Args:
        own: of the partition's events, read from places that the live stream is past.
        live: the source that the hub publishes.
    """

    def __init__(self, own: Source, live: Source, hub: Hub, partition: Partition) -> None:
        self._own = own
        self._live = live
        self._hub = hub
        self._partition = partition
        self._collection = partition.collection
        self._joined = False
        self._news = asyncio.Event()
        # Set where the live stream has passed something that the ring does not show.
        self._diverged = False
        self._not_before = ""
        hub.add_observer(self._collection, lambda _: self._news.set(), self._leave_live)

    @property
    def before_images(self) -> bool:
        """Of its own stream; the live one has them."""
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
        """As of `Source.batches`."""
        position = after
        while True:
            async with aclosing(self._own.batches(position)) as own:
                async for batch in own:
                    position = batch.position
                    yield batch
                    # Not before it has caught up: it would soon be too far behind again.
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
        """What the live stream tells; ends where there is no telling."""
        while self._live_is_active() and not self._diverged:
            # Before the look, so that none that comes behind it is passed over.
            self._news.clear()
            events = self._hub.ring(self._collection).items_after(position)
            if events is None:
                return
            if len(events) > _MOST_EVENTS:
                events = events[:_MOST_EVENTS]
                last = events[-1]
                # Of what befalls a whole collection the archive makes many records.
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
