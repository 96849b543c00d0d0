"""resolvers.current.batcher: reads asked for together are one, and nobody is told anything
older."""

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
    """A read begins in the turn after, in a task of its own."""
    for _ in range(3):
        await turn()


class Source:
    """Doubles numbers, once it may; `reads` are the keys of each read."""

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


async def test_what_is_asked_in_one_turn_is_one_read() -> None:
    """Each has its own part of it, in its order."""
    source = Source()
    pool = BatchLoader(source.read)
    first, second = pool.ask([3, 1]), pool.ask([2])
    assert (await first, await second) == ([6, 2], [4])
    assert source.reads == [[3, 1, 2]]
    assert await pool.ask([5]) == [10]
    await turns()
    assert pool.idle


async def test_a_read_serves_nobody_who_asked_after_it_began() -> None:
    """It may not know of what they have written in between."""
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


async def test_no_more_reads_are_under_way_than_may_be() -> None:
    """Whoever comes meanwhile is served by the next one, together."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=0.0)
    asked = []
    for key in range(6):
        asked.append(pool.ask([key]))
        await eventually(lambda: len(source.reads) == min(len(asked), 2))
    assert source.reads == [[0], [1]]
    assert not pool.idle
    source.open.set()
    assert await asyncio.gather(*asked) == [[2 * key] for key in range(6)]
    assert source.reads == [[0], [1], [2, 3, 4, 5]]


async def test_a_read_that_takes_its_time_is_not_waited_for() -> None:
    """One that does not is: those that ask meanwhile are served together, once it has ended."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=3600)
    asked = [pool.ask([0])]
    await turns()
    asked += [pool.ask([1]), pool.ask([2])]
    await turns()
    assert source.reads == [[0]]
    source.open.set()
    assert await asyncio.gather(*asked) == [[0], [2], [4]]
    assert source.reads == [[0], [1, 2]]
    source.open.clear()
    slow = BatchLoader(source.read, under_way=2, patience_s=0.001)
    asked = [slow.ask([3])]
    await turns()
    asked.append(slow.ask([4]))
    await eventually(lambda: source.reads[2:] == [[3], [4]])
    source.open.set()
    assert await asyncio.gather(*asked) == [[6], [8]]


async def test_enough_who_wait_are_not_kept_waiting() -> None:
    """They have a read of their own, but no more of them are under way than may be."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=2, patience_s=3600, enough=3)
    asked = [pool.ask([0])]
    await turns()
    asked += [pool.ask([1]), pool.ask([2])]
    await turns()
    assert source.reads == [[0]]
    asked.append(pool.ask([3]))
    await turns()
    assert source.reads == [[0], [1, 2, 3]]
    asked += [pool.ask([each]) for each in (4, 5, 6)]
    await turns()
    assert source.reads == [[0], [1, 2, 3]]
    source.open.set()
    assert await asyncio.gather(*asked) == [[2 * each] for each in range(7)]
    assert source.reads == [[0], [1, 2, 3], [4, 5, 6]]
    await turns()
    assert pool.idle


async def test_a_failure_is_that_of_all_whom_the_read_serves_and_of_nobody_else() -> None:
    source = Source()
    source.failure = ValueError("no")
    pool = BatchLoader(source.read)
    failed = await asyncio.gather(pool.ask([1]), pool.ask([2]), return_exceptions=True)
    assert [str(each) for each in failed] == ["no", "no"]
    source.failure = None
    assert await pool.ask([1]) == [2]


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    """Nor is anything read for him, where it is not read yet."""
    source = Source()
    source.open.clear()
    pool = BatchLoader(source.read, under_way=1)
    under_way = pool.ask([1])
    await turns()
    gone, stays = pool.ask([2]), pool.ask([3])
    gone.cancel()
    under_way.cancel()
    source.open.set()
    assert await stays == [6]
    assert source.reads == [[1], [3]]
    with pytest.raises(asyncio.CancelledError):
        await under_way


async def test_pools_are_one_for_each_kind_and_count_what_they_do() -> None:
    """Those that nobody uses are forgotten once there are many."""
    source = Source()
    pools = BatchLoaders(most=2)
    await asyncio.gather(*(pools.ask(kind, [1, 2], source.read) for kind in "aab"))
    assert (pools.asked, pools.reads) == (6, 2)
    for kind in range(10):
        await pools.ask(kind, [1], source.read)
    assert len(pools._pools) <= 2


async def test_a_read_that_ends_with_its_operation_leaves_nobody_waiting() -> None:
    """Else a task would wait for ever, and end as garbage that asyncio complains of."""
    source = Source()
    source.open.clear()

    async def cancelled(keys: Sequence[int]) -> list[int]:
        running = asyncio.current_task()
        assert running is not None
        asyncio.get_running_loop().call_soon(running.cancel)
        return await source.read(keys)

    pool = BatchLoader(cancelled)
    asked = pool.ask([1])
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asked, 5)
    await eventually(lambda: pool.idle)


@contextmanager
def operation() -> Iterator[None]:
    """Run as an operation of a client, of which a pool knows nothing else."""
    running: Any = object()
    token = OPERATION.set(running)
    try:
        yield
    finally:
        OPERATION.reset(token)


async def test_an_operation_that_asks_for_much_has_a_read_of_its_own() -> None:
    """However many times it has asked for a little."""
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
async def test_operations_that_wait_keep_nobody_else_waiting(split: bool) -> None:
    """For memory or a slot, which may take as long as other operations do."""
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


async def test_what_no_operation_has_asked_for_is_read_once_however_large() -> None:
    """Apart from what operations have asked for, it is all that it can be divided into."""
    reads: list[Sequence[int]] = []

    async def read(keys: Sequence[int]) -> list[int]:
        reads.append(keys)
        # As `streams.mongo.client_reads` does of what counts for no operation.
        if OPERATION.get() is None and MOST_TOGETHER.get():
            raise LargeRead
        return [each * 2 for each in keys]

    pool = BatchLoader(read)
    async with asyncio.timeout(5):
        assert await pool.ask([1]) == [2]
        asked = [pool.ask([2]), pool.ask([3])]
        with operation():
            asked.append(pool.ask([4]))
        assert await asyncio.gather(*asked) == [[4], [6], [8]]
    assert reads == [[1], [2, 3, 4], [2, 3], [4]]


async def test_what_cannot_be_divided_fails_where_it_is_too_large() -> None:
    """Instead of being read again and again."""

    async def read(keys: Sequence[int]) -> list[int]:
        raise LargeRead

    pool = BatchLoader(read)
    with operation():
        asked = pool.ask([1])
    async with asyncio.timeout(5):
        with pytest.raises(LargeRead):
            await asked
    await turns()
    assert pool.idle


async def test_what_is_too_large_to_be_read_together_is_read_apart() -> None:
    """Each operation then accounts for its own; together it would count for none."""

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
