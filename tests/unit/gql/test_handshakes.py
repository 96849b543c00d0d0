"""gql.handshakes: what comes of a handshake is what comes of it where websockets reads it again."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gql import heads
from gql.connections import Connections, WebSocketConnection
from gql.handshakes import handshake_of
from gql.heads import RequestConnection
from tests.support.fuzzing import examples
from tests.unit.gql.test_responses import Recording

PLAIN = (
    b"Host: shop",
    b"Upgrade: websocket",
    b"Connection: Upgrade",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
    b"Sec-WebSocket-Protocol: graphql-transport-ws",
)
# "hi", and the end, both masked with zeros.
FRAMES = [b"\x81\x82\0\0\0\0hi", b"\x88\x80\0\0\0\0"]
LINES = st.one_of(
    st.sampled_from(
        [
            *PLAIN,
            b"upgrade: WebSocket",
            b"Upgrade: h2c, websocket",
            b"Connection: keep-alive, Upgrade",
            b"Connection: close",
            b"Content-Length: 0",
            b"Content-Length: 2",
            b"Transfer-Encoding: chunked",
            b"Expect: 100-continue",
            b"Origin: http://shop",
            b"Sec-WebSocket-Protocol: a, b ,graphql-ws",
            b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
            b"Sec-WebSocket-Version: 8",
            b"Sec-WebSocket-Key: short",
            b"Sec-WebSocket-Key:  MDEyMzQ1Njc4OWFiY2RlZg== \t",
            b"X-Empty:",
            b"X-Other: \xe9",
            b"X-Other: a\x7fb",
            b"X-Folded: a\r\n b",
            b"X-Long: " + 5000 * b"a",
            b"X-Long: " + 9000 * b"a",
        ]
    ),
    st.binary(max_size=20).map(lambda value: b"X-Any: " + value),
)
FIRST_LINES = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"GET /graphql?a=%20b&c HTTP/1.1",
        b"GET /%C3%A9 HTTP/1.1",
        b"GET /\xe9 HTTP/1.1",
        b"GET http://shop/graphql HTTP/1.1",
        b"POST / HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET /" + 5000 * b"a" + b" HTTP/1.1",
    ]
)


def unavailable(exc: Exception) -> Response:
    return Response(str(exc), 503)


async def outcome(chunks: list[bytes], *, most: int = 1) -> tuple[bytes, list[Any], bool]:
    """What is written, what the application is handed, and whether the connection is closed."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append({name: each for name, each in scope.items() if name != "extensions"})
        if scope["type"] != "websocket":
            await Response("a request")(scope, receive, send)
            return
        seen.append(await receive())
        chosen = scope["subprotocols"][0] if scope["subprotocols"] else None
        await send({"type": "websocket.accept", "subprotocol": chosen})
        while seen[-1]["type"] != "websocket.disconnect":
            seen.append(await receive())
            if seen[-1]["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": "heard"})

    connections = Connections(most=most, most_bytes=10**6, stalled_s=1, failed=unavailable)
    config = uvicorn.Config(
        app,
        ws=partial(WebSocketConnection, connections=connections),  # type: ignore[arg-type]
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    config.load()
    state, transport = ServerState(), Recording()
    opened = RequestConnection(
        config, state, {}, asyncio.get_running_loop(), connections=connections
    )
    transport.set_protocol(opened)
    opened.connection_made(transport)
    for chunk in chunks:
        if not transport.closed:
            transport.protocol.data_received(chunk)
        for _ in range(10):
            await asyncio.sleep(0)
    closed = transport.closed
    transport.protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)
    written = re.sub(rb"(?i)date: [^\r]*", b"date:", b"".join(transport.writes))
    return written, seen, closed


def compared(chunks: list[bytes], *, most: int = 1) -> tuple[bytes, list[Any], bool]:
    first = asyncio.run(outcome(chunks, most=most))
    with patch.object(heads, "handshake_of", lambda *_: None):
        again = asyncio.run(outcome(chunks, most=most))
    assert first == again
    return first


@settings(max_examples=examples(60), deadline=None)
@given(
    first=FIRST_LINES,
    lines=st.one_of(
        st.lists(LINES, max_size=9),
        st.permutations(PLAIN),
        st.lists(LINES, max_size=3).map(lambda more: [*PLAIN, *more]),
    ),
    cut=st.integers(0, 400),
)
def test_what_comes_of_one_is_the_same(first: bytes, lines: list[bytes], cut: int) -> None:
    """However it is refused, and whether it comes whole or not."""
    head = b"\r\n".join([first, *lines, b"", b""])
    compared([each for each in (head[:cut], head[cut:], *FRAMES) if each])


def test_a_plain_one_is_not_read_again() -> None:
    """And what follows is read as frames. Of two the second finds no room."""
    head = b"\r\n".join([b"GET /a%20b?c HTTP/1.1", *PLAIN, b"", b""])
    read_again = HttpToolsProtocol.handle_websocket_upgrade
    with patch.object(HttpToolsProtocol, "handle_websocket_upgrade", autospec=True) as reading:
        reading.side_effect = read_again
        written, seen, _ = asyncio.run(outcome([head, *FRAMES]))
        assert not reading.called
        compared([head, *FRAMES])
        assert reading.call_count == 1
    refused, nothing, closed = compared([head, *FRAMES], most=0)
    assert written.startswith(b"HTTP/1.1 101 ")
    assert written.endswith(b"\x81\x05heard\x88\x00")
    assert (seen[0]["path"], seen[0]["query_string"]) == ("/a b", b"c")
    assert [each["type"] for each in seen[1:]] == [
        "websocket.connect",
        "websocket.receive",
        "websocket.disconnect",
    ]
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert closed
    assert not nothing


@pytest.mark.parametrize(
    ("method", "url", "headers"),
    [
        ("POST", b"/", []),
        ("GET", b"/\xe9", []),
        ("GET", 5000 * b"/", []),
        ("GET", b"/", 101 * [(b"a", b"b")]),
        ("GET", b"/", [(b"a", 5000 * b"b")]),
        ("GET", b"/", [(5000 * b"a", b"b")]),
        ("GET", b"/", [(b"a", b"\xe9")]),
        ("GET", b"/", [(b"a", b"\x00")]),
        ("GET", b"/", [(b"content-length", b"0")]),
        ("GET", b"/", [(b"transfer-encoding", b"chunked")]),
    ],
)
def test_what_is_not_plain_is_left_to_websockets(
    method: str, url: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    assert handshake_of(method, url, headers) is None
