"""gql.server.fair_scheduler: nobody takes more than his share."""

from __future__ import annotations

import asyncio

from revstream.gql.server.fair_scheduler import FairScheduler
from tests.support.streams import turn


async def test_a_few_go_on_in_each_turn_in_the_order_in_which_they_came() -> None:
    """Nobody waits where there are not more; who gives up takes nobody's place."""
    turns, went = FairScheduler(3), []

    async def go(number: int) -> None:
        await turns.next()
        went.append(number)

    tasks = [asyncio.create_task(go(number)) for number in range(20)]
    await turn()
    assert went == [0, 1, 2]
    assert len(turns) == 17
    tasks[4].cancel()
    seen = []
    while len(went) < 19:
        before = len(went)
        await turn()
        seen.append(len(went) - before)
        assert len(seen) < 100
    assert went == [number for number in range(20) if number != 4]
    assert max(seen) <= 3
    assert len(turns) == 0
    await turn()
    await turn()
    await asyncio.wait_for(turns.next(), 1)


async def test_what_is_asked_for_now_and_then_does_not_wait() -> None:
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


async def test_who_has_begun_goes_before_who_is_about_to() -> None:
    """But for one in each turn, or there could always be another one before him."""
    turns, went = FairScheduler(2), []

    async def go(name: str, *, beginning: bool) -> None:
        await turns.next(beginning=beginning)
        went.append(name)

    tasks = [asyncio.create_task(go(f"new {n}", beginning=True)) for n in range(4)]
    tasks += [asyncio.create_task(go(f"old {n}", beginning=False)) for n in range(3)]
    await asyncio.gather(*tasks)
    assert went == ["new 0", "new 1", "new 2", "old 0", "new 3", "old 1", "old 2"]


async def test_of_what_comes_at_once_a_few_begin_in_each_turn() -> None:
    """The first at once, the others in the order in which they came, whatever one of them does."""
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
