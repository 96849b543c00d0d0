"""Cancellation of tasks, and release of what a finished task refers to."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

__all__ = ["cancel_and_wait", "retrieve_exception"]


async def cancel_and_wait(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait until all have ended, whatever they raise.

    A caller that is cancelled while it waits raises that after all have ended. Awaiting a task
    itself
    would not tell the two cancellations apart.
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
                retrieve_exception(each)


def retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a finished task, so that asyncio does not report it.

    A cancelled task keeps its traceback until the exception is retrieved, and with it all local
    variables, among them the task itself under a timeout: only the garbage collector would free it.
    """
    with suppress(asyncio.CancelledError):
        task.exception()
