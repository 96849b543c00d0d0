"""HTTP connections as the process holds them: how long, and how large, a request's head may be.

A handshake is a request, too. Bodies are for whoever reads them.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["RequestConnection"]

# Its first line and its headers.
_HEAD_S = 5.0
_HEAD_BYTES = 64 * 1024


class RequestConnection(HttpToolsProtocol):
    """uvicorn's, which waits for a request's head for ever, and takes one of any length."""

    _waiting: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._wait_no_more()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiting is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.send_400_response(f"A request's head has {_HEAD_BYTES} bytes at most.")

    def _wait(self) -> None:
        self._wait_no_more()
        self._waiting = self.loop.call_later(_HEAD_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        self._head_bytes = 0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
