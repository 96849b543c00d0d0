"""Cancellation of tasks, and release of what a finished task refers to."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from revstream.streams.core.errors import GatewayError

__all__ = ["cancel_and_wait", "retrieve_exception"]

log = logging.getLogger(__name__)

# What an operation is refused with, and the end of a generator.
_NO_FAULTS = (GatewayError, StopAsyncIteration)


async def cancel_and_wait(
    *tasks: asyncio.Future[Any] | None, expected: tuple[type[BaseException], ...] = ()
) -> None:
    """Cancel tasks and wait until all have ended; log the faults that they raise.

    A caller that is cancelled while it waits raises that after all have ended. Awaiting a task
    itself would not tell the two cancellations apart.

    Args:
        expected: see `retrieve_exception`.
    """
    going = [each for each in tasks if each is not None]
    if not going:
        return
    for each in going:
        each.cancel()
    try:
        await asyncio.wait(going)
    except asyncio.CancelledError:
        await asyncio.wait(going)
        raise
    finally:
        for each in going:
            if each.done():
                retrieve_exception(each, expected)


def retrieve_exception(
    task: asyncio.Future[Any], expected: tuple[type[BaseException], ...] = ()
) -> None:
    """Retrieve the exception of a task that is done and that no caller awaits; log a fault.

    A fault that the caller is raising was awaited, and is not logged again.

    A cancelled task keeps its traceback until the exception is retrieved, and with it all local
    variables, among them the task itself under a timeout: only the garbage collector would free it.

    Args:
        expected: exceptions that are no fault, beside those of `streams.core.errors`.
    """
    try:
        raised = task.exception()
    except asyncio.CancelledError:
        return
    if raised is None or isinstance(raised, (*_NO_FAULTS, *expected)) or _is_being_raised(raised):
        return
    log.error("task failed", exc_info=raised)


def _is_being_raised(raised: BaseException) -> bool:
    """Return whether the calling code is raising an exception, or another one because of it."""
    waiting, seen = [sys.exception()], list[BaseException]()
    while waiting:
        each = waiting.pop()
        if each is raised:
            return True
        if each is not None and each not in seen:
            seen.append(each)
            waiting += each.__cause__, each.__context__
    return False
