"""gql.admission: so many at once, a queue behind them, and for each so much time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gql.admission import Admission
from resolvers.errors import LimitExceeded
from streams.errors import TimeLimit, Unavailable
from tests.support.eventually import eventually


async def test_those_that_find_no_place_wait_in_their_order() -> None:
    """And nobody overtakes."""
    admission = Admission(executing=1, waiting=3)
    done: list[int] = []

    async def execute(number: int) -> None:
        async with admission.place():
            assert admission.executing == 1
            done.append(number)

    async with AsyncExitStack() as held:
        await held.enter_async_context(admission.place())
        tasks = [asyncio.create_task(execute(n)) for n in range(3)]
        await eventually(lambda: admission.waiting == 3)
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2]
    assert (admission.executing, admission.waiting, admission.shed) == (0, 0, 0)


async def test_one_beyond_the_queue_is_turned_away_at_once() -> None:
    """With the time to come again, and nothing is left of it."""
    admission = Admission(executing=1, waiting=1)
    async with AsyncExitStack() as held:
        await held.enter_async_context(admission.place())

        async def wait() -> None:
            async with admission.place():
                pass

        waiting = asyncio.create_task(wait())
        await eventually(lambda: admission.waiting == 1)
        with pytest.raises(Unavailable, match="1 operations execute and 1 wait") as refused:
            await wait()
        assert refused.value.facts == {"retryAfterSeconds": 1}
        assert admission.shed == 1
    await waiting
    await wait()


async def test_one_that_gives_up_waiting_leaves_its_place_to_others() -> None:
    """Cancelled, as a client that has gone."""
    admission = Admission(executing=1, waiting=1)

    async def wait() -> None:
        async with admission.place():
            pass

    async with AsyncExitStack() as held:
        await held.enter_async_context(admission.place())
        gone = asyncio.create_task(wait())
        await eventually(lambda: admission.waiting == 1)
        gone.cancel()
        await asyncio.wait([gone])
        assert admission.waiting == 0
    await wait()
    assert admission.executing == 0


async def test_one_that_takes_too_long_is_ended_and_told() -> None:
    """What it waits for is cancelled, and its place is free again."""
    admission = Admission(executing=1, waiting=1, limit_s=0.01)
    with pytest.raises(TimeLimit, match=r"longer than 0\.01 s"):
        async with admission.place():
            await asyncio.Event().wait()
    with pytest.raises(TimeLimit):
        # One that waits for a place counts its waiting.
        async with admission.place(), admission.place():
            pass
    assert (admission.executing, admission.waiting) == (0, 0)


async def test_a_timeout_of_somebody_else_is_not_taken_for_it() -> None:
    """It passes as it is."""
    admission = Admission()
    with pytest.raises(TimeoutError, match="another"):
        async with admission.place():
            raise TimeoutError("another")


async def test_without_limits_nobody_waits() -> None:
    """0 is none."""
    admission = Admission(executing=0, waiting=0, per_principal=0)
    async with AsyncExitStack() as held:
        for _ in range(2000):
            await held.enter_async_context(admission.place())
            held.enter_context(admission.counted("ann"))
        assert admission.executing == 2000


def test_one_who_is_known_has_so_many_operations_at_once() -> None:
    """Each by itself; one that was refused takes no place."""
    admission = Admission(per_principal=2)
    with admission.counted("ann"), admission.counted("ann"), admission.counted("bob"):
        for _ in range(2):
            with (
                pytest.raises(LimitExceeded, match="3 operations of ann") as refused,
                admission.counted("ann"),
            ):
                pass
            assert refused.value.facts["bound"] == 2
        with admission.counted("bob"):
            pass
    with admission.counted("ann"), admission.counted("ann"):
        pass
