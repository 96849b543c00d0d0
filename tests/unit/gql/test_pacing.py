"""gql.pacing: who would be told late is told two events at once, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from gql.pacing import paced, patience_s
from gql.told import Told
from tests.support.streams import turn


class Part:
    """A `Told`."""

    def __init__(self, name: str, counts: bool = True, heard_at: float = 0.0) -> None:
        self.name = name
        self.counts = counts
        self.heard_at = heard_at


class Parts:
    """What comes when it is told to."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[Sequence[Part] | Exception] = asyncio.Queue()
        self.closed = False

    async def all(self) -> AsyncGenerator[Sequence[Told]]:
        try:
            while True:
                part = await self.coming.get()
                if isinstance(part, Exception):
                    raise part
                yield cast("Sequence[Told]", part)
        finally:
            self.closed = True

    def come(self, *names: str, heard_at: float = 0.0) -> None:
        self.coming.put_nowait([Part(each, each != "checkpoint", heard_at) for each in names])


def names(part: Sequence[Any]) -> list[str]:
    return [each.name for each in part]


def _paced(
    parts: AsyncGenerator[Sequence[Told]],
    patience_s: Callable[[], float] = lambda: 60.0,
    *,
    waits: bool = True,
) -> AsyncGenerator[Sequence[Told]]:
    return paced(parts, lambda: waits, lambda *_: patience_s())


@pytest.mark.parametrize(
    ("late_s", "every_s", "took_s", "expected_s"),
    [
        pytest.param(0.005, 0.020, 0.018, 0.018, id="late"),
        pytest.param(0.003, 0.020, 0.018, 0.0, id="in time"),
        pytest.param(0.018, 0.002, 0.018, 0.0, id="two came together, a third would be here"),
        pytest.param(0.005, 0.200, 0.018, 0.0, id="the next comes much later"),
        pytest.param(0.004, 0.005, 0.004, 0.0, id="telling takes no time to speak of"),
    ],
)
def test_whoever_is_late_waits_for_the_next(
    late_s: float, every_s: float, took_s: float, expected_s: float
) -> None:
    assert patience_s(late_s, every_s, took_s) == expected_s


async def test_how_late_it_is_and_how_long_telling_takes() -> None:
    """Late since it was heard of; every so often since the last one of the part before was; took as
    long as whoever is told takes to ask for more."""
    now, asked = 100.0, []

    def patience(late_s: float, every_s: float, took_s: float) -> float:
        asked.append((late_s, every_s, took_s))
        return 60.0 if len(asked) == 2 else 0.0

    parts = Parts()
    async with (
        aclosing(parts.all()) as all_,
        aclosing(paced(all_, lambda: True, patience, lambda: now)) as told,
    ):
        parts.come("a", "b", heard_at=100.0)
        await anext(told)
        now = 107.0
        parts.come("c", heard_at=103.0)
        parts.come("d", heard_at=106.0)
        assert names(await anext(told)) == ["c", "d"]
        now = 108.0
        parts.come("e", heard_at=108.0)
        assert names(await anext(told)) == ["e"]
    assert asked[1:] == [(4.0, 3.0, 7.0), (0.0, 2.0, 1.0)]


async def test_nobody_waits_before_the_stream_is_caught_up_with() -> None:
    parts = Parts()
    async with aclosing(parts.all()) as all_, aclosing(_paced(all_, waits=False)) as told:
        parts.come("a")
        parts.come("b")
        assert names(await anext(told)) == ["a"]


async def test_events_that_wait_come_with_the_next() -> None:
    parts, patience = Parts(), 60.0
    async with aclosing(parts.all()) as all_, aclosing(_paced(all_, lambda: patience)) as told:
        parts.come("a", "b")
        parts.come("c")
        assert names(await anext(told)) == ["a", "b", "c"]
        patience = 0.0
        parts.come("d")
        parts.come("e")
        assert names(await anext(told)) == ["d"]
        assert names(await anext(told)) == ["e"]


async def test_nobody_waits_longer_than_that() -> None:
    """And what comes then is told next."""
    parts, patience = Parts(), 0.001
    async with aclosing(parts.all()) as all_, aclosing(_paced(all_, lambda: patience)) as told:
        parts.come("a")
        assert names(await anext(told)) == ["a"]
        patience = 0.0
        parts.come("b")
        assert names(await anext(told)) == ["b"]


async def test_places_come_alone() -> None:
    """A checkpoint neither waits nor comes with events."""
    parts = Parts()
    async with aclosing(parts.all()) as all_, aclosing(_paced(all_)) as told:
        parts.come("checkpoint")
        assert names(await anext(told)) == ["checkpoint"]
        parts.come("a")
        parts.come("checkpoint")
        assert names(await anext(told)) == ["a"]
        assert names(await anext(told)) == ["checkpoint"]


async def test_what_goes_wrong_is_told_behind_what_came_before() -> None:
    parts = Parts()
    async with aclosing(parts.all()) as all_, aclosing(_paced(all_)) as told:
        parts.come("a")
        parts.coming.put_nowait(ValueError("broken"))
        assert names(await anext(told)) == ["a"]
        with pytest.raises(ValueError, match="broken"):
            await anext(told)
    assert parts.closed


@pytest.mark.parametrize("waiting", ["for the next", "for the first"])
async def test_who_leaves_while_something_is_waited_for_leaves_nothing_behind(
    waiting: str,
) -> None:
    parts = Parts()

    async def follow() -> None:
        async with aclosing(parts.all()) as all_, aclosing(_paced(all_)) as told:
            async for _ in told:
                pass

    following = asyncio.create_task(follow())
    if waiting == "for the next":
        parts.come("a")
    await turn()
    following.cancel()
    await asyncio.wait({following})
    assert following.cancelled()
    assert parts.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
