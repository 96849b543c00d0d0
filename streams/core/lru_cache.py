"""What was asked for lately, within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class LruCache(Generic[K, T]):
    """The one that was not asked for longest goes first.

    Args:
        most: how many.
        most_size: of all together, in characters or bytes.
    """

    def __init__(self, *, most: int, most_size: int) -> None:
        self._most = most
        self._most_size = most_size
        self._kept: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, key: K) -> T | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: K, value: T, size: int) -> None:
        if key in self._kept or size > self._most_size // 4:
            return
        self._kept[key] = (value, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._most_size:
            _, (_, gone) = self._kept.popitem(last=False)
            self._size -= gone

    def __len__(self) -> int:
        return len(self._kept)
