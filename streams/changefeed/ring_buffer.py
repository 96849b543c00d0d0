"""Ring buffer: the last events of one collection in memory, bounded by number and bytes.

It also holds messages that were made of the events.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, Protocol, TypeVar

__all__ = ["Ring"]


class RingItem(Protocol):
    @property
    def token(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...


T = TypeVar("T", bound=RingItem)


class Ring(Generic[T]):
    """A ring buffer in stream order. Appending is O(1), finding a token O(log n).

    Attributes:
        floor: Token after which no item is missing.
        dropped: At least one item was dropped.
    """

    def __init__(self, floor: str, *, capacity_events: int, capacity_bytes: int) -> None:
        self.floor = floor
        self.dropped = False
        self.size_bytes = 0
        self._capacity_events = capacity_events
        self._capacity_bytes = capacity_bytes
        self._tokens: list[str] = []
        self._events: list[T | None] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._events) - self._start

    def append(self, event: T) -> None:
        """Add an item with the highest token; the oldest items are dropped while a bound is
        exceeded.
        """
        self._tokens.append(event.token)
        self._events.append(event)
        self.size_bytes += event.size_bytes
        while len(self) > self._capacity_events or (
            self.size_bytes > self._capacity_bytes and len(self)
        ):
            oldest = self._events[self._start]
            assert oldest is not None
            self.size_bytes -= oldest.size_bytes
            self.floor = oldest.token
            self.dropped = True
            # Not deleted one by one, since that moves the rest of the list, but the memory is freed
            # at once.
            self._events[self._start] = None
            self._start += 1
        if self._start > max(64, len(self)):
            del self._tokens[: self._start]
            del self._events[: self._start]
            self._start = 0

    def pending_after(self, token: str) -> tuple[int, T | None]:
        """Return the number of items after a token, and the oldest of them. O(log n)."""
        first = bisect_right(self._tokens, token, lo=self._start)
        return len(self._events) - first, self._events[first] if first < len(self._events) else None

    def items_after(self, token: str) -> list[T] | None:
        """Return the items after a token, oldest first; None where the buffer begins after it."""
        if token < self.floor:
            return None
        first = bisect_right(self._tokens, token, lo=self._start)
        return [each for each in self._events[first:] if each is not None]
