"""Single flight: concurrent calls share one execution, whichever of them is cancelled or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from revstream.resolvers.subscriptions.single_flight import SingleFlight
from revstream.streams.core.errors import GatewayError, Unavailable


class Computation:
    """Counts executions; each waits for its signal to end."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.errors: list[Exception] = []

    async def make(self) -> str:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        if self.errors:
            raise self.errors.pop(0)
        return f"made {number}"


@pytest.fixture
def flight() -> SingleFlight[str, str]:
    return SingleFlight(kept=2)


async def started_calls(
    flight: SingleFlight[str, str], make: Callable[[], Awaitable[str]], count: int
) -> list[asyncio.Task[str]]:
    """Start `count` concurrent calls with the same key."""
    tasks = [asyncio.ensure_future(flight.run("a", make)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_concurrent_and_later_calls_share_one_result(
    flight: SingleFlight[str, str],
) -> None:
    """Another key has another result."""
    making = Computation()
    tasks = await started_calls(flight, making.make, 3)
    making.go.set()
    assert await asyncio.gather(*tasks) == ["made 1"] * 3
    assert await flight.run("a", making.make) == "made 1"
    assert await flight.run("b", making.make) == "made 2"


async def test_the_number_of_kept_results_is_limited(flight: SingleFlight[str, str]) -> None:
    """The oldest result is evicted and computed again."""
    making = Computation()
    making.go.set()
    for key in "abc":
        await flight.run(key, making.make)
    assert [await flight.run(key, making.make) for key in "cba"] == ["made 3", "made 2", "made 4"]


async def test_a_running_execution_is_not_evicted_for_finished_ones(
    flight: SingleFlight[str, str],
) -> None:
    """A later call joins it."""
    slow, quick = Computation(), Computation()
    quick.go.set()
    tasks = await started_calls(flight, slow.make, 1)
    for key in "bcd":
        await flight.run(key, quick.make)
    tasks += await started_calls(flight, slow.make, 1)
    slow.go.set()
    assert await asyncio.gather(*tasks) == ["made 1"] * 2


@pytest.mark.parametrize(("index", "expected"), [(0, "made 2"), (1, "made 1")])
async def test_a_cancelled_call_does_not_affect_the_others(
    flight: SingleFlight[str, str], index: int, expected: str
) -> None:
    """If it was executing, another call executes instead."""
    making = Computation()
    tasks = await started_calls(flight, making.make, 3)
    left = tasks.pop(index)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    making.go.set()
    assert await asyncio.gather(*tasks) == [expected] * 2


async def test_each_call_has_an_error_of_its_own_and_the_next_one_retries(
    flight: SingleFlight[str, str],
) -> None:
    """Facts added for one caller, such as where to resume, do not reach another."""
    making = Computation()
    making.errors.append(Unavailable("gone", oldestResumeToken="t"))
    tasks = await started_calls(flight, making.make, 3)
    making.go.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert len({id(each) for each in errors}) == 3
    for each in errors:
        assert isinstance(each, Unavailable)
        assert (each.message, each.facts) == ("gone", {"oldestResumeToken": "t"})
        each.facts["mine"] = True
    assert sum("mine" in each.facts for each in errors if isinstance(each, GatewayError)) == 3
    assert await flight.run("a", making.make) == "made 2"


async def test_a_bug_reaches_only_the_executing_call(flight: SingleFlight[str, str]) -> None:
    """The other calls execute themselves."""
    making = Computation()
    making.errors.append(ZeroDivisionError())
    first, *others = await started_calls(flight, making.make, 3)
    making.go.set()
    with pytest.raises(ZeroDivisionError):
        await first
    assert await asyncio.gather(*others) == ["made 2"] * 2
