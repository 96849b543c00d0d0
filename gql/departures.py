"""Responses that are made in the same turn of the event loop leave together, at its end.

A client on another core goes to sleep between two that come some microseconds apart, and to wake it
up costs the one who writes: to write to all of them in a row takes less, and they are read in a
row, too.

Guarantees: what waits for a connection leaves before anything else is written to it, or it closes.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gql.outlets import Outlet

__all__ = ["Departures", "ResponseOutlet"]


class Departures:
    """Of one process.

    Attributes:
        waiting: what is about to leave, by connection.
    """

    def __init__(self) -> None:
        self.waiting: dict[Outlet, bytes] = {}

    def add(self, outlet: Outlet, response: bytes) -> None:
        """To be written in a moment."""
        if outlet in self.waiting:
            self.hurry(outlet)
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self._leave)
        self.waiting[outlet] = response

    def hurry(self, outlet: Outlet) -> None:
        """Write at once what waits for a connection, if anything does."""
        response = self.waiting.pop(outlet, None)
        if response is not None:
            _write(outlet, response)

    def _leave(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for outlet, response in waiting.items():
            _write(outlet, response)


class ResponseOutlet(Outlet):
    """Of a connection that responses leave by."""

    __slots__ = ("departures",)

    def __init__(self, unless_full: Callable[[bytes], bool], departures: Departures) -> None:
        super().__init__(unless_full)
        self.departures = departures


def _write(outlet: Outlet, response: bytes) -> None:
    transport = outlet.transport
    # However much waits: it was asked for.
    if not (transport.is_closing() or outlet.write(response)):
        transport.write(response)
