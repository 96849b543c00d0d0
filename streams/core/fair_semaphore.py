"""Counting semaphore that grants its slots to callers in turn, however many requests each has."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["FairSemaphore"]


class FairSemaphore:
    """Semaphore with a limit per caller; the requests of one caller are granted in their order.

    Args:
        slots: Maximum number of slots held; 0 for no limit.
        per_caller: Maximum number of slots that one caller holds.

    Attributes:
        held: Number of slots held.
        waiting: Number of requests that wait.
    """

    def __init__(self, slots: int, per_caller: int) -> None:
        self.held = 0
        self.waiting = 0
        self._slots = slots
        self._per_caller = per_caller
        self._held_by: Counter[str] = Counter()
        # By caller, the next in turn first. A future is done once it has a slot.
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        await self.acquire(caller)
        try:
            yield
        finally:
            self.release(caller)

    async def acquire(self, caller: str) -> None:
        """Take a slot; wait until one is free."""
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
                # Cancelled in the same turn of the event loop in which the slot was granted.
                self.release(caller)
            raise
        finally:
            self.waiting -= 1

    def try_acquire(self, caller: str) -> bool:
        """Take a slot if one is free. Returns whether it was taken."""
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
        """Return the number of waiting requests of a caller."""
        return len(self._queues.get(caller, ()))

    def release(self, caller: str) -> None:
        """Give a slot back and grant it to the next request at once: no request overtakes."""
        self.held -= 1
        self._held_by[caller] -= 1
        if not self._held_by[caller]:
            del self._held_by[caller]
        self._grant()

    def evict(self, caller: str, reason: Callable[[], Exception]) -> bool:
        """Refuse the newest request of the caller with most requests, to make room in a full queue.

        Args:
            caller: The caller of the request that needs room.
            reason: Creates the error that the evicted request raises.

        Returns:
            Whether a request was evicted; False if `caller` itself has most requests.
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
                # Move the caller to the end: its next turn is after those of all others.
                del self._queues[caller]
                self._queues[caller] = queue
                self._take(caller)
                queue.popleft().set_result(None)
                return
