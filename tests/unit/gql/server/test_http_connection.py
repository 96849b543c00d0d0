"""HTTP connection: every request, complete or not, gets a response or an end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from revstream.gql.http.request import Refused
from revstream.gql.server import http_connection
from revstream.gql.server.client_presence import while_client_waits
from revstream.gql.server.http_connection_limit import RESERVE
from revstream.gql.server.websocket_connection import Connections
from tests.support.eventually import eventually
from tests.support.serving import served

POST = b"POST / HTTP/1.1\r\nHost: shop\r\n"
HANDSHAKE = (
    b"GET /socket HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
)


def refused(exc: Exception) -> Response:
    return JSONResponse({"refused": str(exc)}, exc.status if isinstance(exc, Refused) else 503)


class Shop:
    """An application that records its requests.

    `going` counts requests for /wait and /late, `left` those whose client disconnected, `executed`
    the others.
    """

    def __init__(self, most_http: int = 100) -> None:
        self.going = self.left = self.executed = 0
        self.go_on = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/", self.echo, methods=["GET", "POST"]),
                Route("/early", self.early, methods=["POST"]),
                Route("/wait", self.wait),
                Route("/late", self.late),
                Route("/livez", self.early),
                WebSocketRoute("/socket", self.socket),
            ]
        )
        self.connections = self.app.state.connections = Connections(
            most=10,
            most_http=most_http,
            most_http_bytes=10**6,
            most_bytes=10**6,
            stalled_s=60,
            failed=refused,
        )

    async def echo(self, request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response()
        # Read after the body: late headers would be among them.
        names = sorted(name.decode() for name, _ in request.scope["headers"])
        return JSONResponse({"names": names, "size": len(body)})

    async def early(self, _: Request) -> Response:
        return Response("early", 413)

    async def wait(self, _: Request) -> Response:
        self.going += 1
        await self.go_on.wait()
        return Response("waited")

    async def late(self, request: Request) -> Response:
        self.going += 1
        await self.go_on.wait()
        try:
            with while_client_waits(request.scope):
                self.executed += 1
        except ClientDisconnect:
            self.left += 1
        return Response("done")

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(address: str, *parts: bytes) -> tuple[int, Any]:
    """Send the parts, and return the status and the body after the last head."""
    async with opened(address) as (reader, writer), asyncio.timeout(10):
        for part in parts:
            writer.write(part)
            with suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.read()
    head, _, body = answer.rpartition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_trailers_are_no_headers() -> None:
    """A proxy that strips a header lets it pass in a trailer."""
    shop = Shop()
    chunked = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
    async with served(shop.app) as address:
        trailers = b"X-User: the-ceo\r\nAuthorization: Bearer x\r\n\r\n"
        status, body = await exchange(address, POST + chunked + trailers)
        assert status == 200
        assert json.loads(body) == {
            "names": ["connection", "host", "transfer-encoding"],
            "size": 2,
        }
        # A trailer does not turn the request into a handshake either.
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        assert (await exchange(address, POST + chunked + upgrade))[0] == 200


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"Content-Length: 5\r\n\r\nhello", 400),
        (b"Content-Length: 1000000000\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (b"X-Long: " + b"y" * 9000 + b"\r\n\r\n", 431),
        (b"X: y\r\n" * 130 + b"\r\n", 431),
        (b"X-Longer: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"Content-Length: 0\r\n\r\n", 101),
        (b"\r\n", 101),
    ],
    ids=["body", "body-to-come", "chunked", "long", "many", "too-long", "no-body", "plain"],
)
async def test_any_handshake_gets_a_response(more: bytes, status: int) -> None:
    """Its connection ends then, and is not counted any longer."""
    shop = Shop()
    async with served(shop.app) as address:
        async with opened(address) as (reader, writer), asyncio.timeout(10):
            writer.write(HANDSHAKE + more)
            answer = await reader.read()
        assert int(answer.split()[1]) == status, answer
        await eventually(lambda: len(shop.connections.http) == len(shop.connections) == 0)


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_head_beyond_the_limit_is_refused(pieces: int) -> None:
    """The status is 431, in any pieces; a head within the limit is served."""
    shop = Shop()
    async with served(shop.app) as address:
        for size, expected in ((60_000, 200), (66_000, 431), (300_000, 431)):
            lines = b"".join(b"x-%d: %b\r\n" % (n, b"y" * 990) for n in range(size // 1000))
            raw = POST + lines + b"Connection: close\r\n\r\n"
            step = len(raw) // pieces + 1
            parts = [raw[n : n + step] for n in range(0, len(raw), step)]
            status, body = await exchange(address, *parts)
            assert status == expected, (size, body)
            if expected == 431:
                assert "maximum" in json.loads(body)["refused"]


async def test_a_line_without_an_end_is_refused() -> None:
    """It is never passed on as a header."""
    async with served(Shop().app) as address:
        for parts in ([b"y" * 100_000], [b"y" * 10_000 for _ in range(30)]):
            status, _ = await exchange(address, POST + b"X: ", *parts)
            assert status == 431
            status, _ = await exchange(address, POST + b"X: " + parts[0], *parts[1:])
            assert status == 431


async def test_a_trailer_without_an_end_is_refused() -> None:
    """It is buffered until it ends; parts of a body that are larger than a head are not."""
    chunked = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    async with served(Shop().app) as address:
        status, _ = await exchange(address, chunked + b"0\r\nX: ", *[b"y" * 10_000] * 30)
        assert status == 431
        part = b"y" * 100_000
        status, _ = await exchange(
            address, chunked, *[b"186a0\r\n" + part + b"\r\n"] * 5, b"0\r\n\r\n"
        )
        assert status == 200
        length = POST + b"Content-Length: 500000\r\nConnection: close\r\n\r\n"
        assert (await exchange(address, length, *[part] * 5))[0] == 200


async def test_large_bodies_of_consecutive_requests_are_read() -> None:
    """Their bytes may arrive in any pieces."""
    async with served(Shop().app) as address, opened(address) as (reader, writer):
        first = POST + b"Content-Length: 200000\r\n\r\n"
        second = POST + b"Content-Length: 200000\r\nConnection: close\r\n\r\n"
        raw = first + b"y" * 200_000 + second + b"z" * 200_000
        for start, end in ((0, 150_000), (150_000, 260_000), (260_000, len(raw))):
            writer.write(raw[start:end])
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    "second",
    [POST + b"X: " + b"y" * 70_000 + b"\r\n\r\n", HANDSHAKE + b"Content-Length: 5\r\n\r\nhello"],
    ids=["long", "handshake"],
)
async def test_a_refusal_is_not_the_response_to_the_request_before(second: bytes) -> None:
    """The earlier request is pending, and its connection gets no response any more."""
    shop = Shop()
    async with served(shop.app) as address, opened(address) as (reader, writer):
        writer.write(b"GET /wait HTTP/1.1\r\nHost: shop\r\n\r\n")
        await eventually(lambda: shop.going == 1)
        writer.write(second)
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        shop.go_on.set()


async def test_a_request_whose_client_disconnected_is_not_executed() -> None:
    """It waited for the keys of its authentication."""
    shop = Shop()
    async with served(shop.app) as address:
        async with opened(address) as (_, writer):
            writer.write(b"GET /late HTTP/1.1\r\nHost: shop\r\n\r\n")
            await eventually(lambda: shop.going == 1)
        await eventually(lambda: len(shop.connections.http) == 0)
        shop.go_on.set()
        await eventually(lambda: shop.left == 1)
        assert shop.executed == 0
        async with opened(address) as (reader, writer), asyncio.timeout(10):
            writer.write(b"GET /late HTTP/1.1\r\nHost: shop\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
        assert shop.executed == 1


def drip(writer: asyncio.StreamWriter, part: bytes) -> asyncio.Task[None]:
    async def dripping() -> None:
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)

    return asyncio.create_task(dripping())


@pytest.mark.parametrize(
    ("head", "dripped", "status"),
    [
        (POST + b"Content-Length: 100000\r\n\r\n", b"y", 408),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\ny\r\n", 408),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n", 408),
        (POST.replace(b"/ ", b"/early ") + b"Content-Length: 100000\r\n\r\n", b"y", 413),
        (b"", b"\r\n", None),
    ],
    ids=["body", "chunks", "trailers", "rest", "nothing"],
)
async def test_slow_requests_are_not_awaited(
    monkeypatch: pytest.MonkeyPatch, head: bytes, dripped: bytes, status: int | None
) -> None:
    """Bodies, trailers, the rest of a refused body, and empty lines before a request are slow."""
    monkeypatch.setattr(http_connection, "_BODY_S", 0.3)
    monkeypatch.setattr(http_connection, "_HEAD_S", 0.3)
    monkeypatch.setattr(http_connection, "_PARTING_S", 0.3)
    async with served(Shop().app) as address, opened(address) as (reader, writer):
        writer.write(head)
        dripping = drip(writer, dripped)
        async with asyncio.timeout(10):
            answer = b""
            with suppress(ConnectionError):
                while more := await reader.read(1000):
                    answer += more
            await eventually(writer.is_closing)
        dripping.cancel()
        assert (int(answer.split()[1]) if answer else None) == status


async def test_a_body_that_arrives_fast_enough_is_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes longer than the time limit of a slow one."""
    monkeypatch.setattr(http_connection, "_BODY_S", 0.2)
    async with served(Shop().app) as address, opened(address) as (reader, writer):
        writer.write(POST + b"Connection: close\r\nContent-Length: 200000\r\n\r\n")
        for _ in range(20):
            writer.write(b"y" * 10_000)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            assert b'"size":200000' in await reader.read()


async def ask(address: str, path: str) -> tuple[int, Any]:
    head = f"GET {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n"
    return await exchange(address, head.encode())


async def test_idle_connections_are_closed_for_new_ones_and_health_is_always_served() -> None:
    """The oldest idle ones are closed first; pending responses are not."""
    shop = Shop(most_http=3)
    connections = shop.connections.http
    async with served(shop.app) as address:
        silent = [await asyncio.open_connection(*address.split(":")) for _ in range(3)]
        await eventually(lambda: len(connections) == 3)
        assert (await ask(address, "/"))[0] == 200
        async with asyncio.timeout(10):
            assert await silent[0][0].read() == b""
        assert connections.displaced == 1
        waiting = [asyncio.create_task(ask(address, "/wait")) for _ in range(3)]
        await eventually(lambda: shop.going == 3)
        assert (await ask(address, "/livez"))[0] == 413
        status, body = await ask(address, "/")
        assert status == 503
        assert b"HTTP connections" in body
        before = connections.displaced
        beyond = [await asyncio.open_connection(*address.split(":")) for _ in range(5)]
        # Each idle connection is closed for the next one.
        await eventually(lambda: connections.displaced == before + 4)
        assert (await ask(address, "/livez"))[0] == 413
        shop.go_on.set()
        assert [each[0] for each in await asyncio.gather(*waiting)] == [200] * 3
        for _, writer in (*silent, *beyond):
            writer.close()
        await eventually(lambda: len(connections) == 0)


def test_the_limits_of_connections_fit_the_file_descriptors() -> None:
    """Some descriptors are reserved."""
    connections = Shop(most_http=5000).connections
    connections.most = 10_000
    assert connections.fit(20_000)
    assert not connections.fit(724)
    assert connections.http.most + connections.most + RESERVE <= 724
    assert connections.http.most == 181


def test_a_client_that_disconnects_with_a_pipelined_request_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The executing request is notified, and not only the next one."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})
        ended.set()

    async def ask() -> None:
        shop = Shop()
        shop.app.routes.append(Mount("/going", answer))
        async with served(shop.app) as address, asyncio.timeout(10):
            async with opened(address) as (_, writer):
                writer.write(2 * b"GET /going/ HTTP/1.1\r\nHost: shop\r\n\r\n")
                await begun.wait()
            await ended.wait()

    # asyncio's own transports accept writes after their end.
    uvloop.run(ask())
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []
