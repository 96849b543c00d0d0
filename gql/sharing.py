"""Subscriptions that are told the same: executed once per event, written once, sent to all.

Whoever has caught up with the stream may join the audience of his operation: same document, same
variables, same caller's rights. From there on its events are executed by one for all of them, and
what is sent is the same bytes for each, but for the id in front. Nobody waits for anybody: whoever
does not take what he is sent goes on alone from there, at his own pace and within his own bounds.

Guarantees: whoever joins behind a token is told everything behind it, in order, once; he leaves as
he would leave a subscription of his own, by ending it, by his sign-in's end or the process's. The
first of an operation is left alone: there is nothing to share.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from graphql import VariableNode, Visitor, visit

from streams.errors import GatewayError, SlowConsumer, Unavailable

if TYPE_CHECKING:
    from gql.context import ResolveInfo

__all__ = ["SEAT", "Audience", "Audiences", "Led", "Seat", "Told", "shared_key"]

log = logging.getLogger(__name__)

# Events, and bytes of their responses, that those who join may be behind the others.
_RECENT = 500
_RECENT_BYTES = 4 * 1024 * 1024
# Sockets that are written to before others have their turn.
_TURN = 200


class Seat(Protocol):
    """Where one subscription is written to. `token`: behind what it was told last."""

    token: str

    def write(self, told: Told) -> bool:
        """Send a response without waiting. False where too much is not yet taken."""
        ...


SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)
"""Of the operation of this task; None where its transport has none."""


class Told:
    """The response to one event.

    Attributes:
        shown: the token as the API shows it.
        counts: it is of a change, and no checkpoint.
        frames: what seats of one kind make of it, by kind: the first makes it for all of them.
    """

    __slots__ = ("counts", "frames", "payload", "shown", "token")

    def __init__(self, token: str, payload: bytes, *, shown: str, counts: bool) -> None:
        self.token = token
        self.shown = shown
        self.payload = payload
        self.counts = counts
        self.frames: dict[Hashable, Any] = {}


Led = Callable[[str], AsyncGenerator[Told]]
"""From behind a token on."""


class Audience:
    """Those of one operation. `held`: subscriptions of it, in the audience or on their own."""

    def __init__(self, told: Callable[[int], None]) -> None:
        """Args:
        told: is given how many were told an event.
        """
        self.held = 0
        self._told = told
        self._members: dict[Seat, asyncio.Future[str]] = {}
        self._recent: deque[Told] = deque()
        self._recent_bytes = 0
        self._floor = ""
        self._task: asyncio.Task[None] | None = None
        # How many have; nobody need be looked up while it stays the same.
        self._left = 0

    async def join(self, seat: Seat, position: str, lead: Led) -> str:
        """Be told everything behind a position, for as long as this is not cancelled. Returns the
        token behind which to go on alone: at once where there is nobody to share with, or once the
        seat does not take what it is told.

        Raises:
            Unavailable, other GatewayErrors: the stream has broken; resume behind `seat.token`.
        """
        if self.held < 2:
            return position
        if self._task is None:
            self._floor = position
            self._recent.clear()
            self._recent_bytes = 0
            self._task = asyncio.create_task(self._lead(lead(position)))
        elif position < self._floor:
            return position
        seat.token = position
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._members[seat] = ended
        for each in self._recent:
            if not self._tell_one(seat, each):
                break
        try:
            return await ended
        finally:
            if self._members.pop(seat, None) is not None:
                self._left += 1
            if not self._members and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _lead(self, events: AsyncGenerator[Told]) -> None:
        me = asyncio.current_task()
        try:
            async with aclosing(events):
                async for each in events:
                    self._keep(each)
                    await self._tell(each)
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

    def _keep(self, event: Told) -> None:
        """For those who join behind it."""
        self._recent.append(event)
        self._recent_bytes += len(event.payload)
        while len(self._recent) > _RECENT or self._recent_bytes > _RECENT_BYTES:
            oldest = self._recent.popleft()
            self._floor = oldest.token
            self._recent_bytes -= len(oldest.payload)

    async def _tell(self, event: Told) -> None:
        """To all. Of thousands: what is done for one seat more than has to be is felt."""
        members, token, count, left = self._members, event.token, 0, self._left
        seats = list(members)
        for first in range(0, len(seats), _TURN):
            if first:
                await asyncio.sleep(0)
            for seat in seats[first : first + _TURN]:
                # Who stands behind it already is not told, nor who has left meanwhile.
                if seat.token < token and (left == self._left or seat in members):
                    if seat.write(event):
                        seat.token = token
                        count += 1
                    else:
                        self._leave(seat)
        if event.counts:
            self._told(count)

    def _tell_one(self, seat: Seat, event: Told) -> bool:
        """False where it has left."""
        if seat.token < event.token:
            if not seat.write(event):
                self._leave(seat)
                return False
            seat.token = event.token
        return True

    def _leave(self, seat: Seat) -> None:
        """It goes on alone."""
        self._left += 1
        ended = self._members.pop(seat)
        if not ended.done():
            ended.set_result(seat.token)

    def _end(self, error: GatewayError) -> None:
        for ended in self._members.values():
            if not ended.done():
                # One for each: what is added to it only concerns this one.
                ended.set_exception(type(error)(error.message, **error.facts))
        # Not told by whoever leads next, before they have heard of it.
        self._members.clear()


class Audiences:
    """Those of one caller's rights, by operation."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Audience] = {}

    @contextmanager
    def held(self, key: Hashable, told: Callable[[int], None]) -> Iterator[Audience]:
        """The audience of an operation, while a subscription of it runs.

        Args:
            key: equal where everything that they are told is the same.
        """
        audience = self._by_key.get(key)
        if audience is None:
            audience = self._by_key[key] = Audience(told)
        audience.held += 1
        try:
            yield audience
        finally:
            audience.held -= 1
            if not audience.held:
                del self._by_key[key]


_BEGINNING = frozenset({"after", "since", "cursor", "snapshot"})
"""The arguments of a subscription that say where it begins."""


def shared_key(info: ResolveInfo) -> Hashable:
    """Equal for subscriptions that are told the same from where they have caught up on, to the same
    caller: those of one plan, with the same variables but for where they begin."""
    plan = info.context.plan
    assert plan is not None
    if plan.starts is None:
        plan.starts = _starts(info)
    variables: Mapping[str, Any] = info.variable_values  # type: ignore[assignment]
    rest = {name: each for name, each in variables.items() if name not in plan.starts}
    # The plan itself, so that its identity is nobody else's for as long as this is a key.
    return plan, repr(sorted(rest.items()))


def _starts(info: ResolveInfo) -> frozenset[str]:
    node = info.field_nodes[0]
    named = [
        each.value.name.value
        for each in node.arguments or ()
        if each.name.value in _BEGINNING and isinstance(each.value, VariableNode)
    ]
    used = _Used()
    for each in (info.operation.selection_set, *info.fragments.values()):
        visit(each, used)
    return frozenset(name for name in named if used.counts[name] == named.count(name))


class _Used(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        self.counts[node.name.value] += 1
