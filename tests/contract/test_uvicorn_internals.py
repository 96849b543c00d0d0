"""Contract test of undocumented members of uvicorn that gql/server uses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tests.support.members import check_members

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class FakeTransport(asyncio.Transport):
    """A transport that collects the written bytes."""

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.fixture
def config() -> uvicorn.Config:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": ""})
        else:
            await PlainTextResponse("")(scope, receive, send)

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    return config


async def test_uvicorn_has_the_members_of_an_http_connection(config: uvicorn.Config) -> None:
    """`RequestConnection` limits heads, bodies and responses with them."""
    check_members(
        "uvicorn",
        HttpToolsProtocol,
        *("connection_made", "connection_lost", "pause_writing", "resume_writing"),
        *("on_message_begin", "on_header", "on_headers_complete", "on_body"),
        *("on_message_complete", "on_response_complete", "handle_websocket_upgrade"),
        *("data_received", "send_400_response", "_should_upgrade", "_start_asgi_task"),
    )
    connection = HttpToolsProtocol(config=config, server_state=ServerState(), app_state={})
    connection.connection_made(FakeTransport())
    connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    check_members(
        "uvicorn",
        connection,
        *("transport", "flow", "pipeline", "cycle", "url", "headers", "scope", "parser", "loop"),
    )
    check_members("uvicorn", connection.flow, "read_paused", "write_paused")
    check_members(
        "uvicorn",
        connection.cycle,
        *("scope", "disconnected", "message_event", "response_started", "response_complete"),
        "waiting_for_100_continue",
    )
    await asyncio.gather(*connection.tasks)
    connection.connection_lost(None)


async def test_uvicorn_has_the_members_of_a_websocket_connection(config: uvicorn.Config) -> None:
    """`WebSocketConnection` limits messages, buffers and closing with them."""
    check_members(
        "uvicorn",
        WebSocketsSansIOProtocol,
        *("handle_connect", "handle_close", "handle_parser_exception", "keepalive_timeout"),
        *("data_received", "receive", "send", "shutdown", "connection_lost"),
        *("pause_writing", "resume_writing"),
    )
    connection: Any = WebSocketsSansIOProtocol(
        config=config, server_state=ServerState(), app_state={}
    )
    connection.connection_made(FakeTransport())
    connection.data_received(HANDSHAKE)
    check_members(
        "uvicorn",
        connection,
        *("transport", "loop", "conn", "queue", "frames", "scope", "request", "response"),
        *("handshake_initiated", "handshake_complete", "close_sent", "close_timer"),
        *("read_paused", "writable"),
    )
    await asyncio.gather(*connection.tasks)
    connection.connection_lost(None)


def test_uvicorn_accepts_functions_as_connection_classes(config: uvicorn.Config) -> None:
    """Each connection gets the limits of the process."""

    def http() -> None: ...

    def websocket() -> None: ...

    given: Any = {"http": http, "ws": websocket}
    config = uvicorn.Config(config.app, lifespan="off", log_config=None, **given)
    config.load()
    assert config.http_protocol_class is http
    assert config.ws_protocol_class is websocket


async def test_uvicorn_has_the_members_of_a_server(config: uvicorn.Config) -> None:
    """`UvicornServer` first stops accepting connections, and does not handle signals."""
    check_members("uvicorn", uvicorn.Server, "shutdown", "capture_signals")
    server = uvicorn.Server(uvicorn.Config(config.app, lifespan="off", log_config=None, port=0))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    check_members("uvicorn", server, "servers")
    await server.shutdown()
