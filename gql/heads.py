"""HTTP connections as the process holds them: how long, and how large, a request's head may be, and
how long a client may take nothing of what it is sent.

A handshake is a request, too. Bodies are for whoever reads them. A head that has come before is not
read again (`gql.known_heads`).

Source: docs/decisions/0024-sockets.md, 0033-known-heads.md.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from websockets.http11 import Request

from gql.connections import Connections, WebSocketConnection
from gql.departures import ResponseOutlet
from gql.handshakes import handshake_of
from gql.known_heads import NEW_HEAD, KnownHead, KnownHeads
from gql.outlets import OUTLET
from gql.responses import Executed
from gql.stalling import Stall

__all__ = ["RequestConnection"]

# Its first line and its headers.
_HEAD_S = 5.0
_HEAD_BYTES = 64 * 1024
# What may wait to be taken of what was written without waiting.
_UNTAKEN_BYTES = 64 * 1024

# Has no waiter ever.
_NOBODY_WAITS = asyncio.Event()


class _Waiting:
    """See `gql.known_heads.Waiting`."""

    __slots__ = ("body", "connection", "cycle", "known")

    def __init__(
        self,
        connection: RequestConnection,
        cycle: RequestResponseCycle,
        known: KnownHead,
        body: bytes,
    ) -> None:
        self.connection = connection
        self.cycle = cycle
        self.known = known
        self.body = body

    def answer(self, response: Executed) -> None:
        if not response.leave(self.cycle, self.connection.outlet):
            self.hand_over(response)

    def hand_over(self, app: Any) -> None:
        self.connection.start(self, app)


class RequestConnection(HttpToolsProtocol):
    """uvicorn's, which waits for a request's head for ever, takes one of any length, and holds a
    response for a client that does not read for as long as TCP does."""

    _waiting: asyncio.TimerHandle | None = None
    # A head is due, or under way.
    _expecting = False
    _head_bytes = 0
    # No part of a request has come that has not come as a whole.
    _between = True
    # Requests that began in what came last.
    _begun = 0
    # When the last response was complete, unless something has come since.
    _idle_since: float | None = None
    # Looks whether that is too long ago; uvicorn makes one behind each response, and ends it with
    # the next request.
    _looking: asyncio.TimerHandle | None = None

    def __init__(
        self, *args: Any, connections: Connections, heads: KnownHeads, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._heads = heads
        self._starts = connections.starts
        self._stall = Stall(connections.stalled_s, connections.count_stalled_response)
        # Its buffer is full where it does not flow, or it is gone.
        self._departures = connections.departures
        self.outlet = ResponseOutlet(self.write_unless_full, connections.departures)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.outlet.open(transport)
        self.outlet.hasten()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self.outlet.close()
        self._wait_no_more()
        self._look_no_more()
        self._stall.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self.outlet.pause()
        super().pause_writing()
        self._stall.watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self.outlet.resume()
        self._stall.end()

    def write_unless_full(self, frame: bytes) -> bool:
        """As `Outlet.write`."""
        if self.transport.is_closing():
            return True
        if self.transport.get_write_buffer_size() > _UNTAKEN_BYTES:
            return False
        self.transport.write(frame)
        self._stall.add(len(frame))
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expecting = True
        self._between = False
        self._begun += 1

    def on_headers_complete(self) -> None:
        self._expecting = False
        if self._waiting is not None:
            self._wait_no_more()
        extensions: Any = {OUTLET: self.outlet}
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between = True

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._looking is None:
            self._looking = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def _look(self) -> None:
        self._looking = None
        if self._idle_since is None:
            # The next response begins it anew.
            return
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._looking = self.loop.call_later(left_s, self._look)
        else:
            self.timeout_keep_alive_handler()

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # It would be written among the frames of the socket.
            self.transport.close()
            return
        self._look_no_more()
        handshake = handshake_of(self.scope["method"], self.url, self.headers)
        if handshake is None:
            self.outlet.close()
            super().handle_websocket_upgrade()
        else:
            self._become_socket(handshake)
        # Nothing comes here any more, and the parser knows of this one.
        self.parser = None  # type: ignore[assignment]

    def _become_socket(self, handshake: Request) -> None:
        """As uvicorn does with one that is read again."""
        self.connections.discard(self)
        made: Any = self.ws_protocol_class
        opened: WebSocketConnection = made(
            config=self.config, server_state=self.server_state, app_state=self.app_state
        )
        opened.connection_made(self.transport)
        opened.outlet.succeed(self.outlet)
        opened.begin(handshake)
        self.transport.set_protocol(opened)

    def shutdown(self) -> None:
        self._departures.hurry(self.outlet)
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self.outlet in self._departures.waiting:
            # What comes may be refused at once.
            self._departures.hurry(self.outlet)
        # Nothing is under way, in neither direction.
        alone = self._between and (self.cycle is None or self.cycle.response_complete)
        known = self._heads.known(data) if alone else None
        if known is not None:
            self._begin(*known)
            return
        self._begun = 0
        super().data_received(data)
        if alone and self._between and self._begun == 1:
            self._learn(data)
        # Most heads come whole, and need no timer.
        if self._expecting and self._waiting is None:
            self._wait()
        if self._waiting is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.send_400_response(f"A request's head has {_HEAD_BYTES} bytes at most.")

    def _learn(self, data: bytes) -> None:
        """Of a request that came as a whole."""
        if self.cycle is not None and self.cycle.keep_alive:
            new = self._heads.new(data, self.scope)
            if new is not None:
                extensions: Any = self.scope["extensions"]
                extensions[NEW_HEAD] = new

    def _begin(self, known: KnownHead, body: bytes) -> None:
        """As uvicorn does with what its parser tells it."""
        self._unset_keepalive_if_required()
        if self._waiting is not None:
            self._wait_no_more()
        # Its scope, its body and what wakes up who waits for more are made for who needs them.
        scope: Any = None
        self.cycle = cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=_NOBODY_WAITS,
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        self._starts.start(self._answer, _Waiting(self, cycle, known, body))

    def _answer(self, waiting: _Waiting) -> None:
        app = waiting.known.app
        if not app.begin(waiting.body, waiting):
            waiting.hand_over(app)

    def start(self, waiting: _Waiting, app: Any) -> None:
        """A task for it."""
        cycle, scope = waiting.cycle, cast(Any, {**waiting.known.scope})
        scope |= {
            "server": self.server,
            "client": self.client,
            "state": self.app_state.copy(),
            "extensions": {OUTLET: self.outlet},
        }
        cycle.scope = scope
        cycle.body += waiting.body
        cycle.message_event = asyncio.Event()
        cycle.message_event.set()
        super()._start_asgi_task(cycle, app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._starts.start(super()._start_asgi_task, cycle, app)

    def _wait(self) -> None:
        self._wait_no_more()
        self._waiting = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        self._head_bytes = 0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
