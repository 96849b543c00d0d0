"""Where frames that are ready leave, without waiting.

Thousands are written to for each event, and what is done once for each of them is most of what an
event costs. So frames, and short responses, are handed to the system's `send` by themselves, where
nothing that was written before waits: a transport comes to the same call by a longer way, and looks
into more memory that nobody has looked into since the last event. What the system does not take at
once, and whatever it says is wrong, is the transport's.

Guarantees: nothing leaves before what was written earlier, nor once the connection is lost.

Source: docs/decisions/0028-shared-subscriptions.md; send(2).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from uvloop.loop import TCPTransport  # type: ignore[attr-defined]  # not in its stubs

__all__ = ["OUTLET", "Outlet"]

OUTLET = "revstream.outlet"
"""Among the extensions of a scope: the `Outlet` of its connection."""


class Outlet:
    """Of one connection. One small object, since those of thousands of connections are looked at
    for each event.

    Attributes:
        transport: once it is open.
    """

    __slots__ = ("_flows", "_send", "_send_now", "_unless_full", "transport")

    transport: asyncio.Transport

    def __init__(self, unless_full: Callable[[bytes], bool]) -> None:
        """Args:
        unless_full: writes where something waits already, as `write`.
        """
        self._unless_full: Callable[[bytes], bool] | None = unless_full
        self._flows = False
        # The system's, and the same while nothing waits to be sent before.
        self._send: Callable[[bytes], int] | None = None
        self._send_now: Callable[[bytes], int] | None = None

    def open(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.resume()

    def succeed(self, other: Outlet) -> None:
        """To another one of the same connection, which is closed: it was hastened or not."""
        self._send = other._send
        other.close()

    def hasten(self) -> None:
        """It is about to be written to again and again."""
        if self._send is None and self._flows and isinstance(self.transport, TCPTransport):
            self._send_now = self._send = _Lent.by(self.transport).send
            # Its protocol is told as soon as anything waits, and pauses this.
            self.transport.set_write_buffer_limits(high=0)

    def pause(self) -> None:
        """The transport's buffer is full, or nothing is to be sent any more."""
        self._flows = False
        self._send_now = None

    def resume(self) -> None:
        self._flows = True
        self._send_now = self._send

    @property
    def hastens(self) -> bool:
        """Whether frames go past its transport now."""
        return self._send_now is not None

    def close(self) -> None:
        """The connection is lost: its descriptor may be another's from here on."""
        self.pause()
        # It would refer to itself, and stay until the garbage collector has found it.
        self._unless_full = self._send = None

    def write(self, frame: bytes) -> bool:
        """To one that is closed, nothing. False where too much of what was sent is not taken."""
        send = self._send_now
        if send is not None:
            try:
                sent = send(frame)
            except OSError:
                # No room, or no connection: the transport is told so, too.
                sent = 0
            if sent < len(frame):
                self.transport.write(frame[sent:])
            return True
        if self._flows:
            self.transport.write(frame)
            return True
        return self._unless_full is None or self._unless_full(frame)


class _Lent(socket.SocketType):
    """A transport's descriptor, which is the transport's to close."""

    __slots__ = ()

    @classmethod
    def by(cls, transport: asyncio.Transport) -> _Lent:
        of = transport.get_extra_info("socket")
        return cls(of.family, of.type, of.proto, of.fileno())

    def __del__(self) -> None:
        self.detach()
