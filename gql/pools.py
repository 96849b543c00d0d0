"""Reads of many keys that are asked for in one turn of the loop, made as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Pool"]

K = TypeVar("K")
T = TypeVar("T")


class Pool(Generic[K, T]):
    """Whoever asks has a future for all of his keys, not one for each.

    Args:
        read: keys -> one value for each, in the same order.
    """

    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Sequence[T]]]) -> None:
        self._read = read
        self._asked: list[tuple[Sequence[K], asyncio.Future[Sequence[T]]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, keys: Sequence[K]) -> asyncio.Future[Sequence[T]]:
        """Cancellation: safe; others that asked in the same turn have their values."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[T]] = loop.create_future()
        self._asked.append((keys, future))
        if len(self._asked) == 1:
            loop.call_soon(self._start)
        return future

    def _start(self) -> None:
        asked, self._asked = self._asked, []
        task = asyncio.ensure_future(self._run(asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, asked: Sequence[tuple[Sequence[K], asyncio.Future[Sequence[T]]]]) -> None:
        waiting = [each for each in asked if not each[1].cancelled()]
        try:
            found = await self._read([key for keys, _ in waiting for key in keys])
        except Exception as exc:
            for _, future in waiting:
                if not future.cancelled():
                    future.set_exception(exc)
            return
        first = 0
        for keys, future in waiting:
            if not future.cancelled():
                future.set_result(found[first : first + len(keys)])
            first += len(keys)
