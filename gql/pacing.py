"""When thousands are told something: whoever would be told late is told two events at once.

Who is told two at once is written to once, so that telling both takes hardly longer than telling
one. Where telling all takes nearly as long as the next event takes to come, what delays it once
delays all that follows, each by a little less or a little more than the one before. So an event
that comes while others are still told the last one waits for the next, and that one is in time.
Who is in time waits for nothing.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from gql.told import Told
from streams.tasks import ended

__all__ = ["paced", "patience_s"]

# What takes less is no trouble, however often it comes.
_LEAST_S = 0.005
# Of the time that telling takes: who is late by less catches up, or is noticed with the next one.
_LATE = 0.2


def patience_s(late_s: float, every_s: float, took_s: float) -> float:
    """How long an event waits for the next one; no longer than telling it would take.

    Args:
        late_s: how long it is known.
        every_s: by how much the one before it was known earlier.
        took_s: how long it took to tell that one to all.
    """
    if took_s < _LEAST_S or late_s < _LATE * took_s:
        return 0.0
    # One that comes so seldom is not late for long, and one so soon would be here.
    return took_s if late_s < every_s <= 2 * took_s else 0.0


async def paced(
    parts: AsyncGenerator[Sequence[Told]],
    waits: Callable[[], bool],
    patience_s: Callable[[float, float, float], float] = patience_s,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Sequence[Told]]:
    """The same parts; events that wait come with those of the next part.

    Args:
        waits: whether any event is to wait, asked at each part.
        patience_s: of events that do: see `patience_s`.
        clock: as `ChangeEvent.heard_at`, in seconds.
    """
    upcoming: asyncio.Future[Sequence[Told]] | None = None
    heard_at = took_s = 0.0
    try:
        while True:
            try:
                part = await (anext(parts) if upcoming is None else upcoming)
            except StopAsyncIteration:
                return
            upcoming = None
            if part[-1].counts:
                every_s, heard_at = part[0].heard_at - heard_at, part[-1].heard_at
                late_s = clock() - part[0].heard_at
                wait_s = patience_s(late_s, every_s, took_s) if waits() else 0.0
                if wait_s:
                    upcoming = asyncio.ensure_future(anext(parts))
                    await asyncio.wait({upcoming}, timeout=wait_s)
                    # What went wrong is told behind what came before.
                    if upcoming.done() and not upcoming.exception():
                        more = upcoming.result()
                        if more[-1].counts:
                            part, upcoming, heard_at = [*part, *more], None, more[-1].heard_at
            began = clock()
            yield part
            took_s = clock() - began
    finally:
        await ended(upcoming)
