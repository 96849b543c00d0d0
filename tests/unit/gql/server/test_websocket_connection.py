"""WebSocket connections: admission, and disconnection when buffers are full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from revstream.gql.server.websocket_connection import Connections, WebSocketConnection
from tests.support.serving import served


class Held:
    """A connection as `Connections` knows it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)


def connection() -> tuple[Held, WebSocketConnection]:
    held = Held()
    return held, cast(WebSocketConnection, held)


def refused(_exc: Exception) -> Response:
    raise AssertionError("nobody asks here")


def bounded(most: int = 100, most_bytes: int = 1000) -> Connections:
    return Connections(
        most=most,
        most_http=100,
        most_http_bytes=10**6,
        most_bytes=most_bytes,
        stalled_s=1,
        failed=refused,
    )


def test_the_number_of_admitted_connections_is_limited() -> None:
    """One ends before another is admitted; refused ones are counted."""
    connections = bounded(most=2)
    first, second, third = (connection()[1] for _ in range(3))
    assert [connections.admit(each) for each in (first, second, third)] == [True, True, False]
    assert (len(connections), connections.refused) == (2, 1)
    connections.forget(first)
    connections.forget(first)
    assert connections.admit(third)


def test_the_connections_with_most_bytes_are_closed() -> None:
    """Neither the last one nor small ones are closed; as many are closed as needed."""
    connections = bounded(most_bytes=1000)
    (large, a), (larger, b), (small, c), (late, d) = (connection() for _ in range(4))
    for each, size in ((a, 400), (b, 500), (c, 10)):
        connections.admit(each)
        connections.hold(each, size)
    assert connections.held_bytes == 910
    connections.admit(d)
    connections.hold(d, 100)
    assert [len(each.reasons) for each in (large, larger, small, late)] == [0, 1, 0, 0]
    assert connections.held_bytes == 510
    connections.hold(d, 2000)
    assert [len(each.reasons) for each in (large, larger, small, late)] == [0, 1, 0, 1]
    assert (connections.held_bytes, len(connections)) == (410, 2)
    assert connections.dropped == {"memory": 2, "stalled": 0, "flood": 0}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 700) | st.none()), max_size=60))
def test_held_bytes_are_the_sum_and_within_the_limit(
    steps: list[tuple[int, int | None]],
) -> None:
    """The model is a dictionary; None means that the connection is lost."""
    connections = bounded(most_bytes=1000)
    held: dict[int, Any] = {}
    everyone = [connection() for _ in range(10)]
    for number, size in steps:
        each = everyone[number][1]
        if size is None:
            connections.forget(each)
            held.pop(number, None)
            continue
        if number not in held:
            assert connections.admit(each)
        connections.hold(each, size)
        held[number] = size
        closed = [other for other, (fake, _) in enumerate(everyone) if fake.reasons]
        sizes = [held.pop(other) for other in closed]
        assert all(size >= max(held.values(), default=0) for size in sizes)
        for other in closed:
            everyone[other][0].reasons.clear()
        assert connections.held_bytes == sum(held.values()) <= 1000
        assert len(connections) == len(held)


async def test_no_websocket_starts_during_a_response() -> None:
    """The response would continue among the frames; the connection ends with it."""
    ended = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def stream(_: Request) -> Response:
        return StreamingResponse(chunks())

    app = Starlette(routes=[Route("/", stream)])
    app.state.connections = bounded()
    async with served(app) as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        assert (await reader.readuntil(b"first")).startswith(b"HTTP/1.1 200 OK")
        writer.write(
            b"GET / HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        async with asyncio.timeout(60):
            assert b"101" not in await reader.read()
            await ended.wait()
        writer.close()
