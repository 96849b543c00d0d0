"""What only the garbage collector finds is found, once there is much of it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from gql.garbage import collect_garbage
from tests.support.eventually import eventually


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def by_itself_never() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_what_has_come_to_much_is_looked_for() -> None:
    """And again, once there is as much more."""
    collecting = asyncio.create_task(collect_garbage(int, every_s=0.001, growth=1.02))
    await asyncio.sleep(0)
    for _ in range(2):
        rings = [Ring() for _ in range(100_000)]
        gone = weakref.ref(rings[0])
        rings.clear()
        assert gone() is not None
        await eventually(lambda gone=gone: gone() is None)  # type: ignore[misc]
    collecting.cancel()


@pytest.mark.parametrize(
    ("rings", "sockets"),
    [pytest.param(1, 0, id="little"), pytest.param(100_000, 400, id="as much as sockets take")],
)
async def test_other_growth_is_left_alone(rings: int, sockets: int) -> None:
    """A look at all there is would cost more than that."""
    looked, open_now = 0, 0

    def looking(phase: str, _info: object) -> None:
        nonlocal looked
        looked += phase == "start"

    gc.callbacks.append(looking)
    collecting = asyncio.create_task(collect_garbage(lambda: open_now, every_s=0.0, growth=1.02))
    await asyncio.sleep(0)
    open_now = sockets
    made = [Ring() for _ in range(rings)]
    left = weakref.ref(made[0])
    made.clear()
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == 0
    assert left() is not None
    # Those who were connected have gone, without taking it along.
    open_now = 0
    for _ in range(100):
        await asyncio.sleep(0)
    gc.callbacks.remove(looking)
    collecting.cancel()
    assert looked == (rings > 1)
