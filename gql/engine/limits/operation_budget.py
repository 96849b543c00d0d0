"""Budget of one query or mutation: bytes that it reads, their memory, scanned documents, values.

The memory of the reads of all operations is bounded: only a few operations at once may read much,
at most half of them of one caller; the others wait. An operation that reads little never waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.fair_semaphore import FairSemaphore
from revstream.streams.core.read_memory import VALUE_BYTES, LargeRead

__all__ = ["OperationBudget", "OperationLimits", "large_read_slots"]

_LARGE_OPERATIONS = 4
_SMALL_BYTES = 2 * 1024 * 1024
"""Maximum memory of an operation's reads before it counts as large."""

_SCANNED_PER_COST = 1000
"""Number of scanned documents that take as long as one that is read and rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLimits:
    """Limits of each operation; 0: no limit.

    Attributes:
        read_bytes: bytes read from the database.
        process_read_bytes: approximate memory of the reads of all operations; one operation may use
            a quarter.
        cost: cost of its scans; `_SCANNED_PER_COST` scanned documents cost as much as one read.
        values: values that are computed for it, as by `diff`.
    """

    read_bytes: int = 0
    process_read_bytes: int = 0
    cost: int = 0
    values: int = 0


def large_read_slots(limits: OperationLimits) -> FairSemaphore:
    """Return the slots of a process for operations that read much."""
    slots = _LARGE_OPERATIONS if limits.process_read_bytes else 0
    return FairSemaphore(slots, per_caller=_LARGE_OPERATIONS // 2)


class OperationBudget:
    """Budget of one operation. See `streams.core.operation`.

    Args:
        large: slots of the operations that read much.
    """

    __slots__ = (
        "_acquiring",
        "_ended",
        "_held_bytes",
        "_is_large",
        "_large",
        "_limits",
        "_scanned",
        "_values",
        "caller",
        "read_bytes",
    )

    def __init__(self, limits: OperationLimits, large: FairSemaphore, caller: str) -> None:
        self.caller = caller
        self.read_bytes = 0
        self._limits = limits
        self._large = large
        # Approximate memory of the documents read.
        self._held_bytes = 0
        # The operation has a slot for large reads; or `_acquiring` waits for one.
        self._is_large = False
        self._acquiring: asyncio.Task[None] | None = None
        self._ended = False
        self._scanned = 0
        self._values = 0

    def count_read(self, size: int, values: int) -> None:
        """See `streams.core.operation`."""
        read, held = self.read_bytes + size, self._held_bytes + size + VALUE_BYTES * values
        most = self._limits.read_bytes
        if 0 < most < read:
            raise _too_much("bytes that the operation reads", "max_read_bytes", read, most)
        if held > _SMALL_BYTES:
            self._check_memory(held)
        # A read that is repeated after `LargeRead` must not count twice.
        self.read_bytes, self._held_bytes = read, held

    async def acquire_memory(self) -> None:
        """See `streams.core.operation`."""
        if self._is_large or self._ended:
            return
        if self._acquiring is None:
            acquire = self._large.acquire(self.caller)
            self._acquiring = asyncio.create_task(acquire, name="memory for reads")
        # Shielded: several reads wait for it, and one of them may be cancelled.
        await asyncio.shield(self._acquiring)
        self._is_large = True

    def count_scanned(self, documents: int) -> None:
        """See `streams.core.operation`."""
        self._scanned += documents
        cost, most = self._scanned // _SCANNED_PER_COST, self._limits.cost
        if 0 < most < cost:
            raise LimitExceeded(
                f"cost of the {self._scanned:,} documents that the operation reads without an "
                f"index: {cost:,}, maximum is {most:,}; filter and sort by fields that have one "
                "(@index)",
                limit="max_cost",
                asked=cost,
                bound=most,
            )

    def count_values(self, count: int) -> None:
        """See `streams.core.operation`."""
        self._values += count
        most = self._limits.values
        if 0 < most < self._values:
            raise LimitExceeded(
                f"values (changes, items of lists) that the operation requests: {self._values:,}, "
                f"maximum is {most:,}; request fewer at once",
                limit="max_values",
                asked=self._values,
                bound=most,
            )

    def end(self) -> None:
        """Release the memory slot."""
        self._ended = True
        acquiring = self._acquiring
        if acquiring is not None and not acquiring.done():
            # `acquire` returns the slot when it is cancelled.
            acquiring.cancel()
        elif acquiring is not None or self._is_large:
            self._large.release(self.caller)

    def _check_memory(self, held: int) -> None:
        most = self._limits.process_read_bytes // _LARGE_OPERATIONS
        if 0 < most < held:
            subject = "memory for the documents that the operation reads, in bytes"
            raise _too_much(subject, "max_process_read_bytes", held, most)
        # Reads of a failed operation need no slot: they are cancelled soon.
        if not (self._is_large or self._ended):
            if self._acquiring is not None or not self._large.try_acquire(self.caller):
                raise LargeRead
            self._is_large = True


def _too_much(subject: str, limit: str, asked: int, most: int) -> LimitExceeded:
    return LimitExceeded(
        f"{subject}: {asked:,}, maximum is {most:,}; "
        "request smaller pages (first, last), or fewer fields",
        limit=limit,
        asked=asked,
        bound=most,
    )
