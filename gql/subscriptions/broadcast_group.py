"""Subscriptions that are told the same: executed once per event, written once, sent to all.

Whoever has caught up with the stream may join the audience of his operation: same document, same
variables, same caller's rights. From there on its events are executed by one for all of them, and
what is sent is the same bytes for each, but for the id in front. Nobody waits for anybody: whoever
does not take what he is sent goes on alone from there, at his own pace and within his own bounds.

Guarantees: whoever joins behind a token is told everything behind it, in order, once; he leaves as
he would leave a subscription of his own, by ending it, by his sign-in's end or the process's. The
first of an operation is alone until there is a second: there is nothing to share.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

from revstream.gql.server.fair_scheduler import TimeSlice
from revstream.gql.subscriptions.broadcast_message import (
    BroadcastMessage,
    BroadcastTarget,
    broadcast,
    chunk_events,
    send_events,
)
from revstream.streams.changefeed.ring_buffer import Ring
from revstream.streams.core.errors import GatewayError, SlowConsumer, Unavailable
from revstream.streams.core.task_cleanup import retrieve_exception

__all__ = ["BroadcastGroup", "BroadcastGroups", "EventSource", "forget_told"]

log = logging.getLogger(__name__)

# Events, and bytes of their responses, that those who join may be behind the others.
_RECENT = 10_000
_RECENT_BYTES = 4 * 1024 * 1024
# Sockets that are written to before others have their turn.
_TURN = 200


class EventSource(Protocol):
    """What makes the responses of one operation, for all who are told them."""

    def behind(self, position: str) -> AsyncGenerator[Sequence[BroadcastMessage]]:
        """Of all events behind a token, together what came at once; never ends. What stands in the
        stream already comes first, then a checkpoint; each of those comes alone."""
        ...

    async def checkpoint(self, token: str) -> BroadcastMessage: ...


_every: WeakSet[BroadcastGroup] = WeakSet()


class BroadcastGroup:
    """Those of one operation. A context manager of each of its subscriptions, for as long as that
    runs.

    Attributes:
        held: how many there are, in the audience or on their own.
    """

    def __init__(
        self, told: Callable[[int], None], forget: Callable[[], object] = lambda: None
    ) -> None:
        """Args:
        told: is given how many were told an event.
        forget: called with the end of the last one.
        """
        _every.add(self)
        self.held = 0
        self._told = told
        self._forget = forget
        self._members: dict[BroadcastTarget, asyncio.Future[str]] = {}
        self._recent = _ring("")
        self._position = ""
        self._task: asyncio.Task[None] | None = None
        # Those whom the leader, who has yet to catch up, owes a checkpoint; None from then on.
        self._awaiting: set[BroadcastTarget] | None = None
        self._greeting: BroadcastMessage | None = None
        self._reaching_back = asyncio.Lock()
        # How many have; nobody need be looked up while it stays the same.
        self._left = 0

    def forget(self) -> None:
        """Let go of what was told: whoever resumes from before goes on alone."""
        self._recent = _ring(self._position)

    def __enter__(self) -> BroadcastGroup:
        self.held += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.held -= 1
        if not self.held:
            self._forget()

    async def join(
        self, seat: BroadcastTarget, position: str, lead: EventSource, *, caught_up: bool
    ) -> str | None:
        """Be told everything behind a position, for as long as this is not cancelled. Returns the
        token behind which to go on alone, once the seat does not take what it is told; at once, and
        None, where there is nobody to share with, or the position lies too far back.

        Args:
            caught_up: it has come to the end of the stream by itself. Else it is told with a
                checkpoint once it has.

        Raises:
            Unavailable, other GatewayErrors: the stream has broken; resume behind `seat.token`.
        """
        if self.held < 2:
            return None
        if self._task is not None and position < self._recent.floor:
            if caught_up:
                return None
            async with self._reaching_back:
                # Whoever was first may have done it for all.
                await self._reach_back(position, lead)
        greeting = None
        if not caught_up and self._task is not None and self._awaiting is None:
            greeting = await self._greeting_at(position, lead)
        # From here on without waiting: nothing is told in between.
        if self._task is None:
            self._begin(position, lead)
        missed = self._recent.items_after(position)
        if missed is None:
            return None
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._members[seat] = ended
        seat.token = position
        self._catch_up(seat, missed, greeting)
        if not caught_up and self._awaiting is not None:
            self._awaiting.add(seat)
        try:
            return await ended
        finally:
            if self._members.pop(seat, None) is not None:
                self._left += 1
            if self._awaiting is not None:
                self._awaiting.discard(seat)
            if not self._members and self._task is not None:
                self._task.cancel()
                self._task = None

    def _begin(self, position: str, lead: EventSource) -> None:
        self._position = position
        self._recent = _ring(position)
        self._awaiting = set()
        self._task = asyncio.create_task(self._lead(lead, position))
        self._task.add_done_callback(retrieve_exception)

    async def _reach_back(self, position: str, lead: EventSource) -> None:
        """Make what was told behind a position, before anybody was here, as far as it can be
        kept."""
        recent, floor = self._recent, self._recent.floor
        if position >= floor or recent.dropped:
            return
        earlier: list[BroadcastMessage] = []
        time_slice = TimeSlice()
        try:
            async with aclosing(lead.behind(position)) as parts:
                async for events in parts:
                    wanted = [each for each in events if each.counts and each.token <= floor]
                    earlier += wanted
                    if len(wanted) < len(events):
                        break
                    await time_slice.maybe_yield()
        except GatewayError:
            # Whoever wanted it goes on alone, and is told.
            return
        if self._recent is recent and recent.floor == floor:
            self._recent = _ring(position)
            for each in (*earlier, *(recent.items_after(floor) or ())):
                self._recent.append(each)

    async def _greeting_at(self, position: str, lead: EventSource) -> BroadcastMessage:
        """Where the audience stands, or the one who comes if that is further."""
        while True:
            token = max(position, self._position)
            made = self._greeting
            if made is None or made.token != token:
                made = await lead.checkpoint(token)
            if token == max(position, self._position):
                self._greeting = made
                return made

    def _catch_up(
        self,
        seat: BroadcastTarget,
        missed: Sequence[BroadcastMessage],
        greeting: BroadcastMessage | None,
    ) -> None:
        count, taken = send_events(missed if greeting is None else [*missed, greeting], seat)
        if not taken:
            self._leave(seat)
        self._told(count)

    async def _lead(self, lead: EventSource, position: str) -> None:
        me, time_slice = asyncio.current_task(), TimeSlice()
        try:
            async with aclosing(lead.behind(position)) as parts:
                async for events in parts:
                    for each in events:
                        if each.counts:
                            self._recent.append(each)
                        self._position = max(self._position, each.token)
                    if self._awaiting is None:
                        for portion in chunk_events(events):
                            await self._tell(portion)
                    elif not events[-1].counts:
                        await self._greet(lead)
                    else:
                        await time_slice.maybe_yield()
        except SlowConsumer:
            # Not theirs: more comes than one can make responses of for all of them.
            for seat in list(self._members):
                self._leave(seat)
        except GatewayError as exc:
            self._end(exc)
        except Exception:
            log.exception("an audience was left by its leader")
            self._end(Unavailable("the subscription was interrupted; subscribe again"))
        finally:
            if self._task is me:
                self._task = None

    async def _greet(self, lead: EventSource) -> None:
        """The leader has caught up with the stream: so do all who came meanwhile."""
        awaiting, self._awaiting = self._awaiting or set(), None
        time_slice = TimeSlice()
        for seat in list(self._members):
            greeting = None
            if seat in awaiting or seat.token < self._position:
                greeting = await self._greeting_at(seat.token, lead)
            missed = self._recent.items_after(seat.token)
            if seat in self._members:
                if missed is None:
                    self._leave(seat)
                else:
                    self._catch_up(seat, missed, greeting)
            await time_slice.maybe_yield()

    async def _tell(self, events: Sequence[BroadcastMessage]) -> None:
        """To all. While they are, the next ones come together, so that whoever is behind writes
        fewer times."""
        members, left, count = self._members, self._left, 0
        seats = list(members)
        for first in range(0, len(seats), _TURN):
            turn = seats[first : first + _TURN]
            if first:
                await asyncio.sleep(0)
                if left != self._left:
                    turn = [each for each in turn if each in members]
            told, refusing = broadcast(events, turn)
            for each in refusing:
                self._leave(each)
            count += told
        if events[-1].counts:
            self._told(count)

    def _leave(self, seat: BroadcastTarget) -> None:
        """It goes on alone."""
        self._left += 1
        ended = self._members.pop(seat)
        if not ended.done():
            ended.set_result(seat.token)

    def _end(self, error: GatewayError) -> None:
        for ended in self._members.values():
            if not ended.done():
                ended.set_exception(error.copy())
        # Not told by whoever leads next, before they have heard of it.
        self._members.clear()


class BroadcastGroups:
    """Those of one caller's rights, by operation.

    Attributes:
        responses: to one change each, for audiences whose filters differ; for as long as one of
            them remembers it.
    """

    def __init__(self) -> None:
        self.responses: WeakValueDictionary[Hashable, BroadcastMessage] = WeakValueDictionary()
        self._by_key: dict[Hashable, BroadcastGroup] = {}

    def of(self, key: Hashable, told: Callable[[int], None]) -> BroadcastGroup:
        """That of an operation, known for as long as a subscription holds it.

        Args:
            key: equal where everything that they are told is the same.
        """
        audience = self._by_key.get(key)
        if audience is None:
            audience = self._by_key[key] = BroadcastGroup(
                told, partial(self._by_key.pop, key, None)
            )
        return audience


def forget_told() -> None:
    """Let go of what all audiences of this process were told."""
    for each in list(_every):
        each.forget()


def _ring(floor: str) -> Ring[BroadcastMessage]:
    return Ring(floor, capacity_events=_RECENT, capacity_bytes=_RECENT_BYTES)
