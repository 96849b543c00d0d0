"""End tasks, whoever is cancelled meanwhile, and forget where they were."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

__all__ = ["cancel_and_wait", "retrieve_exception"]


async def cancel_and_wait(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel them and wait until all have ended, whatever they raise. Who is cancelled while
    waiting is cancelled, once they have: awaiting a task itself, one could not tell whose
    cancellation it is that comes out."""
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
    """Of one that is done: nobody need be told what it has raised.

    One that was cancelled keeps where it was until it is asked for that, and with it all that was
    known there: the task itself, too, where a time limit was, so that only the garbage collector
    would find it.
    """
    with suppress(asyncio.CancelledError):
        task.exception()
