"""Limits of WebSockets in a process: their number, and the memory that each may cost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.protocol.conftest import MODEL
from tests.support import http
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.metrics import scraped
from tests.support.rude import rude_socket
from tests.support.sockets import TRANSPORT, open_socket

Client = MongoClient[dict[str, Any]]
Things = Collection[dict[str, Any]]

CHANGES = "subscription { thingChanges { documentId thing { name } } }"
EVENTS, EVENT_BYTES = 50, 20_000
SOCKETS = 300
SOCKETS_BYTES = 4_000_000
MESSAGE_BYTES = 100_000
STALLED_S = 1.0
# The memory of a subscriber on a socket of its own: 49 KB are measured (benchmarks/memory.py), and
# twice as much is allowed for unread messages.
SOCKET_BYTES = 100_000


@pytest.fixture(scope="module")
def tight(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, Things]]:
    """Run a gateway with narrow limits; at the end it must still run, without an internal error."""
    model = tmp_path_factory.mktemp("tight") / "schema.graphql"
    model.write_text(MODEL)
    name = "connections_of_few"
    options = {
        "--sockets": SOCKETS,
        "--sockets-bytes": SOCKETS_BYTES,
        "--socket-message-bytes": MESSAGE_BYTES,
        "--socket-stalled-s": STALLED_S,
    }
    given = [str(each) for option in options.items() for each in option]
    with running_gateway(mongo_uri, name, model, *given) as running:
        yield running, client[name]["things"]
        assert running.process.poll() is None
        assert running.stop() == 0
    client.drop_database(name)
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture
def gateway(tight: tuple[RunningGateway, Things]) -> RunningGateway:
    return tight[0]


@pytest.fixture
def things(tight: tuple[RunningGateway, Things]) -> Things:
    return tight[1]


def metric(gateway: RunningGateway, name: str, *labels: str) -> float:
    return scraped(gateway.address)[(f"revstream_{name}", *labels)]


def resident_bytes(gateway: RunningGateway) -> int:
    pages = Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


async def test_a_socket_beyond_the_limit_is_refused_with_retry_after(
    gateway: RunningGateway,
) -> None:
    """The refusal is an error like any other.

    Requests are answered meanwhile, and the next socket is accepted once another is closed.
    """
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    await eventually(lambda: metric(gateway, "sockets") == 0)
    refused = metric(gateway, "sockets_refused_total")
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(open_socket(gateway.address)) for _ in range(SOCKETS)
        ]
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, subprotocols=[Subprotocol(TRANSPORT)])
        response = caught.value.response
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        assert response.body is not None
        (error,) = json.loads(response.body)["errors"]
        assert error["extensions"] == {"code": "UNAVAILABLE", "retryAfterSeconds": 5}
        assert f"open WebSockets: {SOCKETS}, maximum" in error["message"]
        assert metric(gateway, "sockets") == SOCKETS
        assert metric(gateway, "sockets_refused_total") == refused + 1
        assert gateway.query("{ resumeToken }")
        await sockets[0].connection.close()
        await eventually(lambda: metric(gateway, "sockets") == SOCKETS - 1)
        async with open_socket(gateway.address) as another:
            assert await another.data("{ resumeToken }")


async def test_a_message_that_is_too_long_is_refused(gateway: RunningGateway) -> None:
    """It is sent at once or in short fragments; the close reason names the limit."""
    async with open_socket(gateway.address) as socket:
        await socket.start("long", "{ resumeToken }" + " " * (MESSAGE_BYTES - 1000))
        assert (await socket.receive())["type"] == "next"
        assert (await socket.receive())["type"] == "complete"
        await socket.send("x" * (MESSAGE_BYTES + 1))
        close = await socket.closed()
        assert close is not None
        assert close.code == 1009
    async with open_socket(gateway.address) as socket:
        await socket.connection.send("x" * 30_000 for _ in range(5))  # type: ignore[arg-type]
        close = await socket.closed()
        assert close is not None
        assert close.code == 1009


async def test_text_that_is_not_utf_8_closes_the_connection_without_an_error_in_the_log(
    gateway: RunningGateway,
) -> None:
    """The code is RFC 6455's."""
    async with open_socket(gateway.address) as socket:
        await socket.connection.send(b'{"type": "ping", "payload": {"\xff": 1}}', text=True)
        close = await socket.closed()
        assert close is not None
        assert close.code == 1007


async def test_unfinished_messages_have_a_limit_of_memory(
    gateway: RunningGateway,
) -> None:
    """Connections with most bytes are closed with a reason; senders of whole messages stay."""
    dropped = metric(gateway, "sockets_dropped_total", "memory")
    async with open_socket(gateway.address) as good:
        with ExitStack() as stack:
            rude = [stack.enter_context(rude_socket(gateway.address)) for _ in range(80)]
            for each in rude:
                each.begin_message(MESSAGE_BYTES, MESSAGE_BYTES * 9 // 10)
            # 80 messages of 90 KB are 7.2 MB, and the limit is 4 MB.
            await eventually(
                lambda: metric(gateway, "sockets_dropped_total", "memory") > dropped + 30
            )
            assert metric(gateway, "sockets_buffered_bytes") <= SOCKETS_BYTES
            assert await good.data("{ resumeToken }")
            closes = [each.closed() for each in rude]
        # The others were closed because they sent no init message.
        codes = [None if each is None else each.code for each in closes]
        assert set(codes) == {1013, 4408}
    await eventually(lambda: metric(gateway, "sockets") == 0)
    assert metric(gateway, "sockets_buffered_bytes") == 0


async def test_a_client_that_never_reads_is_closed_and_others_miss_nothing(
    gateway: RunningGateway, things: Things
) -> None:
    """A client that reads receives every message, in order."""
    stalled = metric(gateway, "sockets_dropped_total", "stalled")
    names = [f"stalled-{number}" for number in range(60)]
    async with open_socket(gateway.address) as good:
        await good.start("1", CHANGES)
        await good.receive()
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(rude_socket(gateway.address)).subscribe(CHANGES)
            await eventually(lambda: metric(gateway, "subscriptions", "things") == 6)
            things.insert_many([{"_id": name, "name": "x" * 100_000} for name in names])
            seen = []
            while len(seen) < len(names):
                change = (await good.receive())["payload"]["data"]["thingChanges"]
                seen.append(change["documentId"])
            assert seen == names
            await eventually(
                lambda: metric(gateway, "sockets_dropped_total", "stalled") == stalled + 5
            )
            assert metric(gateway, "subscriptions", "things") == 1
        await good.send({"id": "1", "type": "complete"})
        assert await good.data("{ resumeToken }")
    await eventually(lambda: metric(gateway, "sockets") == 0)


async def test_pings_without_reading_the_pongs_end_the_connection(
    gateway: RunningGateway,
) -> None:
    """These are WebSocket frames: the gateway stops reading them, and closes."""
    before = resident_bytes(gateway)
    dropped = metric(gateway, "sockets_dropped_total", "stalled")
    with rude_socket(gateway.address) as rude:
        rude.say(type="connection_init")
        sent = await asyncio.to_thread(rude.flood_pings, 200_000_000)
        await eventually(lambda: metric(gateway, "sockets_dropped_total", "stalled") == dropped + 1)
    # The kernel's buffers on both sides, and one chunk of the gateway's.
    assert sent < 50_000_000
    assert resident_bytes(gateway) - before < 20_000_000


async def test_hundreds_of_messages_at_once_are_too_many(gateway: RunningGateway) -> None:
    """The limit of messages is that of a client's operations."""
    async with open_socket(gateway.address) as socket:
        for _ in range(200):
            await socket.send({"type": "ping"})
        assert [await socket.receive() for _ in range(200)] == [{"type": "pong"}] * 200
    flooded = metric(gateway, "sockets_dropped_total", "flood")
    with rude_socket(gateway.address) as rude:
        rude.say_often(3000, type="ping")
        close = rude.closed()
        assert close is None or close.code == 1013
    assert metric(gateway, "sockets_dropped_total", "flood") == flooded + 1


async def test_a_request_that_does_not_arrive_is_not_awaited(gateway: RunningGateway) -> None:
    """The connection is closed if nothing arrives, or headers without an end, slowly or at once."""
    at = urlsplit(gateway.address)
    began = time.monotonic()

    async def ended(sent: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        try:
            writer.write(sent)
            with suppress(ConnectionError):
                return await reader.read()
            return b""
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    beginning = b"POST /graphql HTTP/1.1\r\nHost: x\r\n"
    nothing, some, much = await asyncio.gather(
        ended(b""), ended(beginning), ended(beginning + b"x: " + b"y" * 100_000)
    )
    assert time.monotonic() - began < 60
    assert nothing == some == b""
    assert much.startswith(b"HTTP/1.1 431")
    assert gateway.query("{ resumeToken }")


async def test_many_sockets_that_send_garbage_or_never_read_stay_within_the_limit(
    gateway: RunningGateway, things: Things
) -> None:
    """There are 300 sockets here.

    `python -m benchmarks sockets` has 5,000 and measures the delay of others.
    """
    await eventually(lambda: metric(gateway, "sockets") == 0)
    before = resident_bytes(gateway)
    each_kind = SOCKETS // 3 - 1
    most = before
    with ExitStack() as stack:
        for _ in range(each_kind):
            stack.enter_context(rude_socket(gateway.address)).subscribe(CHANGES)
            stack.enter_context(rude_socket(gateway.address)).begin_message(MESSAGE_BYTES, 50_000)
            stack.enter_context(rude_socket(gateway.address)).plain.sendall(b"\xff" * 1000)
        async with open_socket(gateway.address) as good:
            await good.start("1", CHANGES)
            await good.receive()
            for number in range(EVENTS):
                things.insert_one({"_id": f"crowd-{number}", "name": "y" * EVENT_BYTES})
                change = (await good.receive())["payload"]["data"]["thingChanges"]
                assert change["documentId"] == f"crowd-{number}"
                most = max(most, resident_bytes(gateway))
            assert http.get(f"{gateway.address}/livez").status_code == 200
            assert metric(gateway, "sockets_buffered_bytes") <= SOCKETS_BYTES
    # The ring holds the events, once as bytes and once as serialized messages.
    bound = SOCKETS_BYTES + SOCKETS * SOCKET_BYTES + EVENTS * EVENT_BYTES * 4
    assert most - before < bound, f"{most - before:,} bytes more, {bound:,} allowed"
    await eventually(lambda: metric(gateway, "sockets") == 0)
