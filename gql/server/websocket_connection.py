"""WebSockets as the process holds them: how many, and how much memory their buffers may take.

Guarantees: no more are open than may be, whoever comes next is told 503 and when to come again;
what lies in the buffers of all of them together, coming in and going out, stays under a bound, and
over it those that hold the most are closed; a client that takes nothing off its socket is closed
after a while, whatever else it does; a socket that is closed is gone soon, even if its client does
not take part in closing it.

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

# How long a client may take to answer that its socket is closed, or to read why.
_PARTING_S = 5.0
_RETRY_AFTER_S = 5
_TRY_AGAIN_LATER = 1013
# That may wait to be handled: a client that comes back starts a hundred operations at once.
_MESSAGES_MOST = 400
# That are handled before anything else is looked at; a subscription takes half a millisecond.
_MESSAGES_A_TURN = 4
# Whose handling begins before anything else is looked at: what they read is one read, and the next
# of them are looked at while MongoDB reads.
_REQUESTS_A_TURN = 8
# About what a message that waits to be handled takes beside its text.
_MESSAGE_BYTES = 500
# Characters of a library's message that a client is sent.
_SHOWN = 200
# Bytes that may wait to be read by a client before broadcasts leave it out.
_UNREAD_BYTES = 256 * 1024
# Of all that are: one of its own would be the better part of a kilobyte for each.
_WRITABLE = asyncio.Event()
_WRITABLE.set()


class Connections:
    """Of one process.

    Args:
        most: sockets that may be open at once.
        most_http: other connections that may be.
        most_http_bytes: what may lie in the buffers of these.
        most_bytes: what may lie in their buffers.
        stalled_s: how long a client may take nothing of what is sent to it.
        failed: what is answered to those who are refused.

    Attributes:
        turns: of the messages that are handled.
        starts: of the requests over HTTP.
        http: the connections that are no sockets.
        refused: handshakes that were answered with 503.
        stalled: responses over HTTP that ended because their clients took nothing of them.
        dropped: sockets that were closed, by reason: `stalled`, `memory` or `flood`.
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
        """What lies in their buffers."""
        return self._held_bytes

    def fit(self, files: int) -> bool:
        """Let in no more connections than there may be files; False where that is fewer than
        before. A quarter of them, at most, is for HTTP."""
        if self.most + self.http.most + RESERVE <= files:
            return True
        self.http.most = max(1, min(self.http.most, files // 4))
        self.most = max(1, min(self.most, files - self.http.most - RESERVE))
        return False

    def admit(self, connection: WebSocketConnection) -> bool:
        """False where as many are open as may be."""
        if len(self._held) >= self.most:
            self.refused += 1
            return False
        self._held[connection] = 0
        return True

    def hold(self, connection: WebSocketConnection, size_bytes: int) -> None:
        """So much lies in a connection's buffers now."""
        self._held_bytes += size_bytes - self._held.get(connection, 0)
        self._held[connection] = size_bytes
        while self._held_bytes > self._most_bytes:
            # Whoever takes what it is sent, and sends whole messages, holds next to nothing.
            largest = max(self._held, key=self._held.__getitem__)
            self.forget(largest)
            self.dropped["memory"] += 1
            largest.drop("the gateway is short of memory, and this connection holds much of it")

    def forget(self, connection: WebSocketConnection) -> None:
        self._held_bytes -= self._held.pop(connection, 0)

    def count_stalled_response(self) -> None:
        self.stalled += 1

    def count_stalled_socket(self) -> None:
        self.dropped["stalled"] += 1


class WebSocketConnection(WebSocketsSansIOProtocol):
    """uvicorn's, within the bounds."""

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writable = _WRITABLE
        self._connections = connections
        self._admitted = False
        self._stall = SlowClientTimeout(connections.stalled_s, connections.count_stalled_socket)
        self._parting: asyncio.TimerHandle | None = None
        # Received since there was last nothing to handle.
        self._received_bytes = 0
        # Frames may be written, and its buffer is not full.
        self._flowing = False

    def handle_connect(self, event: Request) -> None:
        self._admitted = self._connections.admit(self)
        if self._admitted:
            super().handle_connect(event)
            # Else it was none, and was told so.
            if not self.close_sent:
                extensions: Any = self.scope["extensions"]
                extensions[WRITER] = self
        else:
            self._refuse(
                Unavailable(
                    f"{self._connections.most} WebSockets are open, which is the most; try again",
                    retryAfterSeconds=_RETRY_AFTER_S,
                )
            )

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            # uvicorn, which writes what comes of events, would leave it open without a word.
            self._refuse_handshake()
            return
        if self._admitted and self.queue.qsize() > _MESSAGES_MOST:
            # Each is small, and to handle them all would take the processor from the others.
            self._connections.dropped["flood"] += 1
            self.drop(f"more than {_MESSAGES_MOST} messages were sent at once")
        self._measure()

    async def receive(self) -> Any:
        message = await super().receive()
        # Whether one sends a thousand messages at once or a thousand come back: others have their
        # turn in between.
        await self._connections.turns.next(beginning=message["type"] == "websocket.connect")
        if not self.writable.is_set():
            self._pause_reading()
        self._measure()
        return message

    async def send(self, message: Any) -> None:
        # All who wait wake up at once, and the first may fill the buffer again.
        while not self.writable.is_set():
            await self.writable.wait()
        if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
            # By the protocol itself, of which the application does not know yet.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.accept":
            # What of it is still wanted stands in the scope.
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
            # The others go on writing.
            self.writable = asyncio.Event()
        super().pause_writing()
        # Pings are answered without asking for room.
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
        # It refers back to this, and only the garbage collector would find them. A handshake that
        # was refused has none.
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
        """As uvicorn does, which then closes the connection under a client that still writes: it
        would not get to read why."""
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
        # Else uvicorn closes it once the application is done with it.
        self.close_timer = self.loop.call_later(_PARTING_S, self.transport.abort)

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except InvalidState:
            # The client was quicker to close.
            self.transport.close()
        self._part()

    def drop(self, reason: str) -> None:
        """Close it, with a reason where the client listens, and free what it holds at once."""
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
        """Answer a handshake that websockets cannot read: it has too many headers, or too long."""
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
        """It is closed: do not wait for ever until its client has taken the rest."""
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
