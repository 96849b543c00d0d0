"""Garbage collector policy: frequent collections of young objects, rare full ones.

A full collection takes 0.2 to 0.5 µs per object, 0.9 s with 10,000 connections, during which no
request is served. Cyclic garbage that outlives a few young collections is found by full ones only.
Connections break their cycles when they end, so that little of it arises. A full collection runs
when memory has grown by half, and by more than open connections need; else it takes a small share
of the time.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable

__all__ = ["RECORDING", "SERVING", "collect_garbage", "settle"]

SERVING = 10_000
"""Objects that come before what is young is looked at. Small portions while others wait: ten
thousand who reconnect make three million, and 400,000 of them at once would take 200 ms."""
RECORDING = 200_000
"""Batches of events are all gone by themselves before so many have come: looking through them, in
vain, was a sixth of a recorder's time."""

# Looked at once more together: 15 ms for 40,000 objects.
_PORTIONS = 4
# Batches without a second collection after one in vain; first collections in vain before batches
# have none.
_SPARED = 16
_CERTAIN = 2
_EVERY_S = 20.0
_GROWTH = 1.5
# Of the time, for looks at all where memory has not grown so: 0.1 s every eight minutes, and where
# 10,000 are connected 0.9 s every hour and a quarter.
_SHARE = 1 / 5000
_FIRST_S = 300.0
# Objects that a socket takes with a subscription or two: not to be taken for garbage when thousands
# come at once.
_OF_A_SOCKET = 1_000


def settle(*, most: int) -> None:
    """Freeze all present objects, the schema above all: collecting them takes 60 ms each time.

    Args:
        most: new objects before a collection.
    """
    gc.collect()
    gc.freeze()
    # All of it is for `collect_garbage`.
    gc.set_threshold(most, _PORTIONS - 1, 1_000_000)
    gc.callbacks.append(_Looks(next_to_nothing=_PORTIONS * most // 100))


class _Looks:
    """Skip young collections that find nothing, as where all new objects are there to stay.

    After a second collection without a result, survivors of the first are moved to the old
    generation in the next batches. After first collections without a result, whole batches are.
    With ten thousand connections that reconnect neither finds anything, and both took a seventh of
    the time. With thousands of subscribers, first collections stopped the process for 25 to 50 ms
    every few seconds, in vain. With an even load, second collections free about 3 % of the objects.
    """

    def __init__(self, *, next_to_nothing: int) -> None:
        self._next_to_nothing = next_to_nothing
        # Portions that have no second look, and how many of them in a row had a first in vain.
        self._spared = 0
        self._in_vain = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        first = not info["generation"]
        if phase == "start":
            if first and self._spared and self._in_vain >= _CERTAIN:
                # So that there is nothing to look at.
                _take_for_old()
        elif not first:
            self._spared = _SPARED if info["collected"] < self._next_to_nothing else 0
            self._in_vain = 0
        elif self._spared:
            self._spared -= 1
            self._in_vain = 0 if info["collected"] else self._in_vain + 1
            _take_for_old()


def _take_for_old() -> None:
    """Move young objects to the old generation, which only freeze and unfreeze can do.

    Objects of `settle` are collected with the rest from then on, which takes 60 ms more each time.
    """
    gc.freeze()
    gc.unfreeze()


async def collect_garbage(
    sockets: Callable[[], int],
    *,
    every_s: float = _EVERY_S,
    growth: float = _GROWTH,
    first_s: float = _FIRST_S,
    share: float = _SHARE,
) -> None:
    """Run full collections: after growth, else in a small share of the time.

    Args:
        sockets: returns the number of open connections.
        first_s: seconds until the first one without growth.
    """
    left, then = sys.getallocatedblocks(), sockets()
    earlier = then
    due = time.monotonic() + first_s
    while True:
        await asyncio.sleep(every_s)
        now = sockets()
        # Memory of connections that have just closed may not be free yet.
        more = max(now, earlier) - then
        earlier = now
        grown = sys.getallocatedblocks() > growth * left + _OF_A_SOCKET * max(0, more)
        if grown or time.monotonic() >= due:
            # Of the processor: what else the machine does makes none of it rarer.
            began_s = time.thread_time()
            gc.collect()
            due = time.monotonic() + (time.thread_time() - began_s) / share
            left, then = sys.getallocatedblocks(), now
