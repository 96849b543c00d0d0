"""HTTP connections with limits for heads, bodies and clients that do not read.

Guarantees: each connection gets a response or is closed within a time limit, whatever its client
sends or omits. A field after the body (a trailer) is never a header. A handshake is a request, too.

Source: docs/decisions/0024-sockets.md; RFC 9110, 6.5 "Trailer Fields"; RFC 6585, 5.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from revstream.gql.http.request import Refused
from revstream.gql.server.client_presence import CLIENT, ClientPresence
from revstream.gql.server.slow_client import SlowClientTimeout
from revstream.gql.server.websocket_connection import Connections, response_bytes
from revstream.gql.server.writer import WRITER
from revstream.streams.core.errors import Unavailable

__all__ = ["RequestConnection"]

# Limits for the request line and the headers.
_HEAD_S = 5.0
_HEAD_BYTES = 64 * 1024
# Bytes of a header line in addition to the name and the value.
_LINE_BYTES = 4
# An incomplete body must receive at least `_BODY_BYTES` every `_BODY_S` seconds.
_BODY_S = 10.0
_BODY_BYTES = 10_000
# Seconds for a refused client to read the response.
_PARTING_S = 2.0
_RETRY_AFTER_S = 1
# Maximum unread bytes of a client; above it, broadcasts skip the client.
_UNREAD_BYTES = 64 * 1024


class RequestConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with time and size limits.

    uvicorn has no limit for the wait for a request, the length of a head, or the time that a client
    does not read its response.
    """

    # Closes or checks the connection while it waits for a head or a body.
    _timer: asyncio.TimerHandle | None = None
    # A head, or a body, is incomplete.
    _in_head = False
    _in_body = False
    # Heads that began in the current data, and bytes of the incomplete head.
    _heads = 0
    _head_bytes = 0
    # Bytes of the body since the last check.
    _body_bytes = 0
    # Bytes received since the last part of the body.
    _trailer_bytes = 0
    # The request that is being answered. uvicorn's `cycle` is the last one received; earlier ones
    # may be queued.
    _answering: RequestResponseCycle | None = None
    # Refusal of the request that is being read.
    _refusal: Refused | None = None
    # The last response was sent; further data is discarded.
    _parting = False
    # See `gql.server.client_presence`.
    presence: ClientPresence | None = None

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = connections
        self._starts = connections.starts
        self._stall = SlowClientTimeout(connections.stalled_s, connections.count_stalled_response)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limits.http.open(self):
            self._set_timer(_HEAD_S, self.drop)
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.http.close(self)
        self._end_timer()
        self._stall.end()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        if self._answering is not None:
            # A request that has not begun must not begin.
            cast("dict[str, Any]", self._answering.scope["extensions"])[CLIENT] = None
        if self.presence is not None:
            self.presence.leave()
        super().connection_lost(exc)
        self._leave_scope()

    def drop(self) -> None:
        """See `gql.server.http_connection_limit.Closeable`."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def unread_bytes(self) -> int:
        """See `gql.server.http_connection_limit.Closeable`."""
        return self.transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limits.http.hold(self)
        self._stall.watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._limits.http.release(self)
        self._stall.end()

    def write(self, data: bytes) -> bool:
        """See `gql.server.writer.Writer`."""
        if self.transport.is_closing():
            return True
        if self.flow.write_paused:
            if self.transport.get_write_buffer_size() > _UNREAD_BYTES:
                return False
            self._stall.add(len(data))
        self.transport.write(data)
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._heads += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head it is a trailer, unchecked: a proxy removes only headers.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        lines = sum([len(name) + len(value) + _LINE_BYTES for name, value in self.headers])
        if len(self.url) + lines > _HEAD_BYTES:
            self._refuse(_head_too_large())
        if self.parser.should_upgrade() and self._should_upgrade() and _has_body(self.headers):
            self._refuse(Refused(400, "WebSocket handshake: it has a body, expected none"))
        self._end_timer()
        self._in_head = False
        self._in_body = True
        self._body_bytes = self._trailer_bytes = self._head_bytes = 0
        extensions: Any = {WRITER: self, CLIENT: self}
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._end_timer()
        self._in_body = False
        if self._responding:
            self._limits.http.respond(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete:
            self._limits.http.wait(self)

    def handle_websocket_upgrade(self) -> None:
        if self._responding:
            # Its response would be written between the frames of the WebSocket.
            self.transport.close()
            return
        self._end_timer()
        self._limits.http.close(self)
        self._leave_scope()
        super().handle_websocket_upgrade()
        # No more data arrives here, and the parser refers to this connection.
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._parting:
            return
        # If these data are only partly of the head, counting begins with the next data.
        begins = 0 if self._in_head else 1
        in_body, body_bytes = self._in_body, self._body_bytes
        self._heads = 0
        super().data_received(data)
        if self.parser is None or self.transport.is_closing() or self._parting:
            return
        if self._in_body:
            # The parser keeps lines before each part of a body, and after the last, until they end.
            came = not in_body or self._heads > 0 or self._body_bytes > body_bytes
            self._trailer_bytes = 0 if came else self._trailer_bytes + len(data)
        elif self._in_head and not in_body and self._heads == begins:
            self._head_bytes += len(data)
        if max(self._head_bytes, self._trailer_bytes) > _HEAD_BYTES:
            self._part(_head_too_large())
            return
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._part(self._refusal or Refused(400, msg))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not self._limits.http.serves(self, cycle.scope["path"]):
            most = self._limits.http.most
            exc = Unavailable(
                f"open HTTP connections: {most:,}, maximum is {most:,}; try again",
                retryAfterSeconds=_RETRY_AFTER_S,
            )
            refused = self._limits.failed(exc)
            refused.headers["connection"] = "close"
            app = refused
        self._answering = cycle
        self._starts.start(super()._start_asgi_task, cycle, app)

    @property
    def _responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, refusal: Refused) -> None:
        """Stop the parser, which then calls `send_400_response`."""
        self._refusal = refusal
        raise httptools.HttpParserError(refusal.message)

    def _part(self, refusal: Refused) -> None:
        """Send a last response and give the client time to read it.

        The response would be discarded by the client's system if the connection were closed while
        the client still sends.
        """
        self._end_timer()
        self._parting = True
        queued = self.pipeline or not self._in_body
        if self._responding and (queued or self.cycle.response_started):
            # The client would read it as a part of the response that is being sent.
            self.transport.close()
            return
        self.transport.write(response_bytes(self._limits.failed(refusal)))
        if self._responding:
            # Report the disconnect to the application.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(_PARTING_S, self.transport.abort)

    def _watch(self) -> None:
        """Start or stop the timer that fits the state of the connection."""
        if self._in_body:
            if self._timer is None:
                self._set_timer(_BODY_S, self._look_at_body)
        elif self._in_head or not self._responding:
            if self._timer is None:
                self._set_timer(_HEAD_S, self.drop)
        else:
            self._end_timer()

    def _look_at_body(self) -> None:
        self._timer = None
        slow = self._body_bytes < _BODY_BYTES and not self.flow.read_paused
        if not self._responding:
            # The rest of a request that is already answered.
            self.transport.close()
        elif slow and not self.cycle.waiting_for_100_continue:
            self._part(
                Refused(
                    408,
                    f"request body: {self._body_bytes} bytes in {_BODY_S:g} s, "
                    f"minimum is {_BODY_BYTES}; send it again",
                )
            )
        else:
            self._body_bytes = 0
            self._set_timer(_BODY_S, self._look_at_body)

    def _leave_scope(self) -> None:
        """Break the cycle between the connection and its last scope, for the garbage collector."""
        if self.scope is not None:
            extensions = cast("dict[str, Any]", self.scope.get("extensions", {}))
            for each in (WRITER, CLIENT):
                if extensions.get(each) is self:
                    del extensions[each]

    def _set_timer(self, delay_s: float, call: Any) -> None:
        self._end_timer()
        self._timer = self.loop.call_later(delay_s, call)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in headers
    )


def _head_too_large() -> Refused:
    return Refused(431, f"request head: more than {_HEAD_BYTES} bytes, which is the maximum")
