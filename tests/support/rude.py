"""Misbehaving WebSocket clients, written by hand.

They may send incomplete messages, and read only when the test does, or never.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.frames import Close
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.support.sockets import TRANSPORT, Protocol

__all__ = ["RudeSocket", "rude_socket"]

# Small kernel buffers: little data is enough to fill them for a client that does not read.
_RECEIVE_BYTES = 4096


class RudeSocket:
    """A WebSocket after its handshake. `plain`: the TCP connection."""

    def __init__(self, plain: socket.socket, protocol: ClientProtocol) -> None:
        self.plain = plain
        self._protocol = protocol

    def say(self, **message: object) -> None:
        """Send a message of the protocol."""
        self._protocol.send_text(json.dumps(message).encode())
        self._send()

    def subscribe(self, query: str, id_: str = "1") -> None:
        self.say(type="connection_init")
        self.say(id=id_, type="subscribe", payload={"query": query})

    def begin_message(self, size_bytes: int, sent_bytes: int) -> None:
        """Send the head of a text frame of `size_bytes`, and `sent_bytes` of its body."""
        # RFC 6455, 5.2: text, final; masked, with a length of 64 bits; a mask that changes nothing.
        head = b"\x81\xff" + size_bytes.to_bytes(8) + b"\0\0\0\0"
        self.plain.sendall(head + b"x" * sent_bytes)

    def say_often(self, times: int, **message: object) -> None:
        """Send the same message `times` times at once."""
        for _ in range(times):
            self._protocol.send_text(json.dumps(message).encode())
        self._send()

    def flood_pings(self, most_bytes: int) -> int:
        """Send pings of 125 bytes, up to `most_bytes` or until the peer stops reading.

        Returns:
            The number of bytes sent.
        """
        self.plain.settimeout(2)
        frames = (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 500
        sent = 0
        try:
            while sent < most_bytes:
                sent += self.plain.send(frames)
        except OSError:
            pass
        return sent

    def closed(self) -> Close | None:
        """Read until the connection ends and return its close frame."""
        self.plain.settimeout(30)
        try:
            while self._protocol.close_rcvd is None and (data := self.plain.recv(65536)):
                self._protocol.receive_data(data)
        except ConnectionError:
            pass
        return self._protocol.close_rcvd

    def _send(self) -> None:
        self.plain.sendall(b"".join(self._protocol.data_to_send()))


@contextmanager
def rude_socket(address: str, protocol: Protocol = TRANSPORT) -> Iterator[RudeSocket]:
    """Open a connection to a gateway's address; the handshake is done."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    speaks = ClientProtocol(
        parse_uri(f"ws://{parts.netloc}/graphql"), subprotocols=[Subprotocol(protocol)]
    )
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        plain.settimeout(30)
        plain.connect((parts.hostname, parts.port))
        speaks.send_request(speaks.connect())
        plain.sendall(b"".join(speaks.data_to_send()))
        speaks.receive_data(plain.recv(4096))
        assert speaks.handshake_exc is None
        yield RudeSocket(plain, speaks)
