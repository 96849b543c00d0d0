"""Both WebSocket protocols: operations of every kind, and what becomes of other messages."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo.collection import Collection
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

Things = Collection[dict[str, Any]]

CHANGES = "subscription { thingChanges { kind operation documentId } }"
BOTH = pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
INVALID = 4400


def subscribers(gateway: RunningGateway) -> float:
    lines = httpx.get(f"{gateway.address}/metrics").text.splitlines()
    (line,) = (each for each in lines if each.startswith("revstream_hub_subscribers "))
    return float(line.rpartition(" ")[2])


@BOTH
async def test_queries_and_subscriptions_share_a_connection(
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """In text frames, each message under its operation's id."""
    name = f"shared-{protocol}"
    async with open_socket(gateway.address, protocol) as socket:
        await socket.start("changes", CHANGES)
        first = await socket.receive()
        assert first["id"] == "changes"
        assert first["payload"]["data"]["thingChanges"]["kind"] == "CHECKPOINT"
        assert await socket.data('{ thing(id: "a") { name } }') == {"thing": {"name": "first"}}
        things.insert_one({"_id": name})
        assert await socket.receive() == {
            "id": "changes",
            "type": "data" if protocol == LEGACY else "next",
            "payload": {
                "data": {
                    "thingChanges": {"kind": "CHANGE", "operation": "INSERT", "documentId": name}
                }
            },
        }


@BOTH
async def test_an_operation_that_is_stopped_sends_nothing_more(
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """The other one on the connection goes on, and the id is free again."""
    async with open_socket(gateway.address, protocol) as socket:
        for id_ in ("one", "two"):
            await socket.start(id_, CHANGES)
            assert (await socket.receive())["id"] == id_
        await socket.send({"id": "one", "type": "stop" if protocol == LEGACY else "complete"})
        if protocol == LEGACY:
            assert await socket.receive() == {"id": "one", "type": "complete"}
        await socket.data("{ resumeToken }")
        things.insert_one({"_id": f"stopped-{uuid4()}"})
        assert (await socket.receive())["id"] == "two"
        await socket.start("one", CHANGES)
        assert (await socket.receive())["id"] == "one"


@BOTH
async def test_a_connection_that_is_gone_leaves_no_subscriber_behind(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """Whether it said goodbye or not."""
    await eventually(lambda: subscribers(gateway) == 0)
    async with open_socket(gateway.address, protocol) as socket:
        await socket.start("1", CHANGES)
        await socket.receive()
        assert subscribers(gateway) == 1
    async with open_socket(gateway.address, protocol) as socket:
        await socket.start("1", CHANGES)
        await socket.receive()
        socket.connection.transport.abort()
    await eventually(lambda: subscribers(gateway) == 0)


@BOTH
async def test_a_document_that_cannot_be_executed_is_one_operations_error(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The connection stays open, also after a syntax error."""
    async with open_socket(gateway.address, protocol) as socket:
        for query in ("", "{", "{ nope }", "fragment F on Thing { id }", "mutation { x }"):
            (error,) = await socket.errors(query)
            assert error["extensions"] == {"code": "BAD_USER_INPUT"}, query
        assert await socket.data('{ thing(id: "a") { name } }') == {"thing": {"name": "first"}}


@BOTH
async def test_a_hundred_operations_are_enough_for_one_connection(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The next is refused with its code; once one has ended there is room again."""
    async with open_socket(gateway.address, protocol) as socket:
        for number in range(100):
            await socket.start(f"{number}", CHANGES)
            await socket.receive()
        await socket.start("one more", CHANGES)
        refused = await socket.receive()
        assert (refused["id"], refused["type"]) == ("one more", "error")
        payload = refused["payload"]
        (error,) = payload if isinstance(payload, list) else [payload]
        assert error["extensions"] == {"code": "LIMIT_EXCEEDED"}
        assert "100 operations" in error["message"]
        await socket.send({"id": "7", "type": "stop" if protocol == LEGACY else "complete"})
        if protocol == LEGACY:
            assert (await socket.receive())["type"] == "complete"
        await socket.start("7", CHANGES)
        assert (await socket.receive())["id"] == "7"


START = {"id": "1", "type": "subscribe", "payload": {"query": "{ resumeToken }"}}
MALFORMED: dict[str, object] = {
    "a list": [],
    "a number": 5,
    "null": None,
    "nothing in it": {},
    "a type that is none": {"type": ["x"]},
    "no id": {"type": "subscribe", "payload": START["payload"]},
    "an id that is no text": {**START, "id": 5},
    "an id that is a list": {**START, "id": ["x"]},
    "no payload": {"id": "1", "type": "subscribe"},
    "a payload of text": {**START, "payload": "{ resumeToken }"},
    "no query": {**START, "payload": {}},
    "a query of no text": {**START, "payload": {"query": 5}},
    "variables in a list": {**START, "payload": {"query": "{ a }", "variables": [1]}},
    "a name of no text": {**START, "payload": {"query": "{ a }", "operationName": 5}},
    "an end without id": {"type": "complete"},
}


@BOTH
@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
async def test_a_message_of_no_sense_closes_the_connection_with_a_reason(
    gateway: RunningGateway, protocol: Protocol, message: Any
) -> None:
    """Both protocols say 4400 and what is wrong."""
    if protocol == LEGACY and isinstance(message, dict):
        kinds = {"subscribe": "start", "complete": "stop"}
        kind = message.get("type")
        message = {**message, "type": kinds.get(kind, kind) if isinstance(kind, str) else kind}
    async with open_socket(gateway.address, protocol) as socket:
        await socket.send(message)
        close = await socket.closed()
        assert close is not None
        assert close.code == INVALID
        assert close.reason


@pytest.mark.parametrize("message", ["{", b"\x00", {"type": "nope"}, {"type": "x" * 500}])
async def test_the_newer_protocol_closes_on_what_it_does_not_know(
    gateway: RunningGateway, message: Any
) -> None:
    """No JSON, no text, no type of its own; a long reason is cut to what a frame holds."""
    async with open_socket(gateway.address) as socket:
        await socket.send(message)
        close = await socket.closed()
        assert close is not None
        assert close.code == INVALID


async def test_the_newer_protocol_has_its_own_codes(gateway: RunningGateway) -> None:
    """Not introduced, introduced twice, an id twice."""
    async with open_socket(gateway.address, init=False) as socket:
        await socket.start("1", CHANGES)
        close = await socket.closed()
        assert close is not None
        assert close.code == 4401
    async with open_socket(gateway.address) as socket:
        await socket.send({"type": "connection_init"})
        close = await socket.closed()
        assert close is not None
        assert close.code == 4429
    async with open_socket(gateway.address) as socket:
        await socket.start("1", CHANGES)
        await socket.start("1", CHANGES)
        close = await socket.closed()
        assert close is not None
        assert close.code == 4409


async def test_a_ping_is_answered(gateway: RunningGateway) -> None:
    """Before and after the introduction."""
    async with open_socket(gateway.address, init=False) as socket:
        await socket.send({"type": "ping"})
        assert await socket.receive() == {"type": "pong"}
        await socket.send({"type": "connection_init"})
        assert await socket.receive() == {"type": "connection_ack"}
        await socket.send({"type": "ping"})
        assert await socket.receive() == {"type": "pong"}


@pytest.mark.parametrize("protocols", [None, [Subprotocol("soap")]])
async def test_a_connection_without_a_protocol_of_ours_is_closed(
    gateway: RunningGateway, protocols: list[Subprotocol] | None
) -> None:
    """With the code that says so."""
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    async with connect(url, subprotocols=protocols) as connection:
        with pytest.raises(ConnectionClosed) as caught:
            await connection.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 4406


async def test_a_page_of_another_origin_may_not_connect(gateway: RunningGateway) -> None:
    """A browser sends where its page comes from, and could be logged in here."""
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    with pytest.raises(Exception, match="403"):
        async with connect(
            url, subprotocols=[Subprotocol(TRANSPORT)], origin="https://evil.example"
        ):
            pass
