"""What only the garbage collector finds is found, once there is much of it."""

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


@pytest.mark.parametrize(("share", "looks"), [(1.0, 3), (1e-9, 1)])
async def test_what_has_not_come_to_much_is_looked_for_in_a_share_of_the_time(
    share: float, looks: int
) -> None:
    """Again and again, or once where the share is next to nothing."""
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


# Portions of 1,000 objects, in a process of its own: how often Python looks is the process's.
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
    """What that prints."""
    done = subprocess.run(
        [sys.executable, "-c", LOOKS + code], capture_output=True, text=True, check=True
    )
    return [*map(int, done.stdout.split())]


def test_what_stays_is_seldom_looked_at_and_hardly_ever_twice() -> None:
    first, portions, second, whole, young = looks(
        """
kept = [[] for _ in range(200_000)]
print(looks[0], looks["whole portions"], looks[1], looks[2])
print(sum(len(gc.get_objects(generation=n)) for n in (0, 1)))
"""
    )
    # Six of twenty.
    assert 0.2 < portions / first < 0.4
    # One of five looks is a second one otherwise.
    assert first > 100
    assert second < first / 15
    assert whole == 0
    assert young < 6_000


def test_what_goes_soon_is_found_by_the_second_look() -> None:
    """Also where nothing went before."""
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
    # 300 are alive at each second look, and at each first one that has none behind it.
    assert left < 25_000


def test_what_was_taken_for_old_is_found_with_all_the_rest() -> None:
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
