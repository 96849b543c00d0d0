"""gql.pacing: events are told two at once where telling takes most of the time, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from gql.pacing import Pace, paced
from gql.told import Told
from tests.support.streams import turn


class Part:
    """A `Told`."""

    def __init__(self, name: str, counts: bool = True) -> None:
        self.name = name
        self.counts = counts


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

    def come(self, *names: str) -> None:
        self.coming.put_nowait([Part(each, each != "checkpoint") for each in names])


def names(part: Sequence[Any]) -> list[str]:
    return [each.name for each in part]


@pytest.mark.parametrize(
    ("every_s", "took_s", "patience_s"),
    [
        (0.020, 0.016, 0.032),
        (0.020, 0.014, 0.0),
        (0.020, 0.030, 0.060),
        (0.002, 0.0019, 0.0),
    ],
)
def test_an_event_waits_where_there_is_little_time_to_spare(
    every_s: float, took_s: float, patience_s: float
) -> None:
    """What takes no time to speak of may come as often as it likes."""
    now = 100.0
    pace = Pace(lambda: now)
    assert pace.patience_s == 0
    for _ in range(2):
        pace.begin()
        pace.end()
        now += every_s
    pace.begin()
    now += took_s
    pace.end()
    assert pace.patience_s == pytest.approx(patience_s)


async def test_events_that_wait_come_with_the_next() -> None:
    parts, patience = Parts(), 60.0
    async with aclosing(parts.all()) as all_, aclosing(paced(all_, lambda: patience)) as told:
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
    async with aclosing(parts.all()) as all_, aclosing(paced(all_, lambda: patience)) as told:
        parts.come("a")
        assert names(await anext(told)) == ["a"]
        patience = 0.0
        parts.come("b")
        assert names(await anext(told)) == ["b"]


async def test_places_come_alone() -> None:
    """A checkpoint neither waits nor comes with events."""
    parts = Parts()
    async with aclosing(parts.all()) as all_, aclosing(paced(all_, lambda: 60.0)) as told:
        parts.come("checkpoint")
        assert names(await anext(told)) == ["checkpoint"]
        parts.come("a")
        parts.come("checkpoint")
        assert names(await anext(told)) == ["a"]
        assert names(await anext(told)) == ["checkpoint"]


async def test_what_goes_wrong_is_told_behind_what_came_before() -> None:
    parts = Parts()
    async with aclosing(parts.all()) as all_, aclosing(paced(all_, lambda: 60.0)) as told:
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
        async with aclosing(parts.all()) as all_, aclosing(paced(all_, lambda: 60.0)) as told:
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
