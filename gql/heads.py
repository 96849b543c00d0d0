"""HTTP connections as the process holds them: how long, and how large, a request's head may be, and
how long a client may take nothing of what it is sent.

A handshake is a request, too. Bodies are for whoever reads them.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gql.connections import Connections
from gql.stalling import Stall
from gql.writers import WRITER

__all__ = ["RequestConnection"]

# Its first line and its headers.
_HEAD_S = 5.0
_HEAD_BYTES = 64 * 1024
# Bytes that may wait to be read by a client before broadcasts leave it out.
_UNREAD_BYTES = 64 * 1024


class RequestConnection(HttpToolsProtocol):
    """uvicorn's, which waits for a request's head for ever, takes one of any length, and holds a
    response for a client that does not read for as long as TCP does."""

    _waiting: asyncio.TimerHandle | None = None
    # A head is due, or under way.
    _expecting = False
    _head_bytes = 0

    def __init__(self, *args: Any, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._starts = connections.starts
        self._stall = Stall(connections.stalled_s, connections.count_stalled_response)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._stall.end()
        super().connection_lost(exc)
        self._leave_scope()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.watch(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.end()

    def write(self, data: bytes) -> bool:
        """See `gql.writers.Writer`."""
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
        self._expecting = True

    def on_headers_complete(self) -> None:
        self._expecting = False
        if self._waiting is not None:
            self._wait_no_more()
        extensions: Any = {WRITER: self}
        self.scope["extensions"] = extensions
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # It would be written among the frames of the socket.
            self.transport.close()
            return
        self._leave_scope()
        super().handle_websocket_upgrade()
        # Nothing comes here any more, and the parser knows of this one.
        self.parser = None  # type: ignore[assignment]

    def _leave_scope(self) -> None:
        """Break the cycle between this and its last scope, which only the collector would find."""
        if self.scope is not None:
            cast("dict[str, Any]", self.scope.get("extensions", {})).pop(WRITER, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Most heads come whole, and need no timer.
        if self._expecting and self._waiting is None:
            self._wait()
        if self._waiting is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.send_400_response(f"A request's head has {_HEAD_BYTES} bytes at most.")

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
