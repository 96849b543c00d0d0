"""Thousands of subscribing WebSockets in one thread, which counts 100,000 frames a second with half
of a core.

Implements graphql-transport-ws (PROTOCOL.md of graphql-ws) as a client: the handshake,
`connection_init`, the server's ack, `subscribe`. Only the heads of later frames are read (RFC 6455,
5.2); for some sockets the texts are kept with their arrival times. These sockets are read first:
real subscribers run on machines of their own and do not wait for one another. Linux only.
"""

from __future__ import annotations

import errno
import json
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["BIN_NS", "Link", "Links", "text_frame"]

BIN_NS = 50_000_000
"""Frames are counted in bins of 50 ms."""

_READ_BYTES = 65536
# Reads of other sockets between two looks at the sockets whose times are kept.
_BETWEEN = 8
_TEXT, _PING, _CLOSE = 0x81, 0x89, 0x88
_NOTHING = b'"product":null'
"""The end of a checkpoint event, which is not counted."""
_AWAKENED = b'"stock":0}'
"""The end of an event that only shows that a subscription has begun. It may arrive long after
the others."""
_END_BYTES = 100
_INIT = json.dumps({"type": "connection_init"}).encode()
_CONNECTING, _SHAKING, _STARTING, _LIVE = range(4)


def text_frame(text: bytes, opcode: int = _TEXT) -> bytes:
    """Return a whole message of a client, with a mask of zeros."""
    size = len(text)
    if size < 126:
        head = bytes((opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((opcode, 0x80 | 126)) + size.to_bytes(2)
    else:
        head = bytes((opcode, 0x80 | 127)) + size.to_bytes(8)
    return head + b"\0\0\0\0" + text


class Link:
    """One WebSocket.

    Args:
        kept: the list for its texts and their arrival in nanoseconds; None to count them only.

    Attributes:
        first_ns: arrival of its first text; 0 before that.
    """

    __slots__ = ("first_ns", "kept", "number", "plain", "rest", "stage", "subscribe")

    def __init__(
        self, number: int, payload: Mapping[str, Any], kept: list[tuple[int, bytes]] | None
    ) -> None:
        self.number = number
        self.kept = kept
        # As long as typical ids of clients.
        start = {"id": f"{number:036d}", "type": "subscribe", "payload": payload}
        self.subscribe = text_frame(json.dumps(start).encode())
        self.plain = socket.socket()
        self.rest = b""
        self.stage = _CONNECTING
        self.first_ns = 0


class Links:
    """All WebSockets. Call `turn` repeatedly.

    Args:
        on_lost: called with a link that the server refused or closed.

    Attributes:
        subscribed: the number of subscriptions sent.
        arrived: the number of links that have received a text.
        texts: the number of texts on all links.
        counts: texts by `BIN_NS` of the monotonic clock, without those that only awaken.
    """

    def __init__(self, address: str, on_lost: Callable[[Link], None]) -> None:
        at = urlsplit(address)
        assert at.hostname is not None
        self._at = at.hostname, at.port or 80
        self._handshake = (
            f"GET /graphql HTTP/1.1\r\nHost: {at.hostname}:{at.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
        ).encode()
        self._on_lost = on_lost
        self._links: dict[int, Link] = {}
        self._poll = select.epoll()
        # The sockets whose times are kept; the other poll set contains this one.
        self._kept = select.epoll()
        self._poll.register(self._kept, select.EPOLLIN)
        self.subscribed = self.arrived = self.texts = 0
        self.counts: defaultdict[int, int] = defaultdict(int)

    def open(self, link: Link) -> None:
        """Begin to connect; `turn` does the rest."""
        plain = link.plain
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if plain.connect_ex(self._at) not in (0, errno.EINPROGRESS):
            self._lose(link)
            return
        self._links[plain.fileno()] = link
        self._poll_of(link).register(plain, select.EPOLLOUT)

    def turn(self, wait_s: float) -> None:
        """Wait for data for at most `wait_s` seconds, and read all of it."""
        ready = self._poll.poll(wait_s)
        for n in range(0, len(ready), _BETWEEN):
            for handle, event in self._kept.poll(0):
                self._take(handle, event)
            for handle, event in ready[n : n + _BETWEEN]:
                if handle in self._links:
                    self._take(handle, event)

    def close(self) -> None:
        for link in self._links.values():
            link.plain.close()
        self._kept.close()
        self._poll.close()

    def _poll_of(self, link: Link) -> select.epoll:
        return self._poll if link.kept is None else self._kept

    def _take(self, handle: int, event: int) -> None:
        link = self._links[handle]
        try:
            if link.stage == _LIVE:
                self._receive(link)
            elif link.stage == _CONNECTING and event & select.EPOLLOUT:
                link.plain.sendall(self._handshake)
                self._poll_of(link).modify(handle, select.EPOLLIN)
                link.stage = _SHAKING
            else:
                self._agree(link)
        except BlockingIOError:
            pass
        except OSError:
            self._lose(link)

    def _agree(self, link: Link) -> None:
        """Handle the responses to the handshake and to `connection_init`."""
        come = link.plain.recv(_READ_BYTES)
        link.rest += come
        if link.stage == _SHAKING:
            head, found, rest = link.rest.partition(b"\r\n\r\n")
            if not come or (found and not head.startswith(b"HTTP/1.1 101")):
                raise ConnectionRefusedError(head.decode(errors="replace"))
            if found:
                link.plain.sendall(text_frame(_INIT))
                link.rest, link.stage = rest, _STARTING
        if link.stage == _STARTING and b"connection_ack" in link.rest:
            link.plain.sendall(link.subscribe)
            # The server sends nothing else before `subscribe`.
            link.rest, link.stage = b"", _LIVE
            self.subscribed += 1
        elif not come:
            raise ConnectionResetError

    def _receive(self, link: Link) -> None:
        data = link.plain.recv(_READ_BYTES)
        now = time.monotonic_ns()
        if not data:
            raise ConnectionResetError
        if link.rest:
            data = link.rest + data
        at, size, texts, awakened = 0, len(data), 0, 0
        while size - at >= 2:
            start, length = at + 2, data[at + 1]
            if length == 126:
                start, length = at + 4, int.from_bytes(data[at + 2 : at + 4])
            elif length == 127:
                start, length = at + 10, int.from_bytes(data[at + 2 : at + 10])
            end = start + length
            if end > size:
                break
            if data[at] == _TEXT:
                tail = max(start, end - _END_BYTES)
                if data.find(_NOTHING, tail, end) >= 0:
                    at = end
                    continue
                texts += 1
                if data.find(_AWAKENED, tail, end) >= 0:
                    awakened += 1
                if link.kept is not None:
                    link.kept.append((now, data[start:end]))
            elif data[at] == _PING:
                link.plain.sendall(text_frame(data[start:end], 0x8A))
            elif data[at] == _CLOSE:
                raise ConnectionResetError(data[start:end])
            at = end
        link.rest = data[at:]
        if texts:
            self.counts[now // BIN_NS] += texts - awakened
            self.texts += texts
            if not link.first_ns:
                link.first_ns = now
                self.arrived += 1

    def _lose(self, link: Link) -> None:
        self._links.pop(link.plain.fileno(), None)
        # Closing removes it from the poll set.
        link.plain.close()
        self._on_lost(link)
