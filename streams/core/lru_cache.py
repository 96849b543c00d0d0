"""LRU cache bounded by the number of its entries and, where they differ much, by their size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class LruCache(Generic[K, T]):
    """Mapping that evicts the entry that was read or written least recently.

    Args:
        most: the number of entries.
        most_size: the sum of their sizes, in the unit of `put`; None is no bound.
    """

    def __init__(self, *, most: int, most_size: int | None = None) -> None:
        self._most = most
        self._most_size = most_size
        self._entries: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, key: K) -> T | None:
        """Return a value, as the most recent one; None where there is none."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: T, size: int = 0) -> None:
        """Store a value as the most recent one, unless it takes a quarter of the room by itself."""
        self.pop(key)
        if self._most_size is not None and size > self._most_size // 4:
            return
        self._entries[key] = value, size
        self._size += size
        while self._is_full:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._size -= evicted

    @property
    def _is_full(self) -> bool:
        large = self._most_size is not None and self._size > self._most_size
        return large or len(self._entries) > self._most

    def pop(self, key: K) -> T | None:
        """Remove an entry and return its value; None where there is none."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._size -= found[1]
        return found[0]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)
