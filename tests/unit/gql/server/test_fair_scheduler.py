"""Fair scheduler: equal shares for all connections."""

from __future__ import annotations

import asyncio

from revstream.gql.server.fair_scheduler import FairScheduler
from tests.support.streams import turn


async def test_a_few_waiters_continue_per_loop_iteration_in_order() -> None:
    """Without a queue there is no wait; a cancelled waiter takes no turn."""
    turns, order = FairScheduler(3), []

    async def go(number: int) -> None:
        await turns.next()
        order.append(number)

    tasks = [asyncio.create_task(go(number)) for number in range(20)]
    await turn()
    assert order == [0, 1, 2]
    assert len(turns) == 17
    tasks[4].cancel()
    seen = []
    while len(order) < 19:
        before = len(order)
        await turn()
        seen.append(len(order) - before)
        assert len(seen) < 100
    assert order == [number for number in range(20) if number != 4]
    assert max(seen) <= 3
    assert len(turns) == 0
    await turn()
    await turn()
    await asyncio.wait_for(turns.next(), 1)


async def test_occasional_turns_do_not_wait() -> None:
    """The next turn is free at once."""
    turns = FairScheduler(1)
    for _ in range(5):
        waiting = turns.next()
        try:
            waiting.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waited")
        for _ in range(3):
            await turn()


async def test_started_connections_go_before_new_ones() -> None:
    """One new connection continues per iteration, so that it is not starved."""
    turns, order = FairScheduler(2), []

    async def go(name: str, *, beginning: bool) -> None:
        await turns.next(beginning=beginning)
        order.append(name)

    tasks = [asyncio.create_task(go(f"new {n}", beginning=True)) for n in range(4)]
    tasks += [asyncio.create_task(go(f"old {n}", beginning=False)) for n in range(3)]
    await asyncio.gather(*tasks)
    assert order == ["new 0", "new 1", "new 2", "old 0", "new 3", "old 1", "old 2"]


async def test_a_few_of_many_starts_run_per_loop_iteration() -> None:
    """The first ones run at once, the others in order, whatever one of them raises."""
    starts, begun = FairScheduler(3), []

    def begin(number: int) -> None:
        begun.append(number)
        if number == 4:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            raise RuntimeError

    for number in range(8):
        starts.start(begin, number)
    assert (begun, len(starts)) == ([0, 1, 2], 5)
    await turn()
    assert begun == [0, 1, 2, 3, 4]
    starts.start(begin, 8)
    await turn()
    assert begun == [0, 1, 2, 3, 4, 5, 6, 7]
    await turn()
    assert (begun, len(starts)) == ([*range(9)], 0)
    for number in (9, 10, 11):
        await turn()
        await turn()
        starts.start(begin, number)
        assert begun[-1] == number


async def test_an_entry_that_starts_others_takes_no_more_places() -> None:
    """Each of a chain of entries starts the next one at once."""
    starts, begun = FairScheduler(3), list[int]()

    def begin(number: int) -> None:
        begun.append(number)
        if number < 40:
            starts.start(begin, number + 1)

    begin(0)
    counts = [len(begun)]
    while len(starts):
        before = len(begun)
        await turn()
        counts.append(len(begun) - before)
    assert begun == [*range(41)]
    # The first one began by itself.
    assert max(counts) <= 4
    assert max(counts[1:]) == 3
