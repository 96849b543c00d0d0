"""From a token a client holds to the live stream: the archive in token order, then the ring, then
what comes.

One order, no gap, no duplicate. The hand-over pulls: archive pages are read until the ring reaches
back to where they end; then what the ring holds is taken and the subscriber attached in one step of
the event loop, with no await between. Nothing is buffered while replaying, however long it takes,
and a token inside the ring costs no database work at all.
Source: docs/decisions/0009-hand-over.md.
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
    """Events that were in the ring: seen by this process before the subscriber came."""

    events: Sequence[ChangeEvent]


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """Events as they come."""

    events: Sequence[ChangeEvent]


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing stands between the last event and this token."""

    token: str


# How often the archive is looked at where what comes does not come by the stream.
_DOUBT_POLL_S = 0.2
# Behind every token.
_NOT_YET_KNOWN = "~"

Part = ReplayedRecords | BufferedEvents | LiveEvents | Idle


class Replay:
    """Of one collection.

    Args:
        page: records per read of the archive.
        quiet_s: after this long without an event, at the latest, say how far the stream has come.
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
        """Everything after a token, then everything that comes; never ends. None: from now on.

        Args:
            interest: in what of it. Records are left out by their document only.

        Raises:
            HistoryLost: the token is older than the archive and the ring, or retention has dropped
                what comes next.
            SlowConsumer, Unavailable: from the hub; the last token given resumes.
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
            # No await from here to `attach`: the ring and the live stream join without a seam.
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
                # The recorder is behind the ring's oldest event: wait for it to move.
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
        """The records behind a position within a drop, which is a single event in the ring."""
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
        """The next page of records behind a position, of which none was dropped."""
        records = await self._archive.scan(position, upto, limit=self._page, match=match)
        # Behind the read: see `streams.archive.horizon`.
        await self._horizons.check_after_read(self._archive.collection, position)
        return records

    async def _required_position(self, start: str, before: str) -> str:
        """Up to which place the archive must be read, also where the ring reaches further back:
        what was lost behind `start` and is found by reading the present again comes into the
        archive alone, and not by the stream.

        Args:
            before: the last answer.
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
                f"no history of {self._archive.collection} is kept, "
                f"and {_when(position)} lies before what is in memory",
                oldestResumeToken=floor,
            )
        if position < checkpoint.start:
            raise HistoryLost(
                f"the history of {self._archive.collection} begins at {_when(checkpoint.start)}, "
                f"and {_when(position)} was asked for",
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
    """Yield what the ring held, then what comes; never ends. Closes the subscriber.

    Args:
        caught: of the ring, taken in the step of the event loop that attached the subscriber.
        position: where that step left the subscription.
    """
    try:
        caught = [each for each in caught if subscriber.interest.matches(each)]
        for first in range(0, len(caught), EVENTS_PER_READ):
            yield BufferedEvents(caught[first : first + EVENTS_PER_READ])
        yield Idle(position)
        while True:
            reached = hub.position
            events = await subscriber.next(jittered_timeout_s(quiet_s))
            # A client may hold a token that this process's stream has not reached yet.
            fresh = [each for each in events if each.token > position]
            if fresh:
                yield LiveEvents(fresh)
            elif not events and reached > position:
                position = reached
                yield Idle(position)
    finally:
        subscriber.close()


def jittered_timeout_s(most_s: float) -> float:
    """How long one subscriber waits for something. Those who began together, or were told the same,
    would otherwise all be sent a fresher token in the same moment: 2,000 took 0.17 s, in which
    nobody was told anything else."""
    return most_s * random.uniform(0.5, 1.0)


def _when(token: str) -> str:
    return f"{resume_tokens.cluster_time(token).as_datetime():%F %T}Z"
