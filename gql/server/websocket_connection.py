"""WebSocket connections with limits for their number, their buffers and clients that do not read.

Guarantees: at most `most` WebSockets are open, further handshakes are answered with 503 and
Retry-After; the buffers of all of them, for input and output, stay under a limit, and above it the
largest are closed; a client that reads nothing is disconnected after a while, whatever it sends; a
closed WebSocket is removed soon, even if its client does not take part in closing it.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import Response as Answer
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidState, SecurityError
from websockets.http11 import Request
from websockets.http11 import Response as RawResponse
from websockets.protocol import State

from revstream.gql.http.request import Refused
from revstream.gql.server.fair_scheduler import FairScheduler
from revstream.gql.server.http_connection_limit import RESERVE, HttpConnections
from revstream.gql.server.slow_client import SlowClientTimeout
from revstream.gql.server.writer import WRITER
from revstream.streams.core.errors import Unavailable

__all__ = ["Connections", "WebSocketConnection", "response_bytes"]

# Seconds for a client to answer a close frame, or to read the reason.
_PARTING_S = 5.0
_RETRY_AFTER_S = 5
_TRY_AGAIN_LATER = 1013
# Maximum of queued messages: a client that reconnects starts a hundred operations at once.
_MESSAGES_MOST = 400
# Messages handled per iteration of the event loop; a subscription takes half a millisecond.
_MESSAGES_A_TURN = 4
# Requests started per iteration of the event loop: their lookups share one read, and the next
# requests are parsed while MongoDB reads.
_REQUESTS_A_TURN = 8
# Approximate memory of a queued message in addition to its text.
_MESSAGE_BYTES = 500
# Maximum characters of a library's message in a response.
_SHOWN = 200
# Maximum unread bytes of a client; above it, broadcasts skip the client.
_UNREAD_BYTES = 256 * 1024
# Shared by all writable connections: an event for each would take nearly a kilobyte.
_WRITABLE = asyncio.Event()
_WRITABLE.set()


class Connections:
    """Registry of the connections of one process.

    Args:
        most: maximum of open WebSockets.
        most_http: maximum of open HTTP connections.
        most_http_bytes: maximum of bytes in the buffers of HTTP connections.
        most_bytes: maximum of bytes in the buffers of WebSockets.
        stalled_s: maximum time without any read by a client.
        failed: builds the response to a refused client.

    Attributes:
        turns: scheduler of WebSocket messages.
        starts: scheduler of HTTP requests.
        http: registry of the HTTP connections.
        refused: handshakes that were answered with 503.
        stalled: HTTP responses that ended because their clients read nothing.
        dropped: WebSockets that were closed, by reason: `stalled`, `memory` or `flood`.
    """

    def __init__(
        self,
        *,
        most: int,
        most_http: int,
        most_http_bytes: int,
        most_bytes: int,
        stalled_s: float,
        failed: Callable[[Exception], Answer],
    ) -> None:
        self.stalled_s = stalled_s
        self.failed = failed
        self.turns = FairScheduler(_MESSAGES_A_TURN)
        self.starts = FairScheduler(_REQUESTS_A_TURN)
        self.http = HttpConnections(most=most_http, most_bytes=most_http_bytes)
        self.refused = 0
        self.stalled = 0
        self.dropped: Counter[str] = Counter(stalled=0, memory=0, flood=0)
        self.most = most
        self._most_bytes = most_bytes
        self._held: dict[WebSocketConnection, int] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes in the buffers of all WebSockets."""
        return self._held_bytes

    def fit(self, files: int) -> bool:
        """Reduce the limits to the number of file descriptors; return False if they were reduced.

        At most a quarter of the descriptors is for HTTP.
        """
        if self.most + self.http.most + RESERVE <= files:
            return True
        self.http.most = max(1, min(self.http.most, files // 4))
        self.most = max(1, min(self.most, files - self.http.most - RESERVE))
        return False

    def admit(self, connection: WebSocketConnection) -> bool:
        """Register a WebSocket; return False if the maximum is open."""
        if len(self._held) >= self.most:
            self.refused += 1
            return False
        self._held[connection] = 0
        return True

    def hold(self, connection: WebSocketConnection, size_bytes: int) -> None:
        """Set the number of bytes in the buffers of a connection."""
        self._held_bytes += size_bytes - self._held.get(connection, 0)
        self._held[connection] = size_bytes
        while self._held_bytes > self._most_bytes:
            # A client that reads, and sends whole messages, uses almost no buffer.
            largest = max(self._held, key=self._held.__getitem__)
            self.forget(largest)
            self.dropped["memory"] += 1
            largest.drop(
                "buffers of all WebSockets: full, and this connection has the largest; read faster"
            )

    def forget(self, connection: WebSocketConnection) -> None:
        self._held_bytes -= self._held.pop(connection, 0)

    def count_stalled_response(self) -> None:
        self.stalled += 1

    def count_stalled_socket(self) -> None:
        self.dropped["stalled"] += 1


class WebSocketConnection(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket connection within the limits of `Connections`."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writable = _WRITABLE
        self._connections = connections
        self._admitted = False
        self._stall = SlowClientTimeout(connections.stalled_s, connections.count_stalled_socket)
        self._parting: asyncio.TimerHandle | None = None
        # Bytes received since the queue was last empty.
        self._received_bytes = 0
        # The WebSocket is open, and its buffer is not full.
        self._flowing = False

    def handle_connect(self, event: Request) -> None:
        self._admitted = self._connections.admit(self)
        if self._admitted:
            super().handle_connect(event)
            # Otherwise the handshake was invalid, and is already answered.
            if not self.close_sent:
                extensions: Any = self.scope["extensions"]
                extensions[WRITER] = self
        else:
            self._refuse(
                Unavailable(
                    f"open WebSockets: {self._connections.most:,}, "
                    f"maximum is {self._connections.most:,}; try again",
                    retryAfterSeconds=_RETRY_AFTER_S,
                )
            )

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            # uvicorn writes only for events, and would leave it open without a response.
            self._refuse_handshake()
            return
        if self._admitted and self.queue.qsize() > _MESSAGES_MOST:
            # Each is small, but to handle them all would delay the other clients.
            self._connections.dropped["flood"] += 1
            self.drop(f"queued messages: more than {_MESSAGES_MOST}, which is the maximum")
        self._measure()

    async def receive(self) -> Any:
        message = await super().receive()
        # Other work runs in between, even if one client sends a thousand messages at once or a
        # thousand clients reconnect.
        await self._connections.turns.next(beginning=message["type"] == "websocket.connect")
        if not self.writable.is_set():
            self._pause_reading()
        self._measure()
        return message

    async def send(self, message: Any) -> None:
        # All waiting tasks wake up at once, and the first may fill the buffer again.
        while not self.writable.is_set():
            await self.writable.wait()
        if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
            # Closed by the protocol; the application does not know it yet.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.accept":
            # The scope has everything of it that is still needed.
            del self.request, self.response
            self._flowing = self._open and self.writable.is_set()
        elif message["type"] == "websocket.close":
            self._part()
        self._measure()

    @property
    def _open(self) -> bool:
        return not (
            self.close_sent or self.transport.is_closing() or self.conn.state is not State.OPEN
        )

    def write(self, data: bytes) -> bool:
        """See `gql.server.writer.Writer`."""
        if self._flowing:
            self.transport.write(data)
            return True
        if not self.handshake_complete or not self._open:
            return True
        if self.transport.get_write_buffer_size() > _UNREAD_BYTES:
            return False
        self.transport.write(data)
        self._stall.add(len(data))
        self._measure()
        return True

    def pause_writing(self) -> None:
        self._flowing = False
        if self.writable is _WRITABLE:
            # Other connections are still writable.
            self.writable = asyncio.Event()
        super().pause_writing()
        # Pings are answered even if the buffer is full.
        self._pause_reading()
        self._stall.watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.handshake_complete and self._open:
            self._flowing = True
        self._stall.end()
        if self.read_paused and self.queue.empty() and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()
        self._measure()

    def connection_lost(self, exc: Exception | None) -> None:
        self._flowing = False
        self._stall.end()
        if self._parting is not None:
            self._parting.cancel()
        self._connections.forget(self)
        self._admitted = False
        # The scope refers back to the connection: a cycle for the garbage collector. A refused
        # handshake has no scope.
        scope: Any = getattr(self, "scope", {"extensions": {}})
        scope["extensions"].pop(WRITER, None)
        super().connection_lost(exc)

    def handle_close(self, event: Any) -> None:
        super().handle_close(event)
        self._part()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._part()

    def handle_parser_exception(self) -> None:
        """Close the connection, but let the client read the reason.

        uvicorn closes it at once, and a client that still writes would not get the reason.
        """
        self._flowing = False
        if self.close_sent:
            return
        closed = self.conn.close_sent
        code, reason = (1006, "") if closed is None else (closed.code, closed.reason)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self._write()
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Otherwise uvicorn closes it when the application ends.
        self.close_timer = self.loop.call_later(_PARTING_S, self.transport.abort)

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            # The client has closed it first.
            self.transport.close()
        self._part()

    def drop(self, reason: str) -> None:
        """Close the connection, with a reason if the client reads, and free its buffers at once."""
        self._admitted = False
        self._flowing = False
        listens = self.handshake_complete and not self.transport.is_closing()
        if not listens or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        self.conn.fail(_TRY_AGAIN_LATER, reason)
        self.frames = []
        while not self.queue.empty():
            self.queue.get_nowait()
        self.handle_parser_exception()

    def _refuse_handshake(self) -> None:
        """Answer a handshake that websockets cannot read: too many headers, or too long ones."""
        cause = self.conn.handshake_exc
        assert cause is not None
        large = isinstance(cause, SecurityError) or isinstance(cause.__cause__, SecurityError)
        reason = str(cause.__cause__ or cause)[:_SHOWN]
        self._refuse(Refused(431 if large else 400, f"WebSocket handshake: {reason}"))

    def _refuse(self, exc: Exception) -> None:
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(response_bytes(self._connections.failed(exc)))
        self.transport.close()
        self._part()

    def _measure(self) -> None:
        if not self._admitted:
            return
        waiting = self.queue.qsize()
        unfinished = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if not waiting:
            self._received_bytes = unfinished
        going_out = self.transport.get_write_buffer_size()
        held = max(self._received_bytes, unfinished) + waiting * _MESSAGE_BYTES + going_out
        self._connections.hold(self, held)

    def _part(self) -> None:
        """Abort the closed connection if its client has not read the rest in 5 s."""
        self._flowing = False
        if self._parting is None:
            self._parting = self.loop.call_later(_PARTING_S, self.transport.abort)

    def _pause_reading(self) -> None:
        if not (self.read_paused or self.close_sent or self.transport.is_closing()):
            self.read_paused = True
            self.transport.pause_reading()

    def _write(self) -> None:
        self.transport.write(b"".join(self.conn.data_to_send()))


def response_bytes(answer: Answer) -> bytes:
    """Serialize a response that is the last one of its connection."""
    headers = Headers({**answer.headers, "connection": "close"})
    phrase = HTTPStatus(answer.status_code).phrase
    return RawResponse(answer.status_code, phrase, headers, bytes(answer.body)).serialize()
