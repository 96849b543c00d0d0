"""Batch loaders: lookups of single keys from many fields and requests, read with one command.

Guarantees: a read begins after all lookups that it serves, so that no result is older than that of
a separate read; the cancellation of one lookup does not affect the others; a failed read fails for
all lookups that it serves.
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
"""Keys, the future of their values, and the operation of the lookup."""


class _Batch(NamedTuple, Generic[K, T]):
    """Lookups that are read together.

    Attributes:
        operation: the operation to which the read counts; None for no operation.
        asked: the lookups.
        together: True if the lookups come from several operations.
    """

    operation: Operation | None
    asked: list[_PendingLookup[K, T]]
    together: bool = False


Read = Callable[[Sequence[K]], Awaitable[Sequence[T]]]


class BatchLoader(Generic[K, T]):
    """Loader that reads all lookups of one event-loop iteration with one call.

    While as many reads as allowed are in progress, lookups wait and are read together. Each lookup
    has one future for all its keys.

    Args:
        read: keys -> one value for each, in the same order.
        under_way: maximum number of concurrent reads that count to no operation; 0 for no maximum.
            Reads of one operation are limited by the limits of the operation.
        patience_s: maximum wait of a lookup for the end of a current read before another read
            begins. Most reads end sooner, and a larger batch costs less per key.
        enough: number of waiting lookups with which a read begins without a wait, if one more read
            is allowed.
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
        # The reads among them that count to no operation.
        self._counted: set[asyncio.Task[None]] = set()
        self._planned = False

    @property
    def idle(self) -> bool:
        return not self._asked and not self._under_way

    def ask(self, keys: Sequence[K]) -> asyncio.Future[Sequence[T]]:
        """Add a lookup to the next batch.

        Args:
            keys: n keys.

        Returns:
            A future of n values, in the order of the keys; it may be cancelled. Without keys it is
            done at once, and nothing is read.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[T]] = loop.create_future()
        if not keys:
            future.set_result([])
            return future
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
            # The operation was cancelled: its waiting lookups are cancelled too.
            for _, future, _ in waiting:
                future.cancel()
            raise
        except Exception as exc:
            if part.together and isinstance(exc, LargeRead):
                # Read again by operation, so that each one counts its own bytes.
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


# Maximum number of keys per operation that are read in a batch of several operations. Such a batch
# counts to no operation, unless it exceeds the maximum number of bytes.
_MAX_SHARED_KEYS = 20
_MAX_SHARED_BYTES = 1024 * 1024


def _group_lookups(asked: Sequence[_PendingLookup[K, T]]) -> list[_Batch[K, T]]:
    """Group lookups into batches.

    An operation with many keys gets a batch of its own, which counts to it and is cancelled with
    it.
    """
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
    """Group lookups by operation."""
    parts: dict[int, _Batch[K, T]] = {}
    for each in asked:
        operation = each[2]
        parts.setdefault(id(operation), _Batch(operation, [])).asked.append(each)
    return list(parts.values())


class BatchLoaders:
    """Batch loaders of a process by kind of lookup; idle ones are evicted.

    Attributes:
        asked: number of keys looked up.
        reads: number of reads for them.

    Args:
        under_way: see `BatchLoader`; per loader.
        most: number of loaders from which idle ones are evicted.
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
        """Add a lookup to the loader of its kind; see `BatchLoader.ask`.

        Args:
            kind: equal for lookups that may share a read.
            keys: n keys.
            read: keys -> one value for each, in the same order.
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
