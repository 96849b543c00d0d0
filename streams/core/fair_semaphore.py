"""Counting semaphore whose slots go to callers in turn, whatever number of requests each has."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["FairSemaphore"]


class FairSemaphore:
    """Requests of one caller are served in their order.

    Args:
        slots: how many in all; 0: no limit.
        per_caller: how many of one caller.
    Attributes:
        held, waiting: how many are.
    """

    def __init__(self, slots: int, per_caller: int) -> None:
        self.held = 0
        self.waiting = 0
        self._slots = slots
        self._per_caller = per_caller
        self._held_by: Counter[str] = Counter()
        # By caller, the one whose turn is next first. A future is done once it has a slot.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        await self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

    async def acquire(self, caller: str) -> None:
        """Take a slot, waiting for it if need be."""
        if self.try_acquire(caller):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(caller, deque())
        queue.append(granted)
        self.waiting += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted in queue:
                queue.remove(granted)
            elif not granted.cancelled() and granted.exception() is None:
                # Given up in the very turn in which it got its slot.
                self.release(caller)
            raise
        finally:
            self.waiting -= 1

    def try_acquire(self, caller: str) -> bool:
        """Take a slot if there is a free one."""
        free = self.is_free(caller)
        if free:
            self._take(caller)
        return free

    def is_free(self, caller: str) -> bool:
        """Return whether `acquire` would not wait."""
        if self._slots <= 0:
            return True
        return self.held < self._slots and self._held_by[caller] < self._per_caller

    def waiting_of(self, caller: str) -> int:
        """Return how many requests of a caller wait."""
        return len(self._queues.get(caller, ()))

    def release(self, caller: str) -> None:
        """Give a slot back; the next request has it from now on, so that none overtakes."""
        self.held -= 1
        self._held_by[caller] -= 1
        if not self._held_by[caller]:
            del self._held_by[caller]
        self._grant()

    def evict(self, caller: str, reason: Callable[[], Exception]) -> bool:
        """Make room in a full queue for a request of a caller: the newest request of the caller
        that has most of the queue is refused.

        Returns: whether there is one; False where that is this caller itself.
        """
        largest = max(self._queues, key=lambda each: len(self._queues[each]), default=caller)
        mine = len(self._queues.get(caller, ()))
        if largest == caller or len(self._queues[largest]) <= mine + 1:
            return False
        last = self._queues[largest].pop()
        if not last.done():
            last.set_exception(reason())
        return True

    def _take(self, caller: str) -> None:
        self.held += 1
        self._held_by[caller] += 1

    def _grant(self) -> None:
        for caller in list(self._queues):
            queue = self._queues[caller]
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._queues[caller]
            elif self.is_free(caller):
                # Its next turn comes after those of all others.
                del self._queues[caller]
                self._queues[caller] = queue
                self._take(caller)
                queue.popleft().set_result(None)
                return
