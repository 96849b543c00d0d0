"""How often thousands are told something: where telling all of them takes most of the time, two
events are told at once.

Who is told two at once is written to once. So where there is less to spare than a quarter of the
time, an event waits for the next one, which leaves time for everything else, and nobody falls
behind further and further. Where there is more, none waits.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from gql.told import Told
from streams.tasks import ended

__all__ = ["Pace", "paced"]

# What takes less is no trouble, however often it comes.
_LEAST_S = 0.005
_MOST_SHARE = 0.75
# So many times as long as telling took, the next event is waited for at most.
_PATIENCE = 2.0


class Pace:
    """Args:
    clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._took_s = self._every_s = 0.0

    def begin(self) -> None:
        """All are told something."""
        before, self._began = self._began, self._clock()
        self._every_s = self._began - before

    def end(self) -> None:
        """All have been."""
        self._took_s = self._clock() - self._began

    @property
    def patience_s(self) -> float:
        """How long an event waits for the next one."""
        if self._took_s < _LEAST_S or self._took_s < _MOST_SHARE * self._every_s:
            return 0.0
        return _PATIENCE * self._took_s


async def paced(
    parts: AsyncGenerator[Sequence[Told]], patience_s: Callable[[], float]
) -> AsyncGenerator[Sequence[Told]]:
    """The same parts; events that wait come with those of the next part.

    Args:
        patience_s: asked at each part of events.
    """
    upcoming: asyncio.Future[Sequence[Told]] | None = None
    try:
        while True:
            try:
                part = await (anext(parts) if upcoming is None else upcoming)
            except StopAsyncIteration:
                return
            upcoming = None
            wait_s = patience_s() if part[-1].counts else 0.0
            if wait_s:
                upcoming = asyncio.ensure_future(anext(parts))
                await asyncio.wait({upcoming}, timeout=wait_s)
                # What went wrong is told behind what came before.
                if upcoming.done() and not upcoming.exception() and upcoming.result()[-1].counts:
                    part = [*part, *upcoming.result()]
                    upcoming = None
            yield part
    finally:
        await ended(upcoming)
