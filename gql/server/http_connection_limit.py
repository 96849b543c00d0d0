"""The number of HTTP connections that the process holds: those that are no WebSockets (yet).

Guarantees: no more are open than may be, but for a few that may ask for its health alone. Over the
bound a connection that waits for its client (for a head, a body, the next request) makes room for
the one that comes, the one that has waited longest first; one whose response is under way does not.
What lies in their buffers for clients to read is bounded: over it, those that hold most are closed.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["HEALTH_PATHS", "RESERVE", "HttpConnections"]

HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are served where there is no room for anything else."""

RESERVE = 32
"""Connections beyond the bound, for the health of the process."""


class Closeable(Protocol):
    """A connection that can be closed at once."""

    def drop(self) -> None: ...

    def unread_bytes(self) -> int:
        """Return what its client has not taken yet."""


class HttpConnections:
    """The open HTTP connections of one process.

    Args:
        most: how many may be open; `RESERVE` more may ask for the process's health.
        most_bytes: what may lie in their buffers together.

    Attributes:
        refused: connections that were closed as they came, and requests that were answered with
            503, since no room could be made.
        displaced: connections that were closed to make room.
        unread: connections that were closed since their clients had not read too much.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self.most = most
        self.unread = 0
        self._most_bytes = most_bytes
        # Of those whose buffers are full, what was in them when that was looked at.
        self._unread: dict[Closeable, int] = {}
        self._unread_bytes = 0
        self.refused = 0
        self.displaced = 0
        # In the order in which they began to wait for their clients; and the others.
        self._waiting: dict[Closeable, None] = {}
        self._responding: dict[Closeable, None] = {}
        self._beyond: set[Closeable] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._responding)

    def open(self, connection: Closeable) -> bool:
        """Count a connection, which waits for a request. False where there is no room for it."""
        if len(self) >= self.most and self._waiting:
            longest = next(iter(self._waiting))
            self.displaced += 1
            self.close(longest)
            longest.drop()
        if len(self) >= self.most + RESERVE:
            self.refused += 1
            return False
        if len(self) >= self.most:
            self._beyond.add(connection)
        self._waiting[connection] = None
        return True

    def respond(self, connection: Closeable) -> None:
        """Note that a request has come as a whole."""
        if self._waiting.pop(connection, self) is None:
            self._responding[connection] = None

    def wait(self, connection: Closeable) -> None:
        """Note that a response is complete."""
        if self._responding.pop(connection, self) is None:
            self._waiting[connection] = None

    @property
    def unread_bytes(self) -> int:
        """About what lies in their buffers."""
        return self._unread_bytes

    def hold(self, connection: Closeable) -> None:
        """Note that a connection's buffer is full."""
        self._measure(connection)
        if self._unread_bytes > self._most_bytes:
            # Those that have read meanwhile hold less.
            for each in list(self._unread):
                self._measure(each)
        while self._unread_bytes > self._most_bytes:
            largest = max(self._unread, key=self._unread.__getitem__)
            self.unread += 1
            self.close(largest)
            largest.drop()

    def release(self, connection: Closeable) -> None:
        """Note that a connection's buffer is full no more."""
        self._unread_bytes -= self._unread.pop(connection, 0)

    def serves(self, connection: Closeable, path: str) -> bool:
        """Return whether a request may be handled; others are answered with 503."""
        if connection in self._beyond:
            if len(self) > self.most and path not in HEALTH_PATHS:
                self.refused += 1
                return False
            if len(self) <= self.most:
                self._beyond.discard(connection)
        return True

    def close(self, connection: Closeable) -> None:
        """Forget a connection that is closed, or has become a WebSocket."""
        self.release(connection)
        self._waiting.pop(connection, None)
        self._responding.pop(connection, None)
        self._beyond.discard(connection)

    def _measure(self, connection: Closeable) -> None:
        self.release(connection)
        self._unread[connection] = connection.unread_bytes()
        self._unread_bytes += self._unread[connection]
