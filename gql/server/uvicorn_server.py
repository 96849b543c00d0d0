"""The uvicorn server with the connection classes of this package.

Source: docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from revstream.gql.server.http_connection import RequestConnection
from revstream.gql.server.websocket_connection import Connections, WebSocketConnection

__all__ = ["BACKLOG", "UvicornServer"]

# Connections that wait to be accepted; the system may allow fewer. A client that finds no room gets
# no reply, and its system tries again 1, 3 and 7 s later.
BACKLOG = 65_535


class UvicornServer(uvicorn.Server):
    """Server that leaves signals to its caller.

    uvicorn would raise them again before the leases are released.

    Args:
        message_bytes: maximum length of a WebSocket message.
        shutdown_s: maximum time for requests to end.
        before_closing: called after the listening sockets are closed, before the connections are.
    """

    def __init__(
        self,
        app: ASGIApp,
        connections: Connections,
        *,
        message_bytes: int,
        shutdown_s: float,
        before_closing: Callable[[], Awaitable[None]],
    ) -> None:
        # uvicorn calls these like classes.
        http: Any = partial(RequestConnection, connections=connections)
        websocket: Any = partial(WebSocketConnection, connections=connections)
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                ws=websocket,
                ws_max_size=message_bytes,
                ws_per_message_deflate=False,
                http=http,
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=max(1, round(shutdown_s)),
            )
        )
        self._before_closing = before_closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self.servers:
            each.close()
        await self._before_closing()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
