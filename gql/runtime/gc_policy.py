"""When Python looks for what refers only to itself: what is young often, in portions, and once more
where that finds some; all of it seldom, since nobody is served meanwhile (0.2 to 0.5 µs for each
object that there is: 0.9 s where 10,000 are connected).

What refers to itself, and has outlived a few portions, is found by the second alone: most of it
were connections. They are taken apart when they end, so that next to nothing is left of them; what
is left all the same, of theirs or of a library's, is looked for once memory has grown by half, and
by more than what those who are connected take; else in a small share of the time, so that it does
not add up.
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
# Behind a second look in vain, so many have none; nor a first one, behind so many in vain.
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
    """What there is now stays for good (the schema above all): a look at all of it takes 60 ms.
    Only what comes later is looked at.

    Args:
        most: objects that come before they are looked at.
    """
    gc.collect()
    gc.freeze()
    # All of it is for `collect_garbage`.
    gc.set_threshold(most, _PORTIONS - 1, 1_000_000)
    gc.callbacks.append(_Looks(next_to_nothing=_PORTIONS * most // 100))


class _Looks:
    """Spares those that are in vain, as where all that comes is there to stay.

    Behind a second look that found next to nothing, what has outlived the first look of the next
    portions is taken for old; and once first looks among those find nothing at all, so are whole
    portions. Of ten thousand who reconnect neither finds anything, and both were a seventh of what
    that takes; of thousands who are told something, first looks stopped everybody for 25 to 50 ms
    every few seconds, in vain. Where requests and events come evenly, second looks find some 3% of
    what they look at.
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
    """What is young: the only way. What `settle` found is looked at with the rest from now on, 60
    ms more each time."""
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
    """Look at all of it whenever there is so much more than what the last look left; and where
    there is not, in so large a share of the time.

    Args:
        sockets: how many are open.
        first_s: when the first time, where there is not.
    """
    left, then = sys.getallocatedblocks(), sockets()
    earlier = then
    due = time.monotonic() + first_s
    while True:
        await asyncio.sleep(every_s)
        now = sockets()
        # What those who have just left have taken need not be gone yet.
        more = max(now, earlier) - then
        earlier = now
        grown = sys.getallocatedblocks() > growth * left + _OF_A_SOCKET * max(0, more)
        if grown or time.monotonic() >= due:
            # Of the processor: what else the machine does makes none of it rarer.
            began_s = time.thread_time()
            gc.collect()
            due = time.monotonic() + (time.thread_time() - began_s) / share
            left, then = sys.getallocatedblocks(), now
