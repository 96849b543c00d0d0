"""Fair scheduler: bounded work per iteration of the event loop.

Ten thousand clients that connect at once are ten thousand small tasks. Without a bound all of them
would run before an event reaches the clients that are connected already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["FairScheduler", "TimeSlice"]

_SLICE_S = 0.004
"""Seconds of work after which a task yields."""

_Start = Callable[[], bool]
"""Run an entry; False if it was cancelled and takes no place in this iteration."""


class FairScheduler:
    """Let at most `most` entries run per iteration of the event loop, first in, first out.

    Work that has begun runs before new work, but one new entry is admitted each time. The first
    entries of an iteration run at once.

    Args:
        most: entries per iteration.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._continuing: deque[_Start] = deque()
        self._beginning: deque[_Start] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        """Return the number of waiting entries."""
        return len(self._continuing) + len(self._beginning)

    def start(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function now or in a later iteration."""
        if self._take_place():
            function(*arguments)
        else:
            self._continuing.append(partial(_call, function, arguments))

    async def next(self, *, beginning: bool = False) -> None:
        """Wait for a place. Cancellation: safe.

        Args:
            beginning: new work, such as a new connection.
        """
        if self._take_place():
            return
        granted = asyncio.get_running_loop().create_future()
        waiting = self._beginning if beginning else self._continuing
        waiting.append(partial(_grant, granted))
        await granted

    def _take_place(self) -> bool:
        self._schedule()
        if self._left > 0 and not self._continuing:
            self._left -= 1
            return True
        return False

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._left = self._most
        self._scheduled = False
        if len(self):
            # First, because any entry may raise.
            self._schedule()
        self._run_some(self._beginning, 1)
        self._run_some(self._continuing, self._left)
        self._run_some(self._beginning, self._left)

    def _run_some(self, waiting: deque[_Start], most: int) -> None:
        # An entry that starts others takes places of the same iteration.
        while most > 0 and self._left > 0 and waiting:
            self._left -= 1
            if waiting.popleft()():
                most -= 1
            else:
                self._left += 1


def _call(function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
    function(*arguments)
    return True


def _grant(granted: asyncio.Future[None]) -> bool:
    if granted.done():
        return False
    granted.set_result(None)
    return True


class TimeSlice:
    """Yield to the event loop when the current task has run for more than 4 ms."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def maybe_yield(self) -> None:
        """Yield if the slice is used up, and begin a new one."""
        if self._loop.time() - self._since > _SLICE_S:
            await asyncio.sleep(0)
            self._since = self._loop.time()
