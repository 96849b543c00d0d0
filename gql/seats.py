"""Where those who are told the same are written to: an operation on a socket, or a stream.

What is the same for all seats of a kind is made once per event; each is written to once, and nobody
waits. Streams are written to below uvicorn's response, whose `send` would have to be awaited: their
chunks are framed here as HTTP/1.1 has it.

Source: docs/decisions/0028-shared-subscriptions.md; RFC 9112, 7.1 "Chunked Transfer Coding".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import orjson

from gql.event_streams import Framing
from gql.outlets import OUTLET, Outlet

__all__ = ["SocketSeat", "StreamSeat"]


class SocketSeat:
    """Of an operation on a WebSocket.

    Args:
        type_: what its protocol calls a message with a result.
    """

    __slots__ = ("kind", "outlet", "own", "token")

    def __init__(self, id_: str, type_: bytes, outlet: Outlet) -> None:
        self.token = ""
        self.outlet = outlet
        self.own = b'{"id":%b,"type":"%b","payload":' % (orjson.dumps(id_), type_)
        # Ids are nearly always of one length, and then so are the messages.
        self.kind: Hashable = len(self.own)

    @classmethod
    def of(
        cls,
        scope: Mapping[str, Any],
        id_: str,
        type_: bytes,
        extensions: Mapping[str, Any] | None,
    ) -> SocketSeat | None:
        outlet = _outlet(scope, extensions)
        return None if outlet is None else cls(id_, type_, outlet)

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        return _text_head(len(self.own) + len(payload) + 1), payload + b"}"

    def close(self) -> None:
        """Write nothing more: from here on its id may be another one's."""
        self.outlet = _NOWHERE


class StreamSeat:
    """Of a response that goes on."""

    __slots__ = ("kind", "outlet", "token")

    own = b""

    def __init__(self, framing: Framing, outlet: Outlet) -> None:
        self.token = ""
        self.outlet = outlet
        self.kind = framing

    @classmethod
    def of(
        cls, scope: Mapping[str, Any], framing: Framing, extensions: Mapping[str, Any] | None
    ) -> StreamSeat | None:
        # Of an older version a response ends with the connection, and has no chunks.
        outlet = _outlet(scope, extensions) if scope["http_version"] == "1.1" else None
        return None if outlet is None else cls(framing, outlet)

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        body = self.kind.result(payload, shown)
        return b"%x\r\n%b\r\n" % (len(body), body), b""


def _outlet(scope: Mapping[str, Any], extensions: Mapping[str, Any] | None) -> Outlet | None:
    """None of one that is told what others are not, and where there is only ASGI to write to."""
    if extensions is not None and extensions.get("cost"):
        return None
    outlet: Outlet | None = scope.get("extensions", {}).get(OUTLET)
    if outlet is not None:
        outlet.hasten()
    return outlet


def _text_head(size: int) -> bytes:
    """Of a frame that is a whole text message of so many bytes: RFC 6455, 5.2. Not masked; the
    length in 7, 16 or 64 bits."""
    if size < 126:
        return bytes((0x81, size))
    if size < 2**16:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")


_NOWHERE = Outlet(lambda _: True)
