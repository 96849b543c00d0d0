"""The running operation of a client, as the reading code sees it: caller, execution slot, memory.

Background work of the process itself, such as a recorder, has no operation.
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
        caller: Name of the caller; "" where it has none.
        read_bytes: Number of bytes read for the operation so far.
    """

    @property
    def caller(self) -> str: ...

    @property
    def read_bytes(self) -> int: ...

    def count_read(self, size: int, values: int) -> None:
        """Count bytes that were read for the operation, and the values that were decoded.

        Raises:
            LargeRead: The operation needs memory that others hold: free what was read, acquire
                memory, and
                read again.
            GatewayError: The operation has read more than its limit.
        """

    async def acquire_memory(self) -> None:
        """Wait until the operation may hold a large result; the memory is released when it ends."""

    def count_scanned(self, documents: int) -> None:
        """Count documents that MongoDB examines for the operation without an index.

        Raises:
            GatewayError: More than the operation's limit.
        """

    def count_values(self, count: int) -> None:
        """Count values that were computed for the operation, in addition to stored ones.

        Raises:
            GatewayError: More than the operation's limit.
        """

    def reading(self) -> AbstractContextManager[None]:
        """Cancel the running task if the operation ends inside this context."""

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """Give the execution slot back, and take another one at the end.

        Raises:
            Unavailable: Too many operations wait already.
        """


OPERATION: ContextVar[Operation | None] = ContextVar("operation", default=None)

MOST_TOGETHER: ContextVar[int] = ContextVar("most bytes of a read for several", default=0)
"""Maximum bytes of a read that serves several operations and counts for none of them.

A larger read raises `LargeRead`. 0 means no limit.
"""


@asynccontextmanager
async def execution_suspended() -> AsyncIterator[None]:
    """Hold no execution slot inside this context: waiting is not executing."""
    operation = OPERATION.get()
    if operation is None:
        yield
        return
    async with operation.suspended():
        yield


async def count_computed(size: int, values: int) -> None:
    """Count what the running operation has computed; wait for memory if it is much.

    Raises:
        GatewayError: More than the operation's limit.
    """
    operation = OPERATION.get()
    if operation is None:
        return
    try:
        operation.count_read(size, values)
    except LargeRead:
        await operation.acquire_memory()
        operation.count_read(size, values)
