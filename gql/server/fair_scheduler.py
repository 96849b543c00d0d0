"""Turns of the event loop, of which nobody takes more than his share.

Ten thousand clients that come back at once are ten thousand things to do, each small: what was
ready would all be done before anything else is looked at, such as an event for those who stayed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["FairScheduler", "FairStarter", "TimeSlice"]

# How long one works before others have their turn.
_BREATH_S = 0.004


class FairScheduler:
    """Lets a few go on in each turn of the loop, in the order in which they came: those who have
    begun before those who are about to, but for one, so that nobody is begun with and then kept
    waiting.

    Args:
        most: in one turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._turning = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting) + len(self._beginning)

    async def next(self, *, beginning: bool = False) -> None:
        """Return once it is one's turn. Cancellation: safe."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            loop.call_soon(self._turn)
        if self._left:
            self._left -= 1
            return
        mine = loop.create_future()
        (self._beginning if beginning else self._waiting).append(mine)
        await mine

    def _turn(self) -> None:
        self._left = self._most
        # One at least: those who have begun may not keep all others out.
        self._grant(self._beginning, 1)
        self._grant(self._waiting, self._left)
        self._grant(self._beginning, self._left)
        self._turning = self._left < self._most
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)

    def _grant(self, waiting: deque[asyncio.Future[None]], most: int) -> None:
        while most and waiting:
            first = waiting.popleft()
            if not first.done():
                first.set_result(None)
                self._left -= 1
                most -= 1


class FairStarter:
    """Calls a few functions in each turn of the loop, in the order in which they came; the first of
    a turn at once.

    What thirty requests read that come in one turn would be sent once all of them have been looked
    at, and MongoDB would have nothing to do until then, nor the gateway from then on.

    Args:
        most: in one turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._turning = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def start(self, begin: Callable[..., object], *arguments: Any) -> None:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        if self._left and not self._waiting:
            self._left -= 1
            begin(*arguments)
        else:
            self._waiting.append((begin, arguments))

    def _turn(self) -> None:
        self._left = self._most
        # First: whatever one of them raises, the others go on.
        self._turning = bool(self._waiting)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)
        while self._waiting and self._left:
            self._left -= 1
            begin, arguments = self._waiting.popleft()
            begin(*arguments)


class TimeSlice:
    """Of somebody who has much to do: lets others have their turn when it has taken a while."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def take(self) -> None:
        if self._loop.time() - self._since > _BREATH_S:
            await asyncio.sleep(0)
            self._since = self._loop.time()
