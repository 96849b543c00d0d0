"""Operation budget: bounded memory for all reads, and no small read waits for a large one."""

from __future__ import annotations

import asyncio

import pytest

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.errors import Unavailable
from revstream.streams.core.operation import OPERATION, count_computed, execution_suspended
from revstream.streams.core.read_limiter import ReadClass, ReadLimiter
from revstream.streams.core.read_memory import LargeRead
from tests.support.eventually import eventually

MB = 1024 * 1024
LARGE = 10 * MB
LIMITS = OperationLimits(read_bytes=64 * MB, process_read_bytes=80 * MB)


class Reader:
    """An operation that reads a number of bytes and then waits until it may end."""

    def __init__(self, limiter: ConcurrencyLimiter, reads: ReadLimiter, caller: str, size: int):
        self.attempts = 0
        self.has_read = False
        self.may_end = asyncio.Event()
        self._limiter, self._reads, self._caller, self._size = limiter, reads, caller, size
        self.task = asyncio.create_task(self._operation())

    async def _operation(self) -> None:
        async with self._limiter.slot(self._caller):
            await self._reads.run(ReadClass.LOOKUP, self._attempt, 1000)
            self.has_read = True
            await self.may_end.wait()

    async def _attempt(self, limit_ms: int, read_class: ReadClass) -> None:
        self.attempts += 1
        operation = OPERATION.get()
        assert operation is not None
        operation.count_read(self._size, 0)

    async def end(self) -> None:
        self.may_end.set()
        await self.task


async def test_the_number_of_large_operations_is_limited_and_small_ones_do_not_wait() -> None:
    """The limit is two per caller and four in total; the others read again once one has ended."""
    limiter, reads = ConcurrencyLimiter(limits=LIMITS), ReadLimiter()
    of_ann = [Reader(limiter, reads, "ann", LARGE) for _ in range(3)]
    await eventually(lambda: [each.attempts for each in of_ann] == [1, 1, 1])
    others = [Reader(limiter, reads, caller, LARGE) for caller in ("bob", "eve", "")]
    await eventually(lambda: limiter.large_reads.waiting == 2)
    small = [Reader(limiter, reads, "ann", MB) for _ in range(20)]
    await eventually(lambda: all(each.has_read for each in small))
    assert [each.has_read for each in (*of_ann, *others)] == [True, True, False, True, True, False]

    await of_ann[0].end()
    # Waiting operations take turns by caller.
    await eventually(lambda: of_ann[2].has_read)
    await others[0].end()
    await eventually(lambda: others[2].has_read)
    assert (of_ann[2].attempts, others[2].attempts) == (2, 2)
    for each in (*of_ann, *others, *small):
        await each.end()
    assert (limiter.large_reads.held, limiter.large_reads.waiting) == (0, 0)


async def test_an_operation_that_waits_for_memory_holds_no_slot() -> None:
    """An operation with memory that needs its slot back gets it, and small ones are executed."""
    limiter, reads = ConcurrencyLimiter(executing=4, limits=LIMITS), ReadLimiter()
    reached = asyncio.Event()

    async def holder() -> None:
        async with limiter.slot("ann"):
            running = OPERATION.get()
            assert running is not None
            running.count_read(LARGE, 0)
            async with execution_suspended():
                await reached.wait()

    holders = [asyncio.create_task(holder()) for _ in range(2)]
    await eventually(lambda: limiter.large_reads.held == 2)
    large = [Reader(limiter, reads, "ann", LARGE) for _ in range(6)]
    await eventually(lambda: limiter.large_reads.waiting == 6)
    small = Reader(limiter, reads, "ann", MB)
    await eventually(lambda: small.has_read)
    reached.set()
    await asyncio.wait_for(asyncio.gather(*holders), 5)
    for each in (small, *large):
        each.may_end.set()
    await asyncio.gather(*(each.task for each in (small, *large)))
    assert (limiter.executing, limiter.large_reads.held) == (0, 0)


async def test_the_number_of_operations_waiting_for_memory_is_limited() -> None:
    """Each holds data meanwhile: one caller may have half of them, and the next is refused."""
    limiter, reads = ConcurrencyLimiter(executing=0, limits=LIMITS), ReadLimiter()
    holders = [Reader(limiter, reads, caller, LARGE) for caller in ("ann", "ann", "bob", "bob")]
    await eventually(lambda: limiter.large_reads.held == 4)
    waiting = [Reader(limiter, reads, "ann", LARGE) for _ in range(50)]
    await eventually(lambda: limiter.large_reads.waiting == 50)
    with pytest.raises(Unavailable, match="wait for memory"):
        await Reader(limiter, reads, "ann", LARGE).task
    waiting += [Reader(limiter, reads, "bob", LARGE) for _ in range(50)]
    await eventually(lambda: limiter.large_reads.waiting == 100)
    with pytest.raises(Unavailable):
        await Reader(limiter, reads, "eve", LARGE).task
    for each in (*holders, *waiting):
        each.may_end.set()
    await asyncio.gather(*(each.task for each in (*holders, *waiting)))
    assert (limiter.large_reads.held, limiter.large_reads.waiting) == (0, 0)


async def test_a_cancelled_wait_for_memory_is_released() -> None:
    """An operation is cancelled while it waits, or just when it gets its turn."""
    limiter, reads = ConcurrencyLimiter(limits=LIMITS), ReadLimiter()
    holders = [Reader(limiter, reads, "ann", LARGE) for _ in range(2)]
    await eventually(lambda: all(each.has_read for each in holders))
    waiting = [Reader(limiter, reads, "ann", LARGE) for _ in range(2)]
    await eventually(lambda: limiter.large_reads.waiting == 2)
    waiting[0].task.cancel()
    holders[0].may_end.set()
    await eventually(lambda: waiting[1].has_read)
    waiting[1].task.cancel()
    holders[1].may_end.set()
    await asyncio.wait([each.task for each in (*holders, *waiting)])
    await eventually(lambda: limiter.large_reads.held == limiter.large_reads.waiting == 0)


async def test_an_operation_has_a_maximum_share_of_the_memory() -> None:
    """Values count as well as bytes: decoded, they take more."""
    limiter = ConcurrencyLimiter(limits=LIMITS)
    async with limiter.slot("ann"):
        operation = OPERATION.get()
        assert operation is not None
        with pytest.raises(LimitExceeded) as refused:
            operation.count_read(MB, 200_000)
        assert refused.value.facts == {
            "limit": "max_process_read_bytes",
            "asked": MB + 20_000_000,
            "bound": 20 * MB,
        }
    async with limiter.slot("ann"):
        operation = OPERATION.get()
        assert operation is not None
        operation.count_read(MB, 100_000)
        assert operation.read_bytes == MB


async def test_several_reads_of_an_operation_wait_together() -> None:
    """They have one turn, and repeated reads are counted once."""
    limiter, reads = ConcurrencyLimiter(limits=LIMITS), ReadLimiter()
    holders = [Reader(limiter, reads, "ann", LARGE) for _ in range(2)]
    await eventually(lambda: all(each.has_read for each in holders))

    async def attempt(limit_ms: int, read_class: ReadClass) -> int:
        operation = OPERATION.get()
        assert operation is not None
        operation.count_read(4 * MB, 0)
        return operation.read_bytes

    async def operation() -> list[int]:
        async with limiter.slot("ann"):
            return await asyncio.gather(
                *(reads.run(ReadClass.LOOKUP, attempt, 1000) for _ in range(3)), operation_reads()
            )

    async def operation_reads() -> int:
        await count_computed(4 * MB, 0)
        running = OPERATION.get()
        assert running is not None
        return running.read_bytes

    running = asyncio.create_task(operation())
    await eventually(lambda: limiter.large_reads.waiting == 1)
    await holders[0].end()
    assert sorted(await running) == [4 * MB, 8 * MB, 12 * MB, 16 * MB]
    await holders[1].end()
    assert limiter.large_reads.held == 0


async def test_without_a_limit_no_read_waits() -> None:
    """0 disables the limit."""
    limiter = ConcurrencyLimiter()
    async with limiter.slot(""):
        operation = OPERATION.get()
        assert operation is not None
        operation.count_read(1000 * MB, 10**9)


async def test_a_read_that_is_repeated_counts_once() -> None:
    """Counted twice, the operation might be refused because of others."""
    limiter, reads = ConcurrencyLimiter(limits=LIMITS), ReadLimiter()
    holders = [Reader(limiter, reads, "ann", LARGE) for _ in range(2)]
    await eventually(lambda: all(each.has_read for each in holders))
    async with limiter.slot("ann"):
        operation = OPERATION.get()
        assert operation is not None
        with pytest.raises(LargeRead):
            operation.count_read(LARGE, 0)
        assert operation.read_bytes == 0
    for each in holders:
        await each.end()
