"""Replay from the oplog, for subscriptions to collections without an archive.

A change stream of its own reads the missed events, up to the start of the live stream's ring
buffer.

Guarantees: every event after a token once, in order, as far back as the oplog reaches. A few
streams run at the same time, each for a second and one reply of the server, so that callers take
turns; each returns a token to continue from. No stream is open while a client reads its events.

For one reply the server scans a stretch of the oplog sized to take about half a second. Does not
guarantee that where fewer than 50 writes to this database follow, and many to others: it then scans
the whole rest, once. Source: docs/decisions/0043-proposal-subscriptions.md.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from bson import Timestamp

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.routing import Interest
from revstream.streams.changefeed.source import Source, SourceOptions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.core.fair_semaphore import FairSemaphore
from revstream.streams.live.hub import Hub
from revstream.streams.live.replay import Part, hand_over
from revstream.streams.mongo.database import Mongo

__all__ = ["OplogEvents", "OplogReplay"]

# Maximum number of streams, in total and per caller: each scans the oplog.
_SLOTS = (4, 2)
# Events, bytes and time of one stream before another caller gets a turn.
_PAGE = 500
_PAGE_BYTES = 1024 * 1024
_PAGE_S = 1.0
# Seconds of the oplog that the server may scan for one reply: at first; at least, since opening a
# stream takes time as well; and at most.
_STRETCH_S = 60.0
_STRETCH_LEAST_S = 10.0
_STRETCH_MOST_S = 600.0
_SOURCE = SourceOptions(batch_events=50)


@dataclass(frozen=True, slots=True)
class OplogEvents:
    """Events read from the oplog, possibly none, up to `position`.

    The documents may have been deleted since.
    """

    events: Sequence[ChangeEvent]
    position: str


class OplogReplay:
    """Replay for collections without an archive.

    Args:
        sharded, expanded: See `Source`.
        quiet_s: Maximum time without an event until a checkpoint event is sent.
    """

    def __init__(
        self, mongo: Mongo, hub: Hub, *, sharded: bool, expanded: bool, quiet_s: float = 20.0
    ) -> None:
        self._mongo = mongo
        self._hub = hub
        self._sharded = sharded
        self._expanded = expanded
        self._quiet_s = quiet_s
        self._slots = FairSemaphore(*_SLOTS)

    async def follow(
        self,
        topic: str,
        collections: Sequence[str],
        after: str | None,
        *,
        caller: str,
        interest: Interest,
    ) -> AsyncGenerator[Part | OplogEvents]:
        """Yield everything after a token, then live events; never ends.

        Args:
            topic: Topic of the hub.
            collections: Collections of the topic that are read from the oplog; events of others may
                come.
            after: None: from now on.
            caller: Key under which callers take turns.

        Raises:
            HistoryLost: The token is older than the oplog.
            SlowConsumer, Unavailable: From the hub; resume after the last token.
        """
        position = self._hub.position if after is None else after
        reading = _OplogReader(partial(self._source, collections), position)
        while (caught := self._hub.ring(topic).items_after(reading.position)) is None:
            floor = self._hub.ring(topic).floor
            try:
                async with self._slots.slot(caller):
                    events = await reading.read_page(floor)
            except HistoryLost as exc:
                raise HistoryLost(exc.message, oldestResumeToken=floor) from exc
            yield OplogEvents(events, reading.position)
        # No await since the ring buffer was read, so no event is missed or repeated.
        subscriber = self._hub.attach(topic, interest)
        position = max(reading.position, self._hub.position)
        parts = hand_over(self._hub, subscriber, caught, position, quiet_s=self._quiet_s)
        async with aclosing(parts):
            async for part in parts:
                yield part

    def _source(self, collections: Sequence[str], horizon: Timestamp) -> Source:
        return Source(
            self._mongo,
            collections,
            before_images=True,
            sharded=self._sharded,
            expanded=self._expanded,
            marks_from=horizon,
            options=_SOURCE,
            name="replay",
        )


class _OplogReader:
    """Reader of the oplog after a position, in stretches of time that bound the scan for one reply.

    Args:
        source: Creates a source; its argument is the time from which any write of the database ends
            a
            reply.
    """

    def __init__(self, source: Callable[[Timestamp], Source], position: str) -> None:
        self._source = source
        self._stretch_s = _STRETCH_S
        self.position = position

    async def read_page(self, floor: str) -> list[ChangeEvent]:
        """Return the next events, up to `floor` at least where that is near."""
        events: list[ChangeEvent] = []
        size = 0
        start = resume_tokens.cluster_time(self.position)
        began = time.monotonic()
        end = began + _PAGE_S
        while True:
            horizon = self._horizon()
            async with aclosing(self._source(horizon).batches(self.position)) as batches:
                async for batch in batches:
                    events += batch.events
                    size += sum(each.size_bytes for each in batch.events)
                    self.position = batch.position
                    reached = resume_tokens.cluster_time(batch.position)
                    # A page without progress would be read again for ever.
                    moved = bool(events) or reached > start
                    late = moved and time.monotonic() >= end
                    full = len(events) >= _PAGE or size >= _PAGE_BYTES
                    if batch.position >= floor or late or full or reached >= horizon:
                        break
            now = time.monotonic()
            if reached >= horizon:
                self._adapt(now - began)
            if batch.position >= floor or late or full:
                return events
            began = now

    def _horizon(self) -> Timestamp:
        start = resume_tokens.cluster_time(self.position)
        return Timestamp(start.time + int(self._stretch_s), 0)

    def _adapt(self, took_s: float) -> None:
        fitting = self._stretch_s * _PAGE_S / 2 / max(took_s, 0.001)
        self._stretch_s = max(_STRETCH_LEAST_S, min(fitting, 2 * self._stretch_s, _STRETCH_MOST_S))
