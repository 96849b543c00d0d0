"""Limits on concurrent reads of clients: lookups and indexed pages never wait for scans.

The class of a read follows from its query and the existing indexes. Each class has slots of its
own, granted to callers in turn. A scan of few documents takes a slot of the indexed reads. An
indexed read that takes long is repeated as a scan, since a walk over a whole index is a scan too.
Reads of the process itself, such as those of recorders, are not limited.
"""

from __future__ import annotations

import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import asynccontextmanager
from enum import Enum
from traceback import clear_frames
from typing import Any, TypeVar

from revstream.streams.core.errors import GatewayError, TimeLimit
from revstream.streams.core.fair_semaphore import FairSemaphore
from revstream.streams.core.operation import OPERATION, Operation
from revstream.streams.core.read_memory import LargeRead

__all__ = ["READ_SLOTS", "ReadClass", "ReadLimiter"]

T = TypeVar("T")
Query = Mapping[str, Any]
Sort = Sequence[tuple[str, int]]

_QUICK_MS = 500
"""Maximum duration of an indexed read before it counts as a scan."""

_FEW_IDS = 100
"""Maximum number of ids in a lookup: more of them take some milliseconds."""

_FEW_DOCUMENTS = 10_000
"""Maximum size of a collection whose scan counts as indexed: it takes some milliseconds."""

_LONG_S = 60.0

_EQUAL = frozenset({"$eq", "$in"})
_RANGES = frozenset({"$gt", "$gte", "$lt", "$lte"})


class ReadClass(Enum):
    """Class of a read by its expected cost."""

    LOOKUP = "lookup"
    INDEXED = "indexed"
    SCAN = "scan"


_SLOTS = {ReadClass.LOOKUP: (6, 6), ReadClass.INDEXED: (8, 6), ReadClass.SCAN: (4, 2)}
"""Maximum concurrent reads by class: in total, and of one caller."""

READ_SLOTS = sum(slots for slots, _ in _SLOTS.values())

_DRIVER_SLOTS = {ReadClass.LOOKUP: (6, 6), ReadClass.INDEXED: (4, 3), ReadClass.SCAN: (2, 1)}
"""Of these, reads through the driver's cursors: Motor has few threads, and leases need them too."""


class ReadLimiter:
    """Concurrency limits and read classes of one database.

    Attributes:
        indexes: Paths of each index in index order, by collection; the `_id` index is left out.
        sizes: Approximate number of documents, by collection.
    """

    def __init__(self) -> None:
        self.indexes: dict[str, Sequence[Sequence[str]]] = {}
        self.sizes: dict[str, int] = {}
        self._slots = _semaphores(_SLOTS)
        self._driver = _semaphores(_DRIVER_SLOTS)
        # Small collections whose scan took long, with the time until which they count as large.
        self._long: dict[str, float] = {}

    @asynccontextmanager
    async def driver_slot(self, read_class: ReadClass) -> AsyncIterator[None]:
        """Hold a slot of the driver for a read of the running operation, inside `run`."""
        operation = OPERATION.get()
        if operation is None:
            yield
            return
        async with self._driver[read_class].slot(operation.caller):
            yield

    async def run(
        self,
        read_class: ReadClass,
        attempt: Callable[[int, ReadClass], Awaitable[T]],
        limit_ms: int,
        collection: str | None = None,
    ) -> T:
        """Run a read of the running operation, in its caller's turn.

        Args:
            read_class: The expected class.
            attempt: Reads within a number of milliseconds, as a read of a class.
            limit_ms: Time limit of the read.
            collection: The collection that a scan reads completely; None if it reads no collection.

        Raises:
            TimeLimit: The read took longer than `limit_ms`.
            LimitExceeded: The operation has scanned more documents than its limit.
        """
        operation = OPERATION.get()
        if operation is None:
            return await attempt(limit_ms, read_class)
        with operation.reading():
            try:
                return await self._run(operation, read_class, attempt, limit_ms, collection)
            except LargeRead as exc:
                _free(exc)
            except GatewayError as exc:
                _free(exc)
                raise
            # Wait for memory without a slot, so that others can read. The scanned documents are
            # counted already.
            await operation.acquire_memory()
            return await self._run(operation, read_class, attempt, limit_ms, None)

    async def _run(
        self,
        operation: Operation,
        read_class: ReadClass,
        attempt: Callable[[int, ReadClass], Awaitable[T]],
        limit_ms: int,
        collection: str | None,
    ) -> T:
        documents = 0 if collection is None else self.sizes.get(collection, 0)
        quick = read_class is ReadClass.INDEXED
        if read_class is ReadClass.SCAN:
            operation.count_scanned(documents)
            quick = 0 < documents <= _FEW_DOCUMENTS and not self._is_long(collection)
        if quick and limit_ms > _QUICK_MS:
            try:
                return await self._in_turn(operation, ReadClass.INDEXED, attempt, _QUICK_MS)
            except TimeLimit:
                if read_class is ReadClass.INDEXED:
                    operation.count_scanned(documents)
                elif collection is not None:
                    # Few documents, but large ones.
                    self._long[collection] = time.monotonic() + _LONG_S
                read_class = ReadClass.SCAN
        return await self._in_turn(operation, read_class, attempt, limit_ms)

    async def _in_turn(
        self,
        operation: Operation,
        read_class: ReadClass,
        attempt: Callable[[int, ReadClass], Awaitable[T]],
        limit_ms: int,
    ) -> T:
        slots = self._slots[read_class]
        if not slots.try_acquire(operation.caller):
            await slots.acquire(operation.caller)
        try:
            return await attempt(limit_ms, read_class)
        finally:
            slots.release(operation.caller)

    def _is_long(self, collection: str | None) -> bool:
        return collection is not None and self._long.get(collection, 0.0) > time.monotonic()

    def class_of_find(self, collection: str, query: Query, sort: Sort, limit: int) -> ReadClass:
        """Return the class of a `find` command."""
        indexes = [("_id",), *self.indexes.get(collection, ())]
        conditions = list(_conditions(query))
        if any(path == "_id" and _is_lookup(value) for path, value in conditions):
            return ReadClass.LOOKUP
        if _is_bounded(conditions, {each[0] for each in indexes}):
            return ReadClass.INDEXED
        if conditions or not limit:
            return ReadClass.SCAN
        ordered = tuple(path for path, _ in sort)
        walked = any(tuple(each[: len(ordered)]) == ordered for each in indexes)
        return ReadClass.INDEXED if walked else ReadClass.SCAN

    def class_of_pipeline(
        self, collection: str | None, pipeline: Sequence[Mapping[str, Any]]
    ) -> ReadClass:
        """Return the class of a pipeline that begins with keys or with `$match`."""
        first = pipeline[0] if pipeline else {}
        if collection is None or ("$match" not in first and "$sort" not in first):
            return ReadClass.INDEXED if collection is None else ReadClass.SCAN
        query = first.get("$match", {})
        rest = pipeline[1:] if "$match" in first else pipeline
        sort = rest[0].get("$sort", {}) if rest else {}
        limited = any("$limit" in each for each in rest[:2])
        return self.class_of_find(collection, query, list(sort.items()), int(limited))


def _free(exc: Exception) -> None:
    """Free what a failed read has loaded.

    An error in a response keeps its traceback until garbage collection, and with it a page of
    megabytes.
    """
    clear_frames(exc.__traceback__)


def _semaphores(slots: Mapping[ReadClass, tuple[int, int]]) -> dict[ReadClass, FairSemaphore]:
    return {each: FairSemaphore(*counts) for each, counts in slots.items()}


def _conditions(query: Query) -> Iterator[tuple[str, Any]]:
    """Yield the conditions that must all hold."""
    for path, value in query.items():
        if path == "$and":
            for each in value:
                yield from _conditions(each)
        else:
            yield path, value


def _is_bounded(conditions: Iterable[tuple[str, Any]], first: Set[str]) -> bool:
    """Return whether an index leads to few more documents than match.

    Args:
        first: The first path of each index.
    """
    kinds = set()
    for path, value in conditions:
        if path == "$text":
            return True
        # The filter of a cursor over several fields has this form.
        if path == "$or" and all(_is_bounded(_conditions(each), first) for each in value):
            return True
        kind = _kind(value) if path in first else "other"
        if kind == "equal":
            return True
        kinds.add(kind)
    # Other conditions would be checked on each document of the range.
    return kinds == {"range"}


def _is_lookup(value: Any) -> bool:
    if isinstance(value, Mapping) and "$in" in value:
        return len(value["$in"]) <= _FEW_IDS
    return _kind(value) == "equal"


def _kind(value: Any) -> str:
    if not isinstance(value, Mapping):
        return "equal"
    operators = value.keys()
    if not _EQUAL.isdisjoint(operators):
        return "equal"
    if "$geoWithin" in operators:
        return "other" if "$box" in value["$geoWithin"] else "equal"
    text = value.get("$regex")
    if (operators and operators <= _RANGES) or (isinstance(text, str) and text.startswith("^")):
        return "range"
    return "other"
