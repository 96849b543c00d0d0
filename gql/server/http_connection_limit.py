"""Limit for the HTTP connections of the process, without WebSockets.

Guarantees: at most `most` connections are open, and `RESERVE` more that may only request the health
paths. At the limit, the connection that has waited longest for its client (a head, a body, the next
request) is closed for the new one; a connection with an unfinished response is not. Unread bytes
are limited in total: above the limit the connections with most unread bytes are closed.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["HEALTH_PATHS", "RESERVE", "HttpConnections"]

HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are served even at the limit."""

RESERVE = 32
"""Connections beyond the limit, for the health paths."""


class Closeable(Protocol):
    """A connection that can be closed at once."""

    def drop(self) -> None: ...

    def unread_bytes(self) -> int:
        """Return the number of bytes that the client has not read."""


class HttpConnections:
    """Registry of the open HTTP connections of one process.

    Args:
        most: maximum of open connections; `RESERVE` more may request the health paths.
        most_bytes: maximum of unread bytes in all buffers.

    Attributes:
        refused: connections closed on arrival, and requests answered with 503, for lack of room.
        displaced: connections that were closed to make room.
        unread: connections that were closed because of their unread bytes.
    """

    def __init__(self, *, most: int, most_bytes: int) -> None:
        self.most = most
        self.unread = 0
        self._most_bytes = most_bytes
        # Unread bytes of connections with full buffers, when last measured.
        self._unread: dict[Closeable, int] = {}
        self._unread_bytes = 0
        self.refused = 0
        self.displaced = 0
        # Connections in the order in which they began to wait for their clients; and the others.
        self._waiting: dict[Closeable, None] = {}
        self._responding: dict[Closeable, None] = {}
        self._beyond: set[Closeable] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._responding)

    def open(self, connection: Closeable) -> bool:
        """Register a connection that waits for a request; return False if there is no room."""
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
        """Register that a request is complete."""
        if self._waiting.pop(connection, self) is None:
            self._responding[connection] = None

    def wait(self, connection: Closeable) -> None:
        """Register that a response is complete."""
        if self._responding.pop(connection, self) is None:
            self._waiting[connection] = None

    @property
    def unread_bytes(self) -> int:
        """Return the approximate number of unread bytes in all buffers."""
        return self._unread_bytes

    def hold(self, connection: Closeable) -> None:
        """Register that the buffer of a connection is full."""
        self._measure(connection)
        if self._unread_bytes > self._most_bytes:
            # Clients may have read meanwhile.
            for each in list(self._unread):
                self._measure(each)
        while self._unread_bytes > self._most_bytes:
            largest = max(self._unread, key=self._unread.__getitem__)
            self.unread += 1
            self.close(largest)
            largest.drop()

    def release(self, connection: Closeable) -> None:
        """Register that the buffer of a connection is no longer full."""
        self._unread_bytes -= self._unread.pop(connection, 0)

    def serves(self, connection: Closeable, path: str) -> bool:
        """Return True if a request may be handled; others are answered with 503."""
        if connection in self._beyond:
            if len(self) > self.most and path not in HEALTH_PATHS:
                self.refused += 1
                return False
            if len(self) <= self.most:
                self._beyond.discard(connection)
        return True

    def close(self, connection: Closeable) -> None:
        """Remove a connection that is closed, or has become a WebSocket."""
        self.release(connection)
        self._waiting.pop(connection, None)
        self._responding.pop(connection, None)
        self._beyond.discard(connection)

    def _measure(self, connection: Closeable) -> None:
        self.release(connection)
        self._unread[connection] = connection.unread_bytes()
        self._unread_bytes += self._unread[connection]
