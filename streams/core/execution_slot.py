"""Execution slot of the running operation, given back while the operation only waits.

The limiter of operations lives in another package; reads that wait for the archive know it by this
context variable alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

__all__ = ["EXECUTION_SLOT", "ExecutionSlot", "execution_suspended"]


class ExecutionSlot(Protocol):
    """Permission to execute."""

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """Give the slot back, and take another one in the end.

        Raises:
            Unavailable: too many operations wait already.
        """


EXECUTION_SLOT: ContextVar[ExecutionSlot | None] = ContextVar("execution slot", default=None)


@asynccontextmanager
async def execution_suspended() -> AsyncIterator[None]:
    """Hold no execution slot inside: waiting is not executing."""
    slot = EXECUTION_SLOT.get()
    if slot is None:
        yield
        return
    async with slot.suspended():
        yield
