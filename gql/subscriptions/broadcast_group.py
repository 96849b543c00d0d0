"""Broadcast groups: identical subscriptions that are executed and serialized once per event.

A subscription that has caught up with the stream may join the group of its operation: same
document, same variables, same access rights. From then on one task executes each event for all
members, and each is sent the same bytes, apart from its own operation id. No member waits for
another: one whose buffer is full leaves the group and continues alone, within its own bounds.

Guarantees: a member that joins after a token receives every later event, in order, once. It ends as
a subscription of its own does: by its client, the end of its token, or the end of the process. The
first subscription of an operation runs alone until there is a second one.

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

__all__ = ["BroadcastGroup", "BroadcastGroups", "EventSource", "clear_recent_events"]

log = logging.getLogger(__name__)

# Maximum number of recent events, and bytes of their responses, kept for members that join.
_RECENT = 10_000
_RECENT_BYTES = 4 * 1024 * 1024
# Number of targets that are written to before other tasks of the event loop run.
_TURN = 200


class EventSource(Protocol):
    """Producer of the responses of one operation, for all members of a group."""

    def events_after(self, position: str) -> AsyncGenerator[Sequence[BroadcastMessage]]:
        """Return the messages of all events after a token, in batches as they arrived; never ends.

        Events that are in the stream already come first, then a checkpoint; each of these is a
        batch of its own.
        """
        ...

    async def checkpoint(self, token: str) -> BroadcastMessage: ...


_every: WeakSet[BroadcastGroup] = WeakSet()


class BroadcastGroup:
    """All subscriptions of one operation; a context manager of each of them, while it runs.

    Attributes:
        held: the number of subscriptions, members of the group or not.
    """

    def __init__(
        self, count_deliveries: Callable[[int], None], on_empty: Callable[[], object] = lambda: None
    ) -> None:
        """Create an empty group.

        Args:
            count_deliveries: is called with the number of deliveries of an event.
            on_empty: is called when the last subscription ends.
        """
        _every.add(self)
        self.held = 0
        self._count_deliveries = count_deliveries
        self._on_empty = on_empty
        self._members: dict[BroadcastTarget, asyncio.Future[str]] = {}
        self._recent = _ring("")
        self._position = ""
        self._task: asyncio.Task[None] | None = None
        # Members that get a checkpoint when the leader has caught up; None from then on.
        self._awaiting: set[BroadcastTarget] | None = None
        self._checkpoint: BroadcastMessage | None = None
        self._rebuild_lock = asyncio.Lock()
        # Number of members that have left; while it is unchanged, no membership has to be checked.
        self._left = 0

    def clear(self) -> None:
        """Discard the recent events; a subscription that resumes before them runs alone."""
        self._recent = _ring(self._position)

    def __enter__(self) -> BroadcastGroup:
        self.held += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.held -= 1
        if not self.held:
            self._on_empty()

    async def join(
        self, target: BroadcastTarget, position: str, source: EventSource, *, caught_up: bool
    ) -> str | None:
        """Receive all events after a position, until this call is cancelled.

        Args:
            caught_up: the subscription has reached the end of the stream by itself. Otherwise it
                receives a checkpoint when it has.

        Returns:
            The token after which to continue alone, when the target's buffer is full; None, at
            once, if there is no other subscription, or the position is too old.

        Raises:
            Unavailable, other GatewayErrors: the stream was interrupted; resume after
                `target.token`.
        """
        if self.held < 2:
            return None
        if self._task is not None and position < self._recent.floor:
            if caught_up:
                return None
            async with self._rebuild_lock:
                # Another subscription may have rebuilt them meanwhile.
                await self._rebuild_recent(position, source)
        checkpoint = None
        if not caught_up and self._task is not None and self._awaiting is None:
            checkpoint = await self._checkpoint_at(position, source)
        # No await below this line, so that no event can be broadcast between these steps.
        if self._task is None:
            self._begin(position, source)
        missed = self._recent.items_after(position)
        if missed is None:
            return None
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._members[target] = ended
        target.token = position
        self._catch_up(target, missed, checkpoint)
        if not caught_up and self._awaiting is not None:
            self._awaiting.add(target)
        try:
            return await ended
        finally:
            if self._members.pop(target, None) is not None:
                self._left += 1
            if self._awaiting is not None:
                self._awaiting.discard(target)
            if not self._members and self._task is not None:
                self._task.cancel()
                self._task = None

    def _begin(self, position: str, source: EventSource) -> None:
        self._position = position
        self._recent = _ring(position)
        self._awaiting = set()
        self._task = asyncio.create_task(self._lead(source, position))
        self._task.add_done_callback(retrieve_exception)

    async def _rebuild_recent(self, position: str, source: EventSource) -> None:
        """Rebuild earlier events of the group, back to `position` if the ring buffer has room."""
        recent, floor = self._recent, self._recent.floor
        if position >= floor or recent.dropped:
            return
        earlier: list[BroadcastMessage] = []
        time_slice = TimeSlice()
        try:
            async with aclosing(source.events_after(position)) as parts:
                async for events in parts:
                    wanted = [each for each in events if each.counts and each.token <= floor]
                    earlier += wanted
                    if len(wanted) < len(events):
                        break
                    await time_slice.maybe_yield()
        except GatewayError:
            # The subscription then runs alone, and reports the error itself.
            return
        if self._recent is recent and recent.floor == floor:
            self._recent = _ring(position)
            for each in (*earlier, *(recent.items_after(floor) or ())):
                self._recent.append(each)

    async def _checkpoint_at(self, position: str, source: EventSource) -> BroadcastMessage:
        """Return the checkpoint at the group's position, or at `position` if that is later."""
        while True:
            token = max(position, self._position)
            made = self._checkpoint
            if made is None or made.token != token:
                made = await source.checkpoint(token)
            if token == max(position, self._position):
                self._checkpoint = made
                return made

    def _catch_up(
        self,
        target: BroadcastTarget,
        missed: Sequence[BroadcastMessage],
        checkpoint: BroadcastMessage | None,
    ) -> None:
        count, taken = send_events(missed if checkpoint is None else [*missed, checkpoint], target)
        if not taken:
            self._leave(target)
        self._count_deliveries(count)

    async def _lead(self, source: EventSource, position: str) -> None:
        me, time_slice = asyncio.current_task(), TimeSlice()
        try:
            async with aclosing(source.events_after(position)) as parts:
                async for events in parts:
                    for each in events:
                        if each.counts:
                            self._recent.append(each)
                        self._position = max(self._position, each.token)
                    if self._awaiting is None:
                        for portion in chunk_events(events):
                            await self._broadcast(portion)
                    elif not events[-1].counts:
                        await self._finish_replay(source)
                    else:
                        await time_slice.maybe_yield()
        except SlowConsumer:
            # The leader is too slow for the stream, not its members.
            for target in list(self._members):
                self._leave(target)
        except GatewayError as exc:
            self._end(exc)
        except Exception:
            log.exception("broadcast group failed")
            self._end(Unavailable("subscription: interrupted by an error; subscribe again"))
        finally:
            if self._task is me:
                self._task = None

    async def _finish_replay(self, source: EventSource) -> None:
        """Send missed events and a checkpoint to members that joined while the leader replayed."""
        awaiting, self._awaiting = self._awaiting or set(), None
        time_slice = TimeSlice()
        for target in list(self._members):
            checkpoint = None
            if target in awaiting or target.token < self._position:
                checkpoint = await self._checkpoint_at(target.token, source)
            missed = self._recent.items_after(target.token)
            if target in self._members:
                if missed is None:
                    self._leave(target)
                else:
                    self._catch_up(target, missed, checkpoint)
            await time_slice.maybe_yield()

    async def _broadcast(self, events: Sequence[BroadcastMessage]) -> None:
        """Send events to all members.

        Events that arrive meanwhile are sent together, so that a slow group needs fewer writes.
        """
        members, left, count = self._members, self._left, 0
        targets = list(members)
        for first in range(0, len(targets), _TURN):
            turn = targets[first : first + _TURN]
            if first:
                await asyncio.sleep(0)
                if left != self._left:
                    turn = [each for each in turn if each in members]
            delivered, refusing = broadcast(events, turn)
            for each in refusing:
                self._leave(each)
            count += delivered
        if events[-1].counts:
            self._count_deliveries(count)

    def _leave(self, target: BroadcastTarget) -> None:
        """Remove a member; its subscription continues alone."""
        self._left += 1
        ended = self._members.pop(target)
        if not ended.done():
            ended.set_result(target.token)

    def _end(self, error: GatewayError) -> None:
        for ended in self._members.values():
            if not ended.done():
                ended.set_exception(error.copy())
        # The next leader must not send to members that have not seen the error yet.
        self._members.clear()


class BroadcastGroups:
    """The broadcast groups of one caller's access rights, by operation.

    Attributes:
        responses: one message per change and selection, for groups whose filters differ; kept while
            one of them keeps it.
    """

    def __init__(self) -> None:
        self.responses: WeakValueDictionary[Hashable, BroadcastMessage] = WeakValueDictionary()
        self._by_key: dict[Hashable, BroadcastGroup] = {}

    def group(self, key: Hashable, count_deliveries: Callable[[int], None]) -> BroadcastGroup:
        """Return the group of an operation, which exists while a subscription holds it.

        Args:
            key: equal where all events and responses are the same.
            count_deliveries: see `BroadcastGroup`.
        """
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = BroadcastGroup(
                count_deliveries, partial(self._by_key.pop, key, None)
            )
        return group


def clear_recent_events() -> None:
    """Discard the recent events of all groups of this process."""
    for each in list(_every):
        each.clear()


def _ring(floor: str) -> Ring[BroadcastMessage]:
    return Ring(floor, capacity_events=_RECENT, capacity_bytes=_RECENT_BYTES)
