"""A client that takes nothing of what is sent to it is cut off after a while; one that is slow is
not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["SlowClientTimeout"]


class SlowClientTimeout:
    """Of one connection.

    Args:
        most_s: how long its client may take nothing.
        stalled: called before it is cut off.
    """

    def __init__(self, most_s: float, stalled: Callable[[], None]) -> None:
        self._most_s = most_s
        self._stalled = stalled
        self._timer: asyncio.TimerHandle | None = None
        # What would wait if nothing had been taken.
        self._untaken_bytes = 0

    def watch(self, transport: asyncio.Transport) -> None:
        """Its buffer is full."""
        self.end()
        self._untaken_bytes = transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._most_s, self._look, transport)

    def add(self, size_bytes: int) -> None:
        """So much more was written to it all the same."""
        self._untaken_bytes += size_bytes

    def end(self) -> None:
        """There is room again, or it is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, transport: asyncio.Transport) -> None:
        if transport.get_write_buffer_size() < self._untaken_bytes:
            # It is slow.
            self.watch(transport)
            return
        self._stalled()
        transport.abort()
