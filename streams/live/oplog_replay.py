"""Subscriptions to collections that have no archive: what a client has missed is read from the
oplog by a change stream of its own, up to where the ring of the live stream begins.

Guarantees: every event after a token once, in order, as far back as the oplog reaches. A few
streams run at once, each for a second and one reply of the server, so that callers take turns;
behind each there is a token to go on from. No stream is open while a client reads what it brought.

For one reply the server looks through a stretch of the oplog that is made to take about half a
second. Does not guarantee that where fewer than 50 writes to this database follow, and many to
others: it then looks through all that is left, once.
Source: docs/decisions/0043-proposal-subscriptions.md.
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

# Streams in all, and of one caller: each looks through the oplog, as a scan does.
_SLOTS = (4, 2)
# Events of one stream, their bytes, and its time, before others have their turn.
_PAGE = 500
_PAGE_BYTES = 1024 * 1024
_PAGE_S = 1.0
# Seconds of the oplog that the server may look through for one reply: at first; at least, since to
# open a stream takes its time as well; and at most, where that is quick.
_STRETCH_S = 60.0
_STRETCH_LEAST_S = 10.0
_STRETCH_MOST_S = 600.0
_SOURCE = SourceOptions(batch_events=50)


@dataclass(frozen=True, slots=True)
class OplogEvents:
    """Events that were read from the oplog, perhaps none, and the place up to which there are no
    others. The documents may have been removed since."""

    events: Sequence[ChangeEvent]
    position: str


class OplogReplay:
    """Args:
    sharded, expanded: see `Source`.
    quiet_s: after this long without an event, at the latest, say how far the stream has come.
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
        """Yield everything after a token, then everything that comes; never ends.

        Args:
            topic: of the hub.
            collections: those of the topic that are read again; others may come, too.
            after: None: from now on.
            caller: takes turns with others.

        Raises:
            HistoryLost: the token is older than the oplog.
            SlowConsumer, Unavailable: from the hub; the last token given resumes.
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
        # No await since the ring was read: the ring and the live stream join without a seam.
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
    """The oplog behind a position, in stretches of time: what the server looks through for one
    reply has an end.

    Args:
        source: given the time from which on any write of the database ends a reply.
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
                    # A page that had come to nothing later would be read again for ever.
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
