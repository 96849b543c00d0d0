"""Concurrency limiter for operations, fair between callers, with a time limit for each operation.

Guarantees: one caller holds at most half of the slots, and a free slot goes to the waiting callers
in turn, however many operations each of them has. A full queue refuses operations of the caller
that has most of it. Callers without a name count as one caller. An operation that waits for the
archive or for memory holds no slot. A subscription counts as an operation of its principal while it
runs, and holds no slot.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from strawberry.extensions import SchemaExtension
from strawberry.types.graphql import OperationType

from revstream.gql.engine.limits.operation_budget import (
    OperationBudget,
    OperationLimits,
    large_read_slots,
)
from revstream.gql.engine.limits.schema_only import operation_asks_schema_only
from revstream.gql.server.client_presence import finish_without_client
from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.errors import TimeLimit, Unavailable
from revstream.streams.core.fair_semaphore import FairSemaphore
from revstream.streams.core.operation import OPERATION

__all__ = ["ConcurrencyExtension", "ConcurrencyLimiter", "SubscriptionOperation"]

_UNLIMITED = OperationLimits()

_MOST_LARGE_WAITING = 100
"""Maximum number of operations that wait for memory, at most half of them of one caller.

Each keeps what it has read until then, which may take 2 MB."""

RETRY_AFTER_S = 1
"""Time after which a refused operation may be sent again."""


class ConcurrencyLimiter:
    """Limiter of the operations of one process.

    Args:
        executing: maximum number of queries and mutations at once; 0: no limit.
        waiting: maximum number of operations that wait for a slot.
        suspended: maximum number that wait for the archive or for memory, without a slot; 0: no
            limit.
        limits: of the reads and computation of each operation.
        per_principal: maximum number of operations of any kind of one named caller; 0: no limit.
        limit_s: maximum duration of a query or mutation, waiting included.

    Attributes:
        executing, waiting, suspended: current numbers of operations.
        shed: number of operations refused because of these limits.
    """

    def __init__(
        self,
        *,
        executing: int = 100,
        waiting: int = 1000,
        suspended: int = 1000,
        limits: OperationLimits = _UNLIMITED,
        per_principal: int = 1000,
        limit_s: float = 60.0,
    ) -> None:
        self.suspended = 0
        self.shed = 0
        self.limit_s = limit_s
        self.limits = limits
        self.large_reads = large_read_slots(limits)
        self._slots = FairSemaphore(executing, per_caller=(executing + 1) // 2)
        self._most_waiting = waiting
        self._most_suspended = suspended
        self._most_per_principal = per_principal
        self._suspended_of: Counter[str] = Counter()
        self._operations_of: Counter[str] = Counter()
        # Running operations with the loop time at which each must end, in that order; and those
        # that an outage has cancelled.
        self._running: dict[asyncio.Timeout, float] = {}
        self._interrupted: set[asyncio.Timeout] = set()
        # One timer for all: a timer per operation would cost more than its slot.
        self._timer: asyncio.TimerHandle | None = None
        self._outage: str | None = None

    @property
    def executing(self) -> int:
        return self._slots.held

    @property
    def waiting(self) -> int:
        return self._slots.waiting

    def begin(self, principal: str) -> None:
        """Count an operation of a principal; "" is a caller without a name.

        Raises:
            LimitExceeded: the principal has too many operations.
        """
        if not principal:
            return
        count, most = self._operations_of[principal] + 1, self._most_per_principal
        if 0 < most < count:
            raise LimitExceeded(
                f"operations of {principal} at once: {count:,}, maximum is {most:,}; "
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
    async def slot(
        self, caller: str, *, begun: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Args:
            begun: is called when the slot is acquired.

        Raises:
            Unavailable: too many operations wait, or the database is not available.
            TimeLimit: the operation took too long; it was cancelled.
        """
        if self._outage is not None:
            raise self._away()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limit_time(limit)
                await self.acquire(caller)
                slot = _Slot(self, caller)
                OPERATION.set(slot)
                if begun is not None:
                    begun()
                try:
                    yield
                finally:
                    slot.close()
        except TimeoutError as exc:
            if not limit.expired():
                raise
            raise (self._away() if limit in self._interrupted else self.late()) from exc
        finally:
            self._running.pop(limit, None)
            self._interrupted.discard(limit)

    def interrupt(self, outage: str | None) -> None:
        """Cancel running operations, and refuse new ones, while the database is not available.

        Args:
            outage: the reason; None: the database is available again.
        """
        self._outage = outage
        if outage is None:
            return
        now = asyncio.get_running_loop().time()
        for limit in self._running.keys() - self._interrupted:
            if not limit.expired():
                self._interrupted.add(limit)
                limit.reschedule(now)

    def _limit_time(self, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._running[limit] = loop.time() + self.limit_s
        if self._timer is None:
            self._timer = loop.call_later(self.limit_s, self._end_late)

    def _end_late(self) -> None:
        """Cancel the operations that took too long, and set the timer for the next one."""
        self._timer = None
        loop = asyncio.get_running_loop()
        for limit, ends_at in list(self._running.items()):
            if ends_at > loop.time():
                self._timer = loop.call_at(ends_at, self._end_late)
                return
            del self._running[limit]
            if not limit.expired():
                limit.reschedule(ends_at)

    def _away(self) -> Unavailable:
        return Unavailable(
            f"MongoDB is unavailable: {self._outage or 'the connection was interrupted'}; "
            "try again; finished writes of a mutation are kept"
        )

    def late(self) -> TimeLimit:
        return TimeLimit(
            f"execution time: more than {self.limit_s:g} s, which is the maximum; request less "
            "at once; finished writes of a mutation are kept"
        )

    async def acquire(self, caller: str, *, resumes: bool = False) -> None:
        """Acquire a slot, after the waiting operations of the same caller.

        Args:
            resumes: the operation had a slot before, and is not refused.

        Raises:
            Unavailable: too many operations wait.
        """
        slots = self._slots
        if not (slots.is_free(caller) or resumes) and slots.waiting >= self._most_waiting:
            self.shed += 1
            waiting, most = self.waiting, self._most_waiting
            if not slots.evict(caller, lambda: self.busy("waiting operations", waiting, most)):
                raise self.busy("waiting operations", waiting, most)
        await slots.acquire(caller)

    def release(self, caller: str) -> None:
        self._slots.release(caller)

    def suspend(self, caller: str) -> None:
        """Count an operation that waits without a slot.

        Raises:
            Unavailable: too many operations wait, in total or of this caller.
        """
        most, mine = self._most_suspended, self._suspended_of[caller]
        if 0 < most <= max(self.suspended, 2 * mine):
            self.shed += 1
            if self.suspended >= most:
                raise self.busy("operations that wait for data", self.suspended, most)
            raise self.busy("the caller's operations that wait for data", mine, (most + 1) // 2)
        self.suspended += 1
        self._suspended_of[caller] += 1

    def resume(self, caller: str) -> None:
        self.suspended -= 1
        _decrement(self._suspended_of, caller)

    def busy(self, subject: str, count: int, most: int) -> Unavailable:
        return Unavailable(
            f"{subject}: {count:,}, maximum is {most:,}; try again in {RETRY_AFTER_S} s",
            retryAfterSeconds=RETRY_AFTER_S,
        )


class _Slot(OperationBudget):
    """Slot of one operation, of which several fields may wait at once."""

    __slots__ = ("_held", "_limiter", "_reading", "_regaining", "_waits")

    def __init__(self, limiter: ConcurrencyLimiter, caller: str) -> None:
        super().__init__(limiter.limits, limiter.large_reads, caller)
        self._limiter = limiter
        self._held = True
        self._regaining = False
        self._waits = 0
        self._reading: set[asyncio.Task[Any]] = set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See `streams.core.operation`."""
        task = asyncio.current_task()
        # Only the outermost read of a task counts.
        if task is None or task in self._reading:
            yield
            return
        self._reading.add(task)
        try:
            yield
        finally:
            self._reading.discard(task)

    async def acquire_memory(self) -> None:
        """See `streams.core.operation`."""
        if self._is_large or self._ended:
            return
        large = self._limiter.large_reads
        mine, share = large.waiting_of(self.caller), _MOST_LARGE_WAITING // 2
        if large.waiting >= _MOST_LARGE_WAITING or mine >= share:
            self._limiter.shed += 1
            subject, most = "operations that wait for memory", _MOST_LARGE_WAITING
            if large.waiting >= most:
                raise self._limiter.busy(subject, large.waiting, most)
            raise self._limiter.busy(f"the caller's {subject}", mine, share)
        # An operation with memory may wait for a slot. To exclude deadlocks, none waits for memory
        # with a slot.
        async with self.suspended():
            await super().acquire_memory()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """See `streams.core.operation`."""
        if self._ended:
            yield
            return
        if not self._waits:
            self._limiter.suspend(self.caller)
        self._waits += 1
        self._give_back()
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._limiter.resume(self.caller)
        # A failed operation only has to respond.
        if not (self._waits or self._held or self._regaining or self._ended):
            await self._acquire_again()

    def close(self) -> None:
        self.end()
        self._give_back()
        # Reads are left if the operation has failed, or its client has disconnected.
        for task in list(self._reading):
            if task is not asyncio.current_task():
                task.cancel()

    def _give_back(self) -> None:
        if self._held:
            self._held = False
            self._limiter.release(self.caller)

    async def _acquire_again(self) -> None:
        self._regaining = True
        try:
            await self._limiter.acquire(self.caller, resumes=True)
        finally:
            self._regaining = False
        self._held = True
        if self._ended or self._waits:
            self._give_back()


class SubscriptionOperation:
    """Operation of a subscription, which holds no slot. See `streams.core.operation`."""

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.read_bytes = 0

    def count_read(self, size: int, values: int) -> None:
        # Its reads are bounded by events and bytes where they are made.
        pass

    async def acquire_memory(self) -> None:
        pass

    def count_scanned(self, documents: int) -> None:
        # Its batches are read one after the other, with other tasks between them.
        pass

    def count_values(self, count: int) -> None:
        pass

    @contextmanager
    def reading(self) -> Iterator[None]:
        # Its reads are made by its own task, which ends with it, or are shared with others.
        yield

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        yield


class ConcurrencyExtension(SchemaExtension):
    """Strawberry extension that holds a slot for queries and mutations."""

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        self._limiter = limiter

    async def on_execute(self) -> AsyncIterator[None]:
        if self.execution_context.operation_type is OperationType.SUBSCRIPTION:
            yield
            return
        operation = self.execution_context
        if operation_asks_schema_only(operation.graphql_document, operation.operation_name):
            yield
            return
        context = self.execution_context.context
        writes = self.execution_context.operation_type is OperationType.MUTATION
        async with self._limiter.slot(
            "" if context is None else context.owner,
            begun=finish_without_client if writes else None,
        ):
            yield


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
