"""Timeout for clients that read nothing; a client that reads slowly is not disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["SlowClientTimeout"]


class SlowClientTimeout:
    """Timeout of one connection.

    Args:
        most_s: maximum time without any read by the client.
        stalled: called before the connection is closed.
    """

    def __init__(self, most_s: float, stalled: Callable[[], None]) -> None:
        self._most_s = most_s
        self._stalled = stalled
        self._timer: asyncio.TimerHandle | None = None
        # Size of the buffer if the client had read nothing.
        self._untaken_bytes = 0

    def watch(self, transport: asyncio.Transport) -> None:
        """Start the timeout: the buffer of the connection is full."""
        self.end()
        self._untaken_bytes = transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._most_s, self._look, transport)

    def add(self, size_bytes: int) -> None:
        """Count bytes that were written to the full buffer."""
        self._untaken_bytes += size_bytes

    def end(self) -> None:
        """Stop the timeout: there is room again, or the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, transport: asyncio.Transport) -> None:
        if transport.get_write_buffer_size() < self._untaken_bytes:
            # The client is slow, but reads.
            self.watch(transport)
            return
        self._stalled()
        transport.abort()
