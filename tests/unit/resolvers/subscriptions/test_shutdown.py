"""The farewell: who is told, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown
from revstream.streams.core.errors import HistoryLost, Unavailable
from tests.support.streams import finished, turn

pytestmark = pytest.mark.timeout(10)


class Items:
    """1, 2, … up to a number; then a wait without an end."""

    def __init__(self, count: int) -> None:
        self.ended = False
        self._count = count

    async def given(self) -> AsyncGenerator[int]:
        try:
            for number in range(1, self._count + 1):
                yield number
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def taken(
    farewell: SubscriptionShutdown,
    items: Items,
    into: list[int],
    other: SubscriptionShutdown | None = None,
) -> None:
    async with aclosing(items.given()) as parts:
        while True:
            into += [await farewell.next(parts, other)]


async def test_who_waits_is_told_at_once() -> None:
    """Whatever it waits for is given up, and closed."""
    farewell, items = SubscriptionShutdown(), Items(2)
    received: list[int] = []
    task = asyncio.create_task(taken(farewell, items, received))
    for _ in range(5):
        await turn()
    assert (received, task.done()) == ([1, 2], False)
    farewell.say("come again")
    with pytest.raises(Unavailable, match="come again"):
        await task
    assert items.ended


async def test_who_is_being_served_is_told_before_the_next() -> None:
    """Nothing is taken that would be lost."""
    farewell, items = SubscriptionShutdown(), Items(5)
    async with aclosing(items.given()) as parts:
        assert await farewell.next(parts) == 1
        farewell.say("come again")
        with pytest.raises(Unavailable):
            await farewell.next(parts)
        assert await anext(parts) == 2


@pytest.mark.parametrize("waits", [True, False], ids=["while it waits", "while it is served"])
async def test_either_of_two_ends_it(waits: bool) -> None:
    """The end of all of a process, and of one connection; with the error that it was said with."""
    farewell, other = SubscriptionShutdown(), SubscriptionShutdown()
    received: list[int] = []
    task = asyncio.create_task(taken(farewell, Items(0 if waits else 5), received, other))
    if waits:
        await turn()
        await turn()
    other.say("signed in anew", HistoryLost)
    with pytest.raises(HistoryLost, match="signed in anew"):
        await task
    assert received == []
    assert not farewell._waits
    assert not farewell.said


async def test_who_comes_later_is_told_too() -> None:
    """A gateway that ends begins nothing any more."""
    farewell, items = SubscriptionShutdown(), Items(5)
    farewell.say("come again")
    farewell.say("said already")
    received: list[int] = []
    with pytest.raises(Unavailable, match="come again"):
        await taken(farewell, items, received)
    assert received == []


async def test_each_is_told_with_an_error_of_its_own() -> None:
    """Who raises it adds where that subscriber stands."""
    farewell = SubscriptionShutdown()
    tasks = [asyncio.create_task(taken(farewell, Items(0), [])) for _ in range(2)]
    await turn()
    await turn()
    farewell.say("come again")
    one, other = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(one, Unavailable)
    assert isinstance(other, Unavailable)
    assert one is not other


async def test_a_time_limit_of_what_is_waited_for_is_its_own() -> None:
    """It is not taken for the farewell."""

    async def late() -> AsyncGenerator[int]:
        raise TimeoutError("of a read")
        yield 1

    farewell = SubscriptionShutdown()
    with pytest.raises(TimeoutError, match="of a read"):
        await farewell.next(late())


async def test_who_leaves_is_not_told() -> None:
    """Cancelled while it waits; the farewell has nobody left to interrupt."""
    farewell, items = SubscriptionShutdown(), Items(0)
    task = asyncio.create_task(taken(farewell, items, []))
    await turn()
    await turn()
    await finished(task)
    assert items.ended
    assert not farewell._waits
    farewell.say("come again")
