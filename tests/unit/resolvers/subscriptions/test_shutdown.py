"""Shutdown of subscriptions: its receivers and its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown
from revstream.streams.core.errors import HistoryLost, Unavailable
from tests.support.streams import stop_task, turn

pytestmark = pytest.mark.timeout(10)


class Items:
    """Yields 1, 2, … up to a number; then waits without end."""

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


async def collect(
    shutdown: SubscriptionShutdown,
    items: Items,
    into: list[int],
    other: SubscriptionShutdown | None = None,
) -> None:
    async with aclosing(items.given()) as parts:
        while True:
            into += [await shutdown.next(parts, other)]


async def test_a_waiting_subscription_ends_at_once() -> None:
    """The awaited iterator is cancelled and closed."""
    shutdown, items = SubscriptionShutdown(), Items(2)
    received: list[int] = []
    task = asyncio.create_task(collect(shutdown, items, received))
    for _ in range(5):
        await turn()
    assert (received, task.done()) == ([1, 2], False)
    shutdown.begin("come again")
    with pytest.raises(Unavailable, match="come again"):
        await task
    assert items.ended


async def test_a_busy_subscription_ends_before_its_next_item() -> None:
    """No item is taken and lost."""
    shutdown, items = SubscriptionShutdown(), Items(5)
    async with aclosing(items.given()) as parts:
        assert await shutdown.next(parts) == 1
        shutdown.begin("come again")
        with pytest.raises(Unavailable):
            await shutdown.next(parts)
        assert await anext(parts) == 2


@pytest.mark.parametrize("waits", [True, False], ids=["while it waits", "while it is served"])
async def test_either_of_two_shutdowns_ends_a_subscription(waits: bool) -> None:
    """One is the process's, one the connection's; the error is that of the shutdown."""
    shutdown, other = SubscriptionShutdown(), SubscriptionShutdown()
    received: list[int] = []
    task = asyncio.create_task(collect(shutdown, Items(0 if waits else 5), received, other))
    if waits:
        await turn()
        await turn()
    other.begin("signed in anew", HistoryLost)
    with pytest.raises(HistoryLost, match="signed in anew"):
        await task
    assert received == []
    assert not shutdown._waits
    assert not shutdown.begun


async def test_a_later_subscription_ends_as_well() -> None:
    """A gateway that shuts down starts no new work."""
    shutdown, items = SubscriptionShutdown(), Items(5)
    shutdown.begin("come again")
    shutdown.begin("said already")
    received: list[int] = []
    with pytest.raises(Unavailable, match="come again"):
        await collect(shutdown, items, received)
    assert received == []


async def test_each_subscription_has_an_error_of_its_own() -> None:
    """The raiser adds the position of that subscriber."""
    shutdown = SubscriptionShutdown()
    tasks = [asyncio.create_task(collect(shutdown, Items(0), [])) for _ in range(2)]
    await turn()
    await turn()
    shutdown.begin("come again")
    one, other = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(one, Unavailable)
    assert isinstance(other, Unavailable)
    assert one is not other


async def test_a_timeout_of_the_awaited_read_is_not_the_shutdown() -> None:
    """It is raised unchanged."""

    async def late() -> AsyncGenerator[int]:
        raise TimeoutError("of a read")
        yield 1

    shutdown = SubscriptionShutdown()
    with pytest.raises(TimeoutError, match="of a read"):
        await shutdown.next(late())


async def test_a_cancelled_subscription_leaves_the_shutdown() -> None:
    """It is cancelled while it waits; the shutdown has nothing left to interrupt."""
    shutdown, items = SubscriptionShutdown(), Items(0)
    task = asyncio.create_task(collect(shutdown, items, []))
    await turn()
    await turn()
    await stop_task(task)
    assert items.ended
    assert not shutdown._waits
    shutdown.begin("come again")
