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
    collecting = asyncio.create_task(collect_garbage(every_s=0.001, growth=1.02))
    await asyncio.sleep(0)
    for _ in range(2):
        rings = [Ring() for _ in range(100_000)]
        gone = weakref.ref(rings[0])
        rings.clear()
        assert gone() is not None
        await eventually(lambda gone=gone: gone() is None)  # type: ignore[misc]
    collecting.cancel()


async def test_a_little_is_left_alone() -> None:
    """A look at all there is would cost more than that."""
    ring = Ring()
    left = weakref.ref(ring)
    del ring
    looked = 0

    def looking(phase: str, _info: object) -> None:
        nonlocal looked
        looked += phase == "start"

    gc.callbacks.append(looking)
    collecting = asyncio.create_task(collect_garbage(every_s=0.0))
    for _ in range(1000):
        await asyncio.sleep(0)
    gc.callbacks.remove(looking)
    collecting.cancel()
    assert looked == 0
    assert left() is not None
