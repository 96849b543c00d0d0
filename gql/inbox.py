"""What has come for one who takes it, as `asyncio.Queue` of one reader: that has four deques, 3 KB
for each of ten thousand sockets of which nothing comes."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

__all__ = ["Inbox"]

T = TypeVar("T")


class Inbox(Generic[T]):
    """In the order in which it came. Few wait in it: whoever takes one moves the others."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._reader: asyncio.Future[None] | None = None

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items

    def put_nowait(self, item: T) -> None:
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def get_nowait(self) -> T:
        """Raises:
        IndexError: it is empty.
        """
        return self._items.pop(0)

    async def get(self) -> T:
        """The next, once there is one. Cancellation: safe, nothing is taken.

        Raises:
            RuntimeError: somebody waits for it already.
        """
        if self._reader is not None:
            raise RuntimeError("an inbox has one reader, and it waits already")
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._items.pop(0)
