"""An ASGI application on real sockets, in the test's process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette

from revstream.gql.server.http_connection import RequestConnection
from revstream.gql.server.websocket_connection import WebSocketConnection

__all__ = ["served"]


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """Yield the address of the application, without the scheme."""
    within: Any = partial(partial, connections=app.state.connections)
    config = uvicorn.Config(
        app,
        http=within(RequestConnection),
        ws=within(WebSocketConnection),
        # asyncio's own event loop keeps cancelled timers until they are due; uvloop does not.
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"{host}:{port}"
        server.should_exit = True
        await serving
