"""Subscriptions to collections that have no archive: what a client has missed is read from the
oplog by a change stream of its own, up to where the ring of the live stream begins.

Guarantees: every event after a token once, in order, as far back as the oplog reaches. A few
streams run at once, each up to the server's first reply after a second, so that callers take turns;
behind each there is a token to go on from. No stream is open while a client reads what it brought.

Does not guarantee: a bound for one reply, for which the server may look through all of the oplog.
Source: docs/decisions/0043-proposal-subscriptions.md.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from streams import tokens
from streams.core.fair_semaphore import FairSemaphore
from streams.errors import HistoryLost
from streams.events import ChangeEvent
from streams.hub import Hub
from streams.mongo import Mongo
from streams.replay import Part, hand_over
from streams.routing import Interest
from streams.source import Source, SourceOptions

__all__ = ["OplogReplay", "ReadAgain"]

# Streams in all, and of one caller: each looks through the oplog, as a scan does.
_SLOTS = (4, 2)
# Events of one stream, their bytes, and its time, before others have their turn.
_PAGE = 500
_PAGE_BYTES = 1024 * 1024
_PAGE_S = 1.0
_SOURCE = SourceOptions(batch_events=50)


@dataclass(frozen=True, slots=True)
class ReadAgain:
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
    ) -> AsyncGenerator[Part | ReadAgain]:
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
        while (caught := self._hub.ring(topic).after(position)) is None:
            events, position = await self._page(topic, collections, position, caller)
            yield ReadAgain(events, position)
        # No await since the ring was read: the ring and the live stream join without a seam.
        subscriber = self._hub.attach(topic, interest)
        position = max(position, self._hub.position)
        parts = hand_over(self._hub, subscriber, caught, position, quiet_s=self._quiet_s)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def _page(
        self, topic: str, collections: Sequence[str], position: str, caller: str
    ) -> tuple[list[ChangeEvent], str]:
        """Read the next events after a position, and the position that they reach."""
        floor = self._hub.ring(topic).floor
        source = Source(
            self._mongo,
            collections,
            before_images=True,
            sharded=self._sharded,
            expanded=self._expanded,
            options=_SOURCE,
            name="replay",
        )
        events: list[ChangeEvent] = []
        size = 0
        start = tokens.cluster_time(position)
        async with self._slots.slot(caller), aclosing(source.batches(position)) as batches:
            end = time.monotonic() + _PAGE_S
            try:
                async for batch in batches:
                    events += batch.events
                    size += sum(each.size_bytes for each in batch.events)
                    position = batch.position
                    # A page that had come to nothing later would be read again for ever.
                    moved = bool(events) or tokens.cluster_time(position) > start
                    late = moved and time.monotonic() >= end
                    full = len(events) >= _PAGE or size >= _PAGE_BYTES
                    if position >= floor or late or full:
                        break
            except HistoryLost as exc:
                raise HistoryLost(exc.message, oldestResumeToken=floor) from exc
        return events, position
