"""Replay and hand-over: from a client's token to the live stream.

Sends the archive in token order, then the ring buffer, then live events: one order, no gap, no
duplicate. Archive pages are read until the ring buffer reaches back to their end. Then its events
are taken and the subscriber is attached without an await between. Nothing is buffered during
replay, however long it takes, and a token inside the ring buffer costs no read of MongoDB. Source:
docs/decisions/0009-hand-over.md.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.routing import EVERYTHING, Interest
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import EVENTS_PER_READ, Hub, Subscriber
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "BufferedEvents",
    "Idle",
    "LiveEvents",
    "Part",
    "Replay",
    "ReplayedRecords",
    "hand_over",
    "jittered_timeout_s",
]


@dataclass(frozen=True, slots=True)
class ReplayedRecords:
    """Records of the archive, in token order."""

    records: Sequence[Document]


@dataclass(frozen=True, slots=True)
class BufferedEvents:
    """Events from the ring buffer: published before the subscriber was attached."""

    events: Sequence[ChangeEvent]


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """Events published after the subscriber was attached."""

    events: Sequence[ChangeEvent]


@dataclass(frozen=True, slots=True)
class Idle:
    """A token up to which no further event exists."""

    token: str


# Seconds between reads of the archive while it must provide events that the stream does not.
_DOUBT_POLL_S = 0.2
# Sorts after every token.
_NOT_YET_KNOWN = "~"

Part = ReplayedRecords | BufferedEvents | LiveEvents | Idle


class Replay:
    """Replay of one collection.

    Args:
        page: Records per read of the archive.
        quiet_s: Maximum time without an event until a checkpoint event is sent.
    """

    def __init__(
        self,
        archive: Archive,
        hub: Hub,
        progress: ArchiveProgress,
        horizons: Horizons,
        *,
        page: int = 500,
        quiet_s: float = 20.0,
    ) -> None:
        self._archive = archive
        self._hub = hub
        self._progress = progress
        self._horizons = horizons
        self._page = page
        self._quiet_s = quiet_s

    async def follow(
        self, after: str | None, *, interest: Interest = EVERYTHING
    ) -> AsyncGenerator[Part]:
        """Yield everything after a token, then live events; never ends. None: from now on.

        Args:
            interest: Events that the subscriber wants; records are only selected by document.

        Raises:
            HistoryLost: The token is older than the archive and the ring buffer, or retention has
                deleted
                the next versions.
            SlowConsumer, Unavailable: From the hub; resume after the last token.
        """
        position = self._hub.position if after is None else after
        archived = self._hub.ring(self._archive.collection).items_after(position) is None
        if archived:
            await self._check_reach(position)
        start, owed = position, ""
        match = {"doc": {"$in": list(interest.keys)}} if interest.keys else None
        while True:
            if (drop := resume_tokens.divided_event(position)) is not None:
                async for records in self._records_of_drop(drop, position, match):
                    yield ReplayedRecords(records)
                position = resume_tokens.token_after_event(drop)
            if archived:
                owed = await self._required_position(start, owed)
            # No await from here to `attach`, so no event is missed or repeated.
            caught = self._hub.ring(self._archive.collection).items_after(position)
            if caught is not None and position >= owed:
                subscriber = self._hub.attach(self._archive.collection, interest)
                reached = self._hub.position
                break
            upto = await self._progress.position(self._archive.collection)
            if upto <= position < owed:
                await asyncio.sleep(_DOUBT_POLL_S)
                continue
            if upto <= position:
                # The recorder has not reached the ring buffer's oldest event: wait for it.
                floor = self._hub.ring(self._archive.collection).floor
                await self._wait(floor)
                continue
            records = await self._scan(position, upto, match)
            if records:
                yield ReplayedRecords(records)
            full = len(records) == self._page
            position = resume_tokens.canonical_token(records[-1]["_id"]) if full else upto
        position = max(position, reached)
        parts = hand_over(self._hub, subscriber, caught, position, quiet_s=self._quiet_s)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def _records_of_drop(
        self, drop: str, position: str, match: Mapping[str, Any] | None
    ) -> AsyncGenerator[list[Document]]:
        """Yield the records after a position within a drop, which is a single event in the ring
        buffer.
        """
        await self._wait(drop)
        end = resume_tokens.token_after_event(drop)
        while records := await self._scan(position, end, match):
            yield records
            position = resume_tokens.canonical_token(records[-1]["_id"])

    async def _wait(self, token: str) -> None:
        limit_s = self._progress.takeover_s
        await self._progress.wait(self._archive.collection, token, limit_s=limit_s)

    async def _scan(
        self, position: str, upto: str, match: Mapping[str, Any] | None
    ) -> list[Document]:
        """Return the next page of records after a position, checked against the horizon."""
        records = await self._archive.scan(position, upto, limit=self._page, match=match)
        # After the read: see `streams.archive.horizon`.
        await self._horizons.check_after_read(self._archive.collection, position)
        return records

    async def _required_position(self, start: str, before: str) -> str:
        """Return the position up to which the archive must be read, even where the ring buffer has
        more.

        Changes that were lost after `start`, and found by reading the documents again, come into
        the archive only.

        Args:
            before: The last result.
        """
        checkpoint = await self._progress.checkpoint(self._archive.collection)
        if checkpoint is None or start >= checkpoint.baseline.doubt:
            return ""
        if not checkpoint.baseline.done:
            return _NOT_YET_KNOWN
        return checkpoint.token if before in ("", _NOT_YET_KNOWN) else before

    async def _check_reach(self, position: str) -> None:
        checkpoint = await self._progress.checkpoint(self._archive.collection)
        if checkpoint is None:
            floor = self._hub.ring(self._archive.collection).floor
            raise HistoryLost(
                f"history of {self._archive.collection}: not recorded, and the requested "
                f"{_when(position)} is before the events in memory; read the current state, and "
                "subscribe after it",
                oldestResumeToken=floor,
            )
        if position < checkpoint.start:
            raise HistoryLost(
                f"history of {self._archive.collection}: {_when(position)} was requested, minimum "
                f"is {_when(checkpoint.start)}; read the current state, and subscribe after it",
                oldestResumeToken=checkpoint.start,
            )


async def hand_over(
    hub: Hub,
    subscriber: Subscriber,
    caught: Sequence[ChangeEvent],
    position: str,
    *,
    quiet_s: float,
) -> AsyncGenerator[Part]:
    """Yield the ring buffer's events, then live ones; never ends. Closes the subscriber.

    Args:
        caught: Events of the ring buffer, taken in the event-loop step that attached the
            subscriber.
        position: The subscription's position after that step.
    """
    try:
        caught = [each for each in caught if subscriber.interest.matches(each)]
        for first in range(0, len(caught), EVENTS_PER_READ):
            yield BufferedEvents(caught[first : first + EVENTS_PER_READ])
        yield Idle(position)
        while True:
            reached = hub.position
            events = await subscriber.next(jittered_timeout_s(quiet_s))
            # A client's token may be ahead of this process's stream.
            fresh = [each for each in events if each.token > position]
            if fresh:
                yield LiveEvents(fresh)
            elif not events and reached > position:
                position = reached
                yield Idle(position)
    finally:
        subscriber.close()


def jittered_timeout_s(most_s: float) -> float:
    """Return a random timeout, from half of `most_s` to all of it.

    Subscribers that began at the same time would otherwise all be sent a checkpoint event in the
    same moment: 2,000 took 0.17 s, during which no other event was sent.
    """
    return most_s * random.uniform(0.5, 1.0)


def _when(token: str) -> str:
    return f"{resume_tokens.cluster_time(token).as_datetime():%F %T}Z"
