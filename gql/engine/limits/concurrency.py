"""Concurrency limiter: so many operations execute at once, callers in turn, and for each so much
time.

Guarantees: slots are shared fairly: one caller holds at most half of them, and a slot that becomes
free goes to the callers that wait in turn, whatever number of operations each of them has. A full
queue turns away operations of the caller that has most of it. Callers without a name are one
caller. An operation that waits for the archive holds no slot. A subscription counts as an operation
of its principal for as long as it lives, and holds no slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from strawberry.extensions import SchemaExtension
from strawberry.types.graphql import OperationType

from resolvers.errors import LimitExceeded
from streams.core.execution_slot import EXECUTION_SLOT
from streams.errors import TimeLimit, Unavailable

__all__ = ["ConcurrencyExtension", "ConcurrencyLimiter"]

RETRY_AFTER_S = 1
"""The time after which an operation that was turned away may be sent again."""


class ConcurrencyLimiter:
    """Args:
        executing: how many queries and mutations at once; 0: no limit.
        waiting: how many behind them.
        suspended: how many may wait for the archive, without a slot; 0: no limit.
        per_principal: operations of any kind at once of one who is known; 0: no limit.
        limit_s: the most that a query or mutation may take, its waiting included.
    Attributes:
        executing, waiting, suspended: how many do.
        shed: how many were turned away because there were too many of them.
    """

    def __init__(
        self,
        *,
        executing: int = 100,
        waiting: int = 1000,
        suspended: int = 1000,
        per_principal: int = 1000,
        limit_s: float = 60.0,
    ) -> None:
        self.executing = 0
        self.waiting = 0
        self.suspended = 0
        self.shed = 0
        self.limit_s = limit_s
        self._most_executing = executing
        self._most_waiting = waiting
        self._most_suspended = suspended
        self._most_per_principal = per_principal
        self._slots_of: Counter[str] = Counter()
        self._suspended_of: Counter[str] = Counter()
        self._operations_of: Counter[str] = Counter()
        # By caller, the one whose turn is next first. A future is done once it has a slot.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    def begin(self, principal: str) -> None:
        """Count an operation of a principal; "": of a caller without a name.

        Raises:
            LimitExceeded: it is one too many.
        """
        if not principal:
            return
        count, most = self._operations_of[principal] + 1, self._most_per_principal
        if 0 < most < count:
            raise LimitExceeded(
                f"{count} operations of {principal} would run at once, and {most} is the most; "
                "end some of them first",
                limit="max_principal_operations",
                asked=count,
                bound=most,
            )
        self._operations_of[principal] = count

    def end(self, principal: str) -> None:
        if principal:
            _decrement(self._operations_of, principal)

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        """Hold a slot, which is waited for.

        Raises:
            Unavailable: too many operations wait.
            TimeLimit: it took too long; what was under way is cancelled.
        """
        try:
            async with asyncio.timeout(self.limit_s) as limit:
                await self.acquire(caller)
                slot = _Slot(self, caller)
                EXECUTION_SLOT.set(slot)
                try:
                    yield
                finally:
                    slot.close()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise self.late() from exc

    def late(self) -> TimeLimit:
        return TimeLimit(
            f"the operation took longer than {self.limit_s:g} s, which is the most; "
            "what a mutation has written by then stays written"
        )

    def try_acquire(self, caller: str) -> bool:
        """Take a slot if one is free for this caller."""
        free = self._is_free(caller)
        if free:
            self._take(caller)
        return free

    async def acquire(self, caller: str, *, resumes: bool = False) -> None:
        """Take a slot, waiting for it behind those of the same caller.

        Args:
            resumes: it had one before, and is not turned away.

        Raises:
            Unavailable: too many operations wait.
        """
        if self.try_acquire(caller):
            return
        if not resumes and self.waiting >= self._most_waiting:
            self._make_room(caller)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(caller, deque())
        queue.append(granted)
        self.waiting += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted in queue:
                queue.remove(granted)
            elif not granted.cancelled() and granted.exception() is None:
                # Given up in the very turn in which it got its slot.
                self.release(caller)
            raise
        finally:
            self.waiting -= 1

    def release(self, caller: str) -> None:
        """Give a slot back; the next operation has it from now on, so that none overtakes."""
        self.executing -= 1
        _decrement(self._slots_of, caller)
        self._grant()

    def suspend(self, caller: str) -> None:
        """Count an operation that waits without a slot.

        Raises:
            Unavailable: too many do, in all or of this caller.
        """
        most, mine = self._most_suspended, self._suspended_of[caller]
        if 0 < most <= max(self.suspended, 2 * mine):
            self.shed += 1
            raise self._busy(f"{mine} operations of this caller wait for the archive")
        self.suspended += 1
        self._suspended_of[caller] += 1

    def resume(self, caller: str) -> None:
        self.suspended -= 1
        _decrement(self._suspended_of, caller)

    def _is_free(self, caller: str) -> bool:
        most = self._most_executing
        return most <= 0 or (self.executing < most and self._slots_of[caller] < (most + 1) // 2)

    def _take(self, caller: str) -> None:
        self.executing += 1
        self._slots_of[caller] += 1

    def _grant(self) -> None:
        for caller in list(self._queues):
            queue = self._queues[caller]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._queues[caller]
            elif self._is_free(caller):
                # Its next turn comes after those of all others.
                del self._queues[caller]
                self._queues[caller] = queue
                self._take(caller)
                queue.popleft().set_result(None)
                return

    def _make_room(self, caller: str) -> None:
        """Turn away the newest operation of the caller that has most of the queue.

        Raises:
            Unavailable: that is this one.
        """
        self.shed += 1
        busy = self._busy(f"{self.executing} operations execute and {self.waiting} wait")
        largest = max(self._queues, key=lambda each: len(self._queues[each]), default=caller)
        mine = len(self._queues.get(caller, ()))
        if largest == caller or len(self._queues[largest]) <= mine + 1:
            raise busy
        last = self._queues[largest].pop()
        if not last.done():
            last.set_exception(busy)

    def _busy(self, problem: str) -> Unavailable:
        return Unavailable(
            f"{problem}, which are the most; try again in {RETRY_AFTER_S} s",
            retryAfterSeconds=RETRY_AFTER_S,
        )


class _Slot:
    """Slot of one operation, several of whose fields may wait at once."""

    __slots__ = ("_acquiring", "_caller", "_closed", "_held", "_limiter", "_waits")

    def __init__(self, limiter: ConcurrencyLimiter, caller: str) -> None:
        self._limiter = limiter
        self._caller = caller
        self._held = True
        self._closed = False
        self._acquiring = False
        self._waits = 0

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """See `ExecutionSlot`."""
        if self._closed:
            yield
            return
        if not self._waits:
            self._limiter.suspend(self._caller)
        self._waits += 1
        self._give_back()
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._limiter.resume(self._caller)
        # Of an operation that has failed, only the answer is left to do.
        if not (self._waits or self._held or self._acquiring or self._closed):
            await self._acquire_again()

    def close(self) -> None:
        self._closed = True
        self._give_back()

    def _give_back(self) -> None:
        if self._held:
            self._held = False
            self._limiter.release(self._caller)

    async def _acquire_again(self) -> None:
        self._acquiring = True
        try:
            await self._limiter.acquire(self._caller, resumes=True)
        finally:
            self._acquiring = False
        self._held = True
        if self._closed or self._waits:
            self._give_back()


class ConcurrencyExtension(SchemaExtension):
    """Slots for queries and mutations that Strawberry executes."""

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        self._limiter = limiter

    async def on_execute(self) -> AsyncIterator[None]:
        if self.execution_context.operation_type is OperationType.SUBSCRIPTION:
            yield
            return
        context = self.execution_context.context
        async with self._limiter.slot("" if context is None else context.owner):
            yield


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
