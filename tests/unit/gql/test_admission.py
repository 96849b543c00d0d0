"""gql.admission: so many at once, a queue behind them, and for each so much time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from gql.admission import Admission
from resolvers.errors import LimitExceeded
from streams.errors import TimeLimit, Unavailable
from tests.support.eventually import eventually


@asynccontextmanager
async def held(admission: Admission) -> AsyncIterator[None]:
    """A place, as those who execute hold it."""
    with admission.place() as place:
        if not place.free:
            await place.wait()
        yield


async def test_those_that_find_no_place_wait_in_their_order() -> None:
    """And nobody overtakes."""
    admission = Admission(executing=1, waiting=3)
    done: list[int] = []

    async def execute(number: int) -> None:
        async with held(admission):
            assert admission.executing == 1
            done.append(number)

    with admission.place():
        tasks = [asyncio.create_task(execute(n)) for n in range(3)]
        await eventually(lambda: admission.waiting == 3)
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2]
    assert (admission.executing, admission.waiting, admission.shed) == (0, 0, 0)


async def test_one_beyond_the_queue_is_turned_away_at_once() -> None:
    """With the time to come again, and nothing is left of it."""
    admission = Admission(executing=1, waiting=1)
    with admission.place():

        async def wait() -> None:
            async with held(admission):
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
        async with held(admission):
            pass

    with admission.place():
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
        async with held(admission):
            await asyncio.Event().wait()
    with pytest.raises(TimeLimit):
        # One that waits for a place counts its waiting.
        async with held(admission), held(admission):
            pass
    assert (admission.executing, admission.waiting) == (0, 0)


async def test_a_timeout_of_somebody_else_is_not_taken_for_it() -> None:
    """It passes as it is."""
    admission = Admission()
    with pytest.raises(TimeoutError, match="another"):
        async with held(admission):
            raise TimeoutError("another")


async def test_one_that_gives_up_as_its_turn_comes_hands_its_place_on() -> None:
    """It was given to it, and it was cancelled before it ran."""
    admission = Admission(executing=1, waiting=2)

    async def wait() -> None:
        async with held(admission):
            pass

    with admission.place():
        gone, following = asyncio.create_task(wait()), asyncio.create_task(wait())
        await eventually(lambda: admission.waiting == 2)
    gone.cancel()
    await asyncio.wait([gone, following])
    assert gone.cancelled()
    assert not following.cancelled()
    assert (admission.executing, admission.waiting) == (0, 0)


async def test_without_limits_nobody_waits() -> None:
    """0 is none."""
    admission = Admission(executing=0, waiting=0, per_principal=0)
    with ExitStack() as places:
        for _ in range(2000):
            assert places.enter_context(admission.place()).free
            admission.begin("ann")
        assert admission.executing == 2000


def test_one_who_is_known_has_so_many_operations_at_once() -> None:
    """Each by itself; one that was refused takes no place, and nobody known is not counted."""
    admission = Admission(per_principal=2)
    for each in ("ann", "ann", "bob", "", "", ""):
        admission.begin(each)
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="3 operations of ann") as refused:
            admission.begin("ann")
        assert refused.value.facts["bound"] == 2
    admission.begin("bob")
    for each in ("ann", "", "ann"):
        admission.end(each)
    for _ in range(2):
        admission.begin("ann")
