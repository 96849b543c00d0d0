"""Write targets of broadcast groups: an operation on a WebSocket, or a streaming HTTP response.

Bytes that are the same for all targets of a kind are built once per event; each target is written
to once, without awaiting. Streams are written below uvicorn's response, whose `send` would have to
be awaited: their chunks are framed here as in HTTP/1.1.

Source: docs/decisions/0028-shared-subscriptions.md; RFC 9112, 7.1 "Chunked Transfer Coding".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import orjson
from websockets.frames import Frame, Opcode

from revstream.gql.http.stream_framing import Framing
from revstream.gql.server.writer import WRITER, Writer

__all__ = ["HttpStreamTarget", "WebSocketTarget"]


class WebSocketTarget:
    """Target of one operation on a WebSocket.

    Args:
        type_: type of a result message in the protocol of the socket.
    """

    __slots__ = ("kind", "own", "token", "writer")

    def __init__(self, id_: str, type_: bytes, writer: Writer) -> None:
        self.token = ""
        self.writer = writer
        self.own = b'{"id":%b,"type":"%b","payload":' % (orjson.dumps(id_), type_)
        # Ids nearly always have the same length, and then the messages have, too.
        self.kind: Hashable = len(self.own)

    @classmethod
    def from_scope(
        cls,
        scope: Mapping[str, Any],
        id_: str,
        type_: bytes,
        extensions: Mapping[str, Any] | None,
    ) -> WebSocketTarget | None:
        writer = _writer_of(scope, extensions)
        return None if writer is None else cls(id_, type_, writer)

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        message = b"%b%b}" % (self.own, payload)
        frame = Frame(Opcode.TEXT, message).serialize(mask=False)
        return frame[: -len(message)], payload + b"}"

    def close(self) -> None:
        """Stop writing: the client may reuse this operation id."""
        self.writer = _Closed()


class HttpStreamTarget:
    """Target of one streaming HTTP response."""

    __slots__ = ("kind", "token", "writer")

    own = b""

    def __init__(self, framing: Framing, writer: Writer) -> None:
        self.token = ""
        self.writer = writer
        self.kind = framing

    @classmethod
    def from_scope(
        cls, scope: Mapping[str, Any], framing: Framing, extensions: Mapping[str, Any] | None
    ) -> HttpStreamTarget | None:
        # In older versions a response ends with the connection, and has no chunks.
        writer = _writer_of(scope, extensions) if scope["http_version"] == "1.1" else None
        return None if writer is None else cls(framing, writer)

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        body = self.kind.result(payload, shown)
        return b"%x\r\n%b\r\n" % (len(body), body), b""


def _writer_of(scope: Mapping[str, Any], extensions: Mapping[str, Any] | None) -> Writer | None:
    """Return the connection's writer.

    None if the server has none, or if the responses have parts that other subscribers do not get.
    """
    if extensions is not None and extensions.get("cost"):
        return None
    writer: Writer | None = scope.get("extensions", {}).get(WRITER)
    return writer


class _Closed:
    """Writer that drops everything."""

    def write(self, data: bytes) -> bool:
        return True
