"""Garbage collection: unreachable cycles are freed once there are many."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from revstream.gql.runtime.gc_policy import collect_garbage
from tests.support.eventually import eventually


class Ring:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def by_itself_never() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_growth_starts_a_collection() -> None:
    """Further growth starts another one."""
    collecting = asyncio.create_task(collect_garbage(int, every_s=0.001, growth=1.02))
    await asyncio.sleep(0)
    for _ in range(2):
        rings = [Ring() for _ in range(100_000)]
        gone = weakref.ref(rings[0])
        rings.clear()
        assert gone() is not None
        await eventually(lambda gone=gone: gone() is None)  # type: ignore[misc]
    collecting.cancel()


@pytest.mark.parametrize(("share", "looks"), [(1.0, 3), (1e-9, 1)])
async def test_without_growth_collections_take_a_share_of_the_time(
    share: float, looks: int
) -> None:
    """They run repeatedly, or once if the share is almost 0."""
    looked = 0

    def looking(phase: str, _info: object) -> None:
        nonlocal looked
        looked += phase == "stop"

    gc.callbacks.append(looking)
    collecting = asyncio.create_task(
        collect_garbage(int, every_s=0.0, growth=100.0, first_s=0.0, share=share)
    )
    await eventually(lambda: looked >= looks)
    for _ in range(100):
        await asyncio.sleep(0)
    gc.callbacks.remove(looking)
    collecting.cancel()
    assert looked == 1 or looks > 1


@pytest.mark.parametrize(
    ("rings", "sockets"),
    [pytest.param(1, 0, id="little"), pytest.param(100_000, 400, id="as much as sockets take")],
)
async def test_growth_of_other_memory_starts_no_collection(rings: int, sockets: int) -> None:
    """A full collection would cost more than it frees."""
    looked, open_now = 0, 0

    def looking(phase: str, _info: object) -> None:
        nonlocal looked
        looked += phase == "start"

    gc.callbacks.append(looking)
    collecting = asyncio.create_task(collect_garbage(lambda: open_now, every_s=0.0, growth=1.02))
    await asyncio.sleep(0)
    open_now = sockets
    created = [Ring() for _ in range(rings)]
    left = weakref.ref(created[0])
    created.clear()
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == 0
    assert left() is not None
    # The clients have disconnected without a collection.
    open_now = 0
    for _ in range(100):
        await asyncio.sleep(0)
    gc.callbacks.remove(looking)
    collecting.cancel()
    assert looked == (rings > 1)


# Portions of 1,000 objects, in a process of its own: the thresholds are per process.
LOOKS = """
import gc
import weakref
from collections import Counter, deque
from revstream.gql.runtime.gc_policy import settle

class Ring:
    def __init__(self):
        self.itself = self

settle(most=1_000)
looks = Counter()

def looking(phase, info):
    generation = info["generation"]
    if phase == "stop":
        looks[generation] += 1
    elif generation == 0 and len(gc.get_objects(generation=0)) > 500:
        looks["whole portions"] += 1

gc.callbacks.append(looking)
"""


def looks(code: str) -> list[int]:
    """Run the code in a process and return the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", LOOKS + code], capture_output=True, text=True, check=True
    )
    return [*map(int, done.stdout.split())]


def test_long_lived_objects_are_seldom_scanned_and_hardly_ever_twice() -> None:
    """The thresholds are of the young generations."""
    first, portions, second, whole, young = looks(
        """
kept = [[] for _ in range(200_000)]
print(looks[0], looks["whole portions"], looks[1], looks[2])
print(sum(len(gc.get_objects(generation=n)) for n in (0, 1)))
"""
    )
    # Six of twenty.
    assert 0.2 < portions / first < 0.4
    # Otherwise one of five scans is of the second generation.
    assert first > 100
    assert second < first / 15
    assert whole == 0
    assert young < 6_000


def test_short_lived_cycles_are_freed_by_the_second_scan() -> None:
    """This holds even if the scans before freed nothing."""
    first, second, left = looks(
        """
kept = [[] for _ in range(50_000)]
looks.clear()
recent = deque(maxlen=300)
for _ in range(100_000):
    recent.append(Ring())
print(looks[0], looks[1], sum(isinstance(each, Ring) for each in gc.get_objects()))
"""
    )
    assert second > first / 8
    # 300 are alive at each scan of the second generation, and at each first one without a second.
    assert left < 25_000


def test_a_cycle_in_the_old_generation_is_freed_by_a_full_collection() -> None:
    """A young collection does not free it."""
    before, after = looks(
        """
kept = [[] for _ in range(50_000)]
ring = Ring()
gone = weakref.ref(ring)
kept += [[] for _ in range(5_000)]
del ring
kept += [[] for _ in range(50_000)]
print(int(gone() is None))
gc.collect()
print(int(gone() is None))
"""
    )
    assert (before, after) == (0, 1)
