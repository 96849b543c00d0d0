"""Who may execute now: so many operations at once, a short queue behind them, and for each so much
time.

Guarantees: what is turned away has cost no more than its validation, and is told when to come
again; those that wait are served in their order. A subscription takes a place of its principal for
as long as it lives, but none of those that execute: it waits most of its time, and has been bounded
where its connection was.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol

from strawberry.extensions import SchemaExtension
from strawberry.types.graphql import OperationType

from resolvers.errors import LimitExceeded
from streams.errors import TimeLimit, Unavailable

__all__ = ["Admission", "Admitted"]

RETRY_AFTER_S = 1
"""What those are told that are turned away: the queue takes about as long, where it is full."""


class Admission:
    """Args:
        executing: how many queries and mutations at once; 0: as many as come.
        waiting: how many behind them.
        per_principal: operations of any kind at once of one who is known; 0: as many as come.
        limit_s: the most that a query or mutation may take, its waiting included.
    Attributes:
        shed: how many were turned away because there were too many of them.
    """

    def __init__(
        self,
        *,
        executing: int = 100,
        waiting: int = 1000,
        per_principal: int = 1000,
        limit_s: float = 60.0,
    ) -> None:
        self.executing = 0
        self.waiting = 0
        self.shed = 0
        self._most_executing = executing
        self._most_waiting = waiting
        self._most_per_principal = per_principal
        self.limit_s = limit_s
        self.clock = _Clock(limit_s)
        # Of those that wait for a place, in their order: done once they have it.
        self._queue: deque[asyncio.Future[None]] = deque()
        self._of: dict[str, int] = {}

    def begin(self, principal: str) -> None:
        """An operation of one who is known; "": of nobody known.

        Raises:
            LimitExceeded: it is one too many.
        """
        if not principal:
            return
        count, most = self._of.get(principal, 0) + 1, self._most_per_principal
        if 0 < most < count:
            raise LimitExceeded(
                f"{count} operations of {principal} would run at once, and {most} is the most; "
                "end some of them first",
                limit="max_principal_operations",
                asked=count,
                bound=most,
            )
        self._of[principal] = count

    def end(self, principal: str) -> None:
        if not principal:
            return
        left = self._of[principal] - 1
        if left:
            self._of[principal] = left
        else:
            del self._of[principal]

    def place(self) -> Place:
        """Hold it while executing; wait for it where it is not `free`.

        Raises:
            TimeLimit: it was held for too long; what was under way is cancelled.
        """
        return Place(self)

    def late(self) -> TimeLimit:
        return TimeLimit(
            f"the operation took longer than {self.limit_s:g} s, which is the most; "
            "what a mutation has written by then stays written"
        )

    def enter(self) -> bool:
        """Whether there was a place."""
        free = not 0 < self._most_executing <= self.executing
        if free:
            self.executing += 1
        return free

    async def wait(self) -> None:
        """For one."""
        if self.waiting >= self._most_waiting:
            self.shed += 1
            raise Unavailable(
                f"{self.executing} operations execute and {self.waiting} wait, which are the most; "
                f"try again in {RETRY_AFTER_S} s",
                retryAfterSeconds=RETRY_AFTER_S,
            )
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(given)
        self.waiting += 1
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                # Given up in the very turn in which it got it.
                self.leave()
            raise
        finally:
            self.waiting -= 1

    def leave(self) -> None:
        """The place is the next one's from now on, so that nobody overtakes."""
        while self._queue:
            given = self._queue.popleft()
            if not given.done():
                given.set_result(None)
                return
        self.executing -= 1


class Place:
    """Of one operation that executes. Neither a generator nor `asyncio.timeout`, which each
    operation would pay for: a tenth of what a lookup costs.

    Attributes:
        free: it was at once.
    """

    __slots__ = ("_admission", "_cancelling", "_taken", "expired", "expires", "free", "task")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._taken = False
        self.expired = False
        self.expires = 0.0

    def __enter__(self) -> Place:
        # Once: before Python 3.12 each look for it asks the system for the process's id.
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self.task = task
        self._cancelling = task.cancelling()
        self._admission.clock.watch(self, loop)
        self.free = self._taken = self._admission.enter()
        return self

    async def wait(self) -> None:
        """Behind those that wait already.

        Raises:
            Unavailable: too many do.
        """
        await self._admission.wait()
        self._taken = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._admission.clock.leave(self)
        if self._taken:
            self._admission.leave()
        # As `asyncio.timeout` tells its own cancellation from somebody else's.
        mine = self.expired and self.task.uncancel() <= self._cancelling
        if mine and kind is asyncio.CancelledError:
            raise self._admission.late() from exc

    def expire(self) -> None:
        self.expired = True
        self.task.cancel()


class Held(Protocol):
    """What ends once it was held for too long.

    Attributes:
        expires: by the clock of the loop; the clock's own.
    """

    expires: float

    def expire(self) -> None: ...


class _Clock:
    """Ends places that are held for too long: never too early, and a tenth of the time too late at
    most. All have the same limit, so that the oldest is the first."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._step_s = min(1.0, limit_s / 20)
        self._held: dict[Held, None] = {}
        self._now = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, place: Held, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None or self._loop is not loop:
            self._held, self._timer, self._loop = {}, None, loop
            self._tick()
        # What it shows is up to one step old.
        place.expires = self._now + self._limit_s + self._step_s
        self._held[place] = None

    def leave(self, place: Held) -> None:
        self._held.pop(place, None)

    def _tick(self) -> None:
        assert self._loop is not None
        self._now = self._loop.time()
        late = list(itertools.takewhile(lambda each: each.expires <= self._now, self._held))
        for place in late:
            del self._held[place]
            place.expire()
        busy = self._held or self._timer is None
        self._timer = self._loop.call_later(self._step_s, self._tick) if busy else None


class Admitted(SchemaExtension):
    """Has a query or mutation admitted."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def on_execute(self) -> AsyncIterator[None]:
        if self.execution_context.operation_type is OperationType.SUBSCRIPTION:
            yield
            return
        with self._admission.place() as place:
            if not place.free:
                await place.wait()
            yield
