"""Batch loader: lookups are combined into one read, and no lookup gets an older state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from revstream.resolvers.current.batcher import BatchLoader, BatchLoaders
from revstream.streams.core.operation import MOST_TOGETHER, OPERATION
from revstream.streams.core.read_memory import LargeRead
from tests.support.eventually import eventually
from tests.support.streams import turn


async def turns() -> None:
    """Let a read begin: it runs in a task of its own, one loop iteration later."""
    for _ in range(3):
        await turn()


class Source:
    """Doubles numbers once it is open; `reads` has the keys of each read."""

    def __init__(self) -> None:
        self.reads: list[Sequence[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def read(self, keys: Sequence[int]) -> list[int]:
        self.reads.append(keys)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return [each * 2 for each in keys]


async def test_lookups_of_one_loop_iteration_are_one_read() -> None:
    """Each lookup gets its own part, in its own order."""
    source = Source()
    pool = BatchLoader(source.read)
    first, second = pool.ask([3, 1]), pool.ask([2])
    assert (await first, await second) == ([6, 2], [4])
    assert source.reads == [[3, 1, 2]]
    assert await pool.ask([5]) == [10]
    await turns()
    assert pool.idle


async def test_a_lookup_without_keys_is_answered_without_a_read() -> None:
    """Reads may take the first or the largest of their keys."""
    source = Source()
    pool = BatchLoader(source.read)
    empty = pool.ask([])
    assert empty.done()
    assert await empty == []
    await turns()
    assert pool.idle
    assert source.reads == []


async def test_a_read_serves_no_lookup_that_was_added_after_it_began() -> None:
    """The read may not see what that caller has written in between."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read)
    early = pool.ask([1])
    await turns()
    late = pool.ask([1])
    await turns()
    assert source.reads == [[1], [1]]
    source.open.set()
    assert await asyncio.gather(early, late) == [[2], [2]]


async def test_the_number_of_concurrent_reads_is_limited() -> None:
    """Lookups that arrive meanwhile are combined into the next read."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=0.0)
    lookups = []
    for key in range(6):
        lookups.append(pool.ask([key]))
        await eventually(lambda: len(source.reads) == min(len(lookups), 2))
    assert source.reads == [[0], [1]]
    assert not pool.idle
    source.open.set()
    assert await asyncio.gather(*lookups) == [[2 * key] for key in range(6)]
    assert source.reads == [[0], [1], [2, 3, 4, 5]]


async def test_lookups_do_not_wait_for_a_slow_read() -> None:
    """During a fast read, lookups are collected and served together once it has ended."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=3600)
    lookups = [pool.ask([0])]
    await turns()
    lookups += [pool.ask([1]), pool.ask([2])]
    await turns()
    assert source.reads == [[0]]
    source.open.set()
    assert await asyncio.gather(*lookups) == [[0], [2], [4]]
    assert source.reads == [[0], [1, 2]]
    source.open.clear()
    slow = BatchLoader(source.read, under_way=2, patience_s=0.001)
    lookups = [slow.ask([3])]
    await turns()
    lookups.append(slow.ask([4]))
    await eventually(lambda: source.reads[2:] == [[3], [4]])
    source.open.set()
    assert await asyncio.gather(*lookups) == [[6], [8]]


async def test_a_full_batch_is_read_at_once() -> None:
    """A full batch has a read of its own, within the limit of concurrent reads."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=3600, enough=3)
    lookups = [pool.ask([0])]
    await turns()
    lookups += [pool.ask([1]), pool.ask([2])]
    await turns()
    assert source.reads == [[0]]
    lookups.append(pool.ask([3]))
    await turns()
    assert source.reads == [[0], [1, 2, 3]]
    lookups += [pool.ask([each]) for each in (4, 5, 6)]
    await turns()
    assert source.reads == [[0], [1, 2, 3]]
    source.open.set()
    assert await asyncio.gather(*lookups) == [[2 * each] for each in range(7)]
    assert source.reads == [[0], [1, 2, 3], [4, 5, 6]]
    await turns()
    assert pool.idle


async def test_a_failure_reaches_all_lookups_of_the_read_and_no_others() -> None:
    """The next read is not affected."""
    source = Source()
    source.failure = ValueError("no")
    pool = BatchLoader(source.read)
    failed = await asyncio.gather(pool.ask([1]), pool.ask([2]), return_exceptions=True)
    assert [str(each) for each in failed] == ["no", "no"]
    source.failure = None
    assert await pool.ask([1]) == [2]


async def test_a_cancelled_lookup_does_not_affect_others() -> None:
    """Keys of a cancelled lookup are not read, if the read has not begun."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=1)
    under_way = pool.ask([1])
    await turns()
    dropped, kept = pool.ask([2]), pool.ask([3])
    dropped.cancel()
    under_way.cancel()
    source.open.set()
    assert await kept == [6]
    assert source.reads == [[1], [3]]
    with pytest.raises(asyncio.CancelledError):
        await under_way


async def test_loaders_are_one_per_kind_and_count_lookups() -> None:
    """Unused loaders are evicted beyond the maximum."""
    source = Source()
    pools = BatchLoaders(most=2)
    await asyncio.gather(*(pools.ask(kind, [1, 2], source.read) for kind in "aab"))
    assert (pools.asked, pools.reads) == (6, 2)
    for kind in range(10):
        await pools.ask(kind, [1], source.read)
    assert len(pools._pools) <= 2


async def test_a_read_cancelled_with_its_operation_ends_its_lookups() -> None:
    """Otherwise a task would wait forever and be destroyed while pending."""
    source = Source()
    source.open.clear()

    async def cancelled(keys: Sequence[int]) -> list[int]:
        running = asyncio.current_task()
        assert running is not None
        asyncio.get_running_loop().call_soon(running.cancel)
        return await source.read(keys)

    pool = BatchLoader(cancelled)
    lookups = pool.ask([1])
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(lookups, 5)
    await eventually(lambda: pool.idle)


@contextmanager
def operation() -> Iterator[None]:
    """Run as an operation of a client, which is all that a loader knows of it."""
    running: Any = object()
    token = OPERATION.set(running)
    try:
        yield
    finally:
        OPERATION.reset(token)


async def test_an_operation_with_many_keys_has_a_read_of_its_own() -> None:
    """Many small lookups of an operation are still combined."""
    source = Source()
    pool = BatchLoader(source.read)
    with operation():
        few = [pool.ask([key]) for key in range(3)]
    with operation():
        many = [pool.ask([key]) for key in range(100, 150)]
    with operation():
        others = [pool.ask([200])]
    await asyncio.gather(*few, *many, *others)
    assert sorted(map(list, source.reads)) == [[0, 1, 2, 200], list(range(100, 150))]


@pytest.mark.parametrize("split", [False, True], ids=["begun apart", "divided"])
async def test_operations_that_wait_do_not_block_others(split: bool) -> None:
    """Waiting for memory or a slot may take as long as other operations run."""
    source = Source()
    free = asyncio.Event()

    async def read(keys: Sequence[int]) -> list[int]:
        if max(keys) >= 100:
            if MOST_TOGETHER.get():
                raise LargeRead
            await free.wait()
        return await source.read(keys)

    pool = BatchLoader(read, under_way=3)
    waiting = []
    for key in range(100, 104):
        with operation():
            waiting.append(pool.ask([key]))
        if not split:
            await eventually(lambda: not pool._asked)
    await eventually(lambda: not pool._asked)
    async with asyncio.timeout(5):
        for key in (1, 2):
            with operation():
                assert await pool.ask([key]) == [2 * key]
    free.set()
    assert await asyncio.gather(*waiting) == [[200], [202], [204], [206]]
    await turns()
    assert pool.idle


async def test_keys_without_an_operation_are_read_once_however_large() -> None:
    """They are one part of the batch; a read without an operation cannot be divided further."""
    reads: list[Sequence[int]] = []

    async def read(keys: Sequence[int]) -> list[int]:
        reads.append(keys)
        # `streams.mongo.client_reads` does the same for reads outside operations.
        if OPERATION.get() is None and MOST_TOGETHER.get():
            raise LargeRead
        return [each * 2 for each in keys]

    pool = BatchLoader(read)
    async with asyncio.timeout(5):
        assert await pool.ask([1]) == [2]
        lookups = [pool.ask([2]), pool.ask([3])]
        with operation():
            lookups.append(pool.ask([4]))
        assert await asyncio.gather(*lookups) == [[4], [6], [8]]
    assert reads == [[1], [2, 3, 4], [2, 3], [4]]


async def test_a_large_read_that_cannot_be_divided_fails() -> None:
    """It is not repeated."""

    async def read(keys: Sequence[int]) -> list[int]:
        raise LargeRead

    pool = BatchLoader(read)
    with operation():
        lookups = pool.ask([1])
    async with asyncio.timeout(5):
        with pytest.raises(LargeRead):
            await lookups
    await turns()
    assert pool.idle


async def test_a_read_too_large_to_be_combined_is_divided_by_operation() -> None:
    """Each operation accounts for its own read; a combined read would be counted for none."""

    async def read(keys: Sequence[int]) -> list[Any]:
        if MOST_TOGETHER.get():
            raise LargeRead
        return [(key, OPERATION.get()) for key in keys]

    pool = BatchLoader(read)
    with operation():
        first, again = pool.ask([1]), pool.ask([2])
    with operation():
        second = pool.ask([3])
    (one,), (two,), (three,) = await asyncio.gather(first, again, second)
    assert [one[0], two[0], three[0]] == [1, 2, 3]
    assert one[1] is two[1] is not None
    assert three[1] not in (None, one[1])
    await turns()
    assert pool.idle
