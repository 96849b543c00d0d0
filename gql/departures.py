"""Responses that are made in the same turn of the event loop leave together, at its end.

A client on another core goes to sleep between two that come some microseconds apart, and to wake it
up costs the one who writes: to write to all of them in a row takes less, and they are read in a
row, too.

Guarantees: what waits for a connection leaves before anything else is written to it, or it closes.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

import asyncio

__all__ = ["Departures"]


class Departures:
    """Of one process.

    Attributes:
        waiting: what is about to leave, by connection.
    """

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Transport, bytes] = {}

    def add(self, transport: asyncio.Transport, response: bytes) -> None:
        """To be written in a moment."""
        if transport in self.waiting:
            self.hurry(transport)
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self._leave)
        self.waiting[transport] = response

    def hurry(self, transport: asyncio.Transport) -> None:
        """Write at once what waits for a connection, if anything does."""
        response = self.waiting.pop(transport, None)
        if response is not None and not transport.is_closing():
            transport.write(response)

    def _leave(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for transport, response in waiting.items():
            if not transport.is_closing():
                transport.write(response)
