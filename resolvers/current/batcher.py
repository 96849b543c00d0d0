"""Reads of many keys that are asked for at about the same time, made as one.

Guarantees: a read begins after all that it serves were asked for, so that nobody is told anything
older than a read of his own would have told; what one of them cancels, the others still get; a read
that fails, fails for all that it serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar

from revstream.streams.core.operation import MOST_TOGETHER, OPERATION, Operation
from revstream.streams.core.read_memory import LargeRead

__all__ = ["BatchLoader", "BatchLoaders"]

K = TypeVar("K")
T = TypeVar("T")

_PendingLookup = tuple[Sequence[K], "asyncio.Future[Sequence[T]]", Operation | None]
"""Keys, what is given for them, and by whose operation they were asked for."""


class _Batch(NamedTuple, Generic[K, T]):
    """Keys of one read.

    Attributes:
        operation: it counts for; None: for none of those that asked.
        together: they were asked for by several operations.
    """

    operation: Operation | None
    asked: list[_PendingLookup[K, T]]
    together: bool = False


Read = Callable[[Sequence[K]], Awaitable[Sequence[T]]]


class BatchLoader(Generic[K, T]):
    """What is asked for in one turn of the loop, or while there are too many reads, is one read.

    Whoever asks has one future for all of his keys.

    Args:
        read: keys -> one value for each, in the same order.
        under_way: so many reads at once that count for no operation; 0: as many as there are turns.
            Those of one operation are bounded by its own limits, and may wait for others to end.
        patience_s: how long those that ask during a read wait for its end before one more is begun:
            most end sooner, and the more is read at once, the less each costs.
        enough: so many that ask are not kept waiting, where one more read may be begun: it costs
            each of them little more than a larger one, and nobody is idle meanwhile.
    """

    def __init__(
        self,
        read: Read[K, T],
        *,
        under_way: int = 0,
        patience_s: float = 0.002,
        enough: int = 8,
    ) -> None:
        self._read = read
        self._most = under_way
        self._patience_s = patience_s
        self._enough = enough
        self._waiting: asyncio.TimerHandle | None = None
        self._asked: list[_PendingLookup[K, T]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        # Those of them that count for no operation.
        self._counted: set[asyncio.Task[None]] = set()
        self._planned = False

    @property
    def idle(self) -> bool:
        return not self._asked and not self._under_way

    def ask(self, keys: Sequence[K]) -> asyncio.Future[Sequence[T]]:
        """Cancellation: safe."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[T]] = loop.create_future()
        self._asked.append((keys, future, OPERATION.get()))
        self._plan(loop)
        return future

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._planned or (self._most and len(self._counted) >= self._most):
            return
        if self._most and self._under_way and len(self._asked) < self._enough:
            if self._waiting is None:
                self._waiting = loop.call_later(self._patience_s, self._start)
            return
        self._planned = True
        loop.call_soon(self._start)

    def _start(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._planned = False
        asked, self._asked = self._asked, []
        self._begin(_group_lookups(asked))

    def _begin(self, parts: Sequence[_Batch[K, T]]) -> None:
        loop = asyncio.get_running_loop()
        for part in parts:
            context = copy_context()
            context.run(OPERATION.set, part.operation)
            context.run(MOST_TOGETHER.set, _MAX_SHARED_BYTES if part.together else 0)
            task = loop.create_task(self._run(part), context=context)
            self._under_way.add(task)
            if part.operation is None:
                self._counted.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._counted.discard(task)
        if self._asked:
            self._plan(asyncio.get_running_loop())

    async def _run(self, part: _Batch[K, T]) -> None:
        waiting = [each for each in part.asked if not each[1].done()]
        if not waiting:
            return
        try:
            found = await self._read([key for keys, _, _ in waiting for key in keys])
        except asyncio.CancelledError:
            # With the operation that it reads for: what waits for it is not left behind.
            for _, future, _ in waiting:
                future.cancel()
            raise
        except Exception as exc:
            if part.together and isinstance(exc, LargeRead):
                # Each operation is to account for what it has asked for.
                self._begin(_split_by_operation(waiting))
                return
            for _, future, _ in waiting:
                if not future.done():
                    future.set_exception(exc)
            return
        first = 0
        for keys, future, _ in waiting:
            if not future.done():
                future.set_result(found[first : first + len(keys)])
            first += len(keys)


# So many keys of an operation are read with those of others; what that takes counts for none,
# unless it is more than so many bytes.
_MAX_SHARED_KEYS = 20
_MAX_SHARED_BYTES = 1024 * 1024


def _group_lookups(asked: Sequence[_PendingLookup[K, T]]) -> list[_Batch[K, T]]:
    """Divide what was asked for into reads: an operation that asks for much has one of its own,
    which counts for it and ends with it."""
    parts = _split_by_operation(asked)
    if len(parts) <= 1:
        return parts
    small: list[_Batch[K, T]] = []
    large: list[_Batch[K, T]] = []
    for part in parts:
        few = sum(len(keys) for keys, _, _ in part.asked) <= _MAX_SHARED_KEYS
        (small if few else large).append(part)
    if len(small) <= 1:
        return parts
    together = [each for part in small for each in part.asked]
    return [_Batch(None, together, together=True), *large]


def _split_by_operation(asked: Sequence[_PendingLookup[K, T]]) -> list[_Batch[K, T]]:
    """Divide what was asked for by operation."""
    parts: dict[int, _Batch[K, T]] = {}
    for each in asked:
        operation = each[2]
        parts.setdefault(id(operation), _Batch(operation, [])).asked.append(each)
    return list(parts.values())


class BatchLoaders:
    """Those of a process, by what is read; those that nobody uses are forgotten.

    Attributes:
        asked: keys. reads: what they took.

    Args:
        under_way: of each.
        most: kept while nobody uses them.
    """

    def __init__(self, *, under_way: int = 3, most: int = 500) -> None:
        self._under_way = under_way
        self._most = most
        self._pools: dict[Hashable, BatchLoader[Any, Any]] = {}
        self.asked = 0
        self.reads = 0

    def ask(
        self, kind: Hashable, keys: Sequence[K], read: Read[K, T]
    ) -> asyncio.Future[Sequence[T]]:
        """Args:
        kind: equal where `read` reads the same.
        """
        pool = self._pools.get(kind)
        if pool is None:
            if len(self._pools) >= self._most:
                self._pools = {kind: each for kind, each in self._pools.items() if not each.idle}
            pool = self._pools[kind] = BatchLoader(self._counted(read), under_way=self._under_way)
        self.asked += len(keys)
        return pool.ask(keys)

    def _counted(self, read: Read[K, T]) -> Read[K, T]:
        def counted(keys: Sequence[K]) -> Awaitable[Sequence[T]]:
            self.reads += 1
            return read(keys)

        return counted
