"""The running operation of a client, as far as reads have to know it: whose it is, its execution
slot, and the memory that what it reads may take.

Recorders and other work of the process itself has none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

from revstream.streams.core.read_memory import LargeRead

__all__ = ["MOST_TOGETHER", "OPERATION", "Operation", "count_computed", "execution_suspended"]


class Operation(Protocol):
    """A query, mutation or subscription.

    Attributes:
        caller: "" where the caller has no name.
        read_bytes: what was read for it so far.
    """

    @property
    def caller(self) -> str: ...

    @property
    def read_bytes(self) -> int: ...

    def count_read(self, size: int, values: int) -> None:
        """Count bytes that were read for it, and the values that were decoded.

        Raises:
            LargeRead: it needs memory that others have: give back what was read, acquire memory,
                and read again.
            GatewayError: it has read more than it may.
        """

    async def acquire_memory(self) -> None:
        """Wait until the operation may read much, and so until it has ended."""

    def count_scanned(self, documents: int) -> None:
        """Count documents that MongoDB looks through for it without an index.

        Raises:
            GatewayError: there are more than it may have.
        """

    def count_values(self, count: int) -> None:
        """Count values that were made for it, beside those that are stored.

        Raises:
            GatewayError: there are more than it may have.
        """

    def reading(self) -> AbstractContextManager[None]:
        """Cancel the running task if the operation ends inside."""

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """Give the execution slot back, and take another one in the end.

        Raises:
            Unavailable: too many operations wait already.
        """


OPERATION: ContextVar[Operation | None] = ContextVar("operation", default=None)

MOST_TOGETHER: ContextVar[int] = ContextVar("most bytes of a read for several", default=0)
"""The most bytes that a read may bring that is made for several operations, and counts for none of
them: beyond it, it is a `LargeRead`. 0: no limit."""


@asynccontextmanager
async def execution_suspended() -> AsyncIterator[None]:
    """Hold no execution slot inside: waiting is not executing."""
    operation = OPERATION.get()
    if operation is None:
        yield
        return
    async with operation.suspended():
        yield


async def count_computed(size: int, values: int) -> None:
    """Count what the running operation has made of what it read; waits for memory if need be.

    Raises:
        GatewayError: it has more than it may.
    """
    operation = OPERATION.get()
    if operation is None:
        return
    try:
        operation.count_read(size, values)
    except LargeRead:
        await operation.acquire_memory()
        operation.count_read(size, values)
