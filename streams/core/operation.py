"""The running operation of a client, as far as reads have to know it: whose it is, its execution
slot, and the bytes that it may read.

Recorders and other work of the process itself has none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

__all__ = ["OPERATION", "Operation", "execution_suspended"]


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

    def count_read(self, size: int) -> None:
        """Count bytes that were read for it.

        Raises:
            GatewayError: it has read more than it may.
        """

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


@asynccontextmanager
async def execution_suspended() -> AsyncIterator[None]:
    """Hold no execution slot inside: waiting is not executing."""
    operation = OPERATION.get()
    if operation is None:
        yield
        return
    async with operation.suspended():
        yield
