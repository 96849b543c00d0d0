"""End tasks, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["ended"]


async def ended(*tasks: asyncio.Future[Any] | None) -> None:
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
            if each.done() and not each.cancelled():
                each.exception()  # seen
