"""Both WebSocket protocols: operations of every kind, and invalid messages."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import pytest
from pymongo.collection import Collection
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support import http
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, Socket, open_socket

Things = Collection[dict[str, Any]]

CHANGES = "subscription { thingChanges { kind operation documentId } }"
BOTH = pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
INVALID = 4400


def subscribers(gateway: RunningGateway) -> float:
    lines = http.get(f"{gateway.address}/metrics").text.splitlines()
    found = [each for each in lines if each.startswith("revstream_subscribers{")]
    return sum(float(each.rpartition(" ")[2]) for each in found)


@BOTH
async def test_queries_and_subscriptions_share_a_connection(
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """Messages are text frames with their operation's id."""
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
async def test_a_stopped_operation_sends_nothing_more(
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """The other operation on the connection continues, and the id is free again."""
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
async def test_a_closed_connection_leaves_no_subscriber(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """A connection's subscribers end with it, after a close frame or without one."""
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
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """The connection and its other operations continue, also after a syntax error."""
    name = f"going-on-{uuid4()}"
    async with open_socket(gateway.address, protocol) as socket:
        await socket.start("running", CHANGES)
        await socket.receive()
        for query in ("", "{", "{ nope }", "fragment F on Thing { id }", "mutation { x }"):
            (error,) = await socket.errors(query)
            assert error["extensions"] == {"code": "BAD_USER_INPUT"}, query
        assert await socket.data('{ thing(id: "a") { name } }') == {"thing": {"name": "first"}}
        things.insert_one({"_id": name})
        event = await socket.receive()
        assert event["id"] == "running"
        assert event["payload"]["data"]["thingChanges"]["documentId"] == name


@BOTH
async def test_a_hundred_operations_are_the_limit_of_one_connection(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The next one is refused with its code; an ended operation makes room."""
    async with open_socket(gateway.address, protocol) as socket:
        for number in range(100):
            await socket.start(f"{number}", CHANGES)
            await socket.receive()
        await socket.start("one more", CHANGES)
        refused = await socket.receive()
        assert (refused["id"], refused["type"]) == ("one more", "error")
        payload = refused["payload"]
        (error,) = payload if isinstance(payload, list) else [payload]
        assert error["extensions"] == {
            "code": "LIMIT_EXCEEDED",
            "limit": "max_connection_operations",
            "asked": 101,
            "bound": 100,
        }
        assert "operations on this connection: 101" in error["message"]
        await socket.send({"id": "7", "type": "stop" if protocol == LEGACY else "complete"})
        if protocol == LEGACY:
            assert (await socket.receive())["type"] == "complete"
        await socket.start("7", CHANGES)
        assert (await socket.receive())["id"] == "7"


START = {"id": "1", "type": "subscribe", "payload": {"query": "{ resumeToken }"}}
MALFORMED: dict[str, object] = {
    "no JSON": "{",
    "nothing": "",
    "a number that is none": "NaN",
    "half of a surrogate pair": '{"type": "\\ud800"}',
    "JSON too deep": "[" * 100_000,
    "JSON that is deep and whole": "[" * 2000 + "]" * 2000,
    "a number of 6,000 digits": '{"type": %s}' % ("1" * 6000),
    "a binary frame": b'{"type": "connection_init"}',
    "a list": [],
    "a number": 5,
    "text": '"connection_init"',
    "null": None,
    "nothing in it": {},
    "a type that is none": {"type": ["x"]},
    "a type that is null": {"type": None},
    "an unknown type": {"type": "nope"},
    "an unknown type with a long name": {"type": "é" * 500},
    "a type of the server's": {"type": "connection_ack"},
    "a result from a client": {"id": "1", "type": "next", "payload": {"data": {}}},
    "an introduction in text": {"type": "connection_init", "payload": "me"},
    "an introduction in a list": {"type": "connection_init", "payload": ["me"]},
    "no id": {"type": "subscribe", "payload": START["payload"]},
    "an id that is no text": {**START, "id": 5},
    "an id that is a list": {**START, "id": ["x"]},
    "an id that is null": {**START, "id": None},
    "an empty id": {**START, "id": ""},
    "no payload": {"id": "1", "type": "subscribe"},
    "a payload of text": {**START, "payload": "{ resumeToken }"},
    "a payload in a list": {**START, "payload": [{"query": "{ resumeToken }"}]},
    "no query": {**START, "payload": {}},
    "a query of no text": {**START, "payload": {"query": 5}},
    "a query that is null": {**START, "payload": {"query": None}},
    "variables in a list": {**START, "payload": {"query": "{ a }", "variables": [1]}},
    "variables in text": {**START, "payload": {"query": "{ a }", "variables": "{}"}},
    "a name of no text": {**START, "payload": {"query": "{ a }", "operationName": 5}},
    "extensions in a list": {**START, "payload": {"query": "{ a }", "extensions": []}},
    "an end without id": {"type": "complete"},
    "an end with a number": {"id": 1, "type": "complete"},
}


@BOTH
@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
async def test_an_invalid_message_closes_the_connection_with_a_reason(
    gateway: RunningGateway, protocol: Protocol, message: Any
) -> None:
    """The code is 4400 in both protocols, and the reason is as long as a frame allows.

    The older protocol has it in a message, too.
    """
    if protocol == LEGACY and isinstance(message, dict):
        kinds = {"subscribe": "start", "complete": "stop", "next": "data"}
        kind = message.get("type")
        message = {**message, "type": kinds.get(kind, kind) if isinstance(kind, str) else kind}
    async with open_socket(gateway.address, protocol) as socket:
        await socket.send(message)
        if protocol == LEGACY:
            assert (await socket.receive())["type"] == "connection_error"
        assert await code_of(socket) == INVALID


async def code_of(socket: Socket) -> int:
    """Return the close code of the socket; a reason must be present."""
    close = await socket.closed()
    assert close is not None, "1006"
    assert close.reason
    return close.code


@BOTH
async def test_invalid_messages_are_refused_before_the_init_message_too(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """An operation does not start before the acknowledgement."""
    async with open_socket(gateway.address, protocol, init=False) as socket:
        await socket.send("{")
        assert await code_of(socket) == INVALID
    async with open_socket(gateway.address, protocol, init=False) as socket:
        await socket.start("1", CHANGES)
        assert await code_of(socket) == 4401


@BOTH
async def test_a_missing_init_message_closes_the_connection(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The time limit is three seconds; pings do not extend it."""
    began = time.monotonic()
    async with open_socket(gateway.address, protocol, init=False) as socket:
        if protocol == TRANSPORT:
            await socket.send({"type": "ping"})
        assert await code_of(socket) == 4408
    assert time.monotonic() - began >= 3


@BOTH
async def test_a_second_init_message_closes_the_connection(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The first one may be accepted or pending."""
    async with open_socket(gateway.address, protocol) as socket:
        await socket.send({"type": "connection_init"})
        assert await code_of(socket) == 4429
    async with open_socket(gateway.address, protocol, init=False) as socket:
        for _ in range(2):
            await socket.send({"type": "connection_init", "payload": {}})
        assert await code_of(socket) == 4429


async def test_an_id_that_is_in_use_closes_the_connection(gateway: RunningGateway) -> None:
    """The newer protocol refuses an id in use; the id of an ended operation is free again."""
    async with open_socket(gateway.address) as socket:
        for _ in range(2):
            assert await socket.data("{ resumeToken }")
        await socket.start("1", CHANGES)
        await socket.start("1", CHANGES)
        assert await code_of(socket) == 4409


async def test_an_id_that_is_in_use_is_restarted_in_the_older_protocol(
    gateway: RunningGateway, things: Things
) -> None:
    """The older protocol ends the first operation with that id, as its own server does."""
    name = f"anew-{uuid4()}"
    async with open_socket(gateway.address, LEGACY) as socket:
        await socket.start("1", CHANGES)
        assert (await socket.receive())["type"] == "data"
        await socket.start("1", CHANGES)
        assert await socket.receive() == {"id": "1", "type": "complete"}
        assert (await socket.receive())["type"] == "data"
        things.insert_one({"_id": name})
        change = (await socket.receive())["payload"]["data"]["thingChanges"]
        assert change["documentId"] == name
        assert await socket.data("{ resumeToken }")


@pytest.mark.parametrize("payload", [{}, None, {"token": "x"}])
@BOTH
async def test_an_init_message_may_have_any_payload(
    gateway: RunningGateway, protocol: Protocol, payload: Any
) -> None:
    """The payload may be missing or null."""
    async with open_socket(gateway.address, protocol, init=False) as socket:
        await socket.send({"type": "connection_init", "payload": payload})
        assert await socket.receive() == {"type": "connection_ack"}
        assert await socket.data("{ resumeToken }")


async def test_a_ping_is_answered_with_its_payload(gateway: RunningGateway) -> None:
    """This holds before and after the init message."""
    async with open_socket(gateway.address, init=False) as socket:
        await socket.send({"type": "ping"})
        assert await socket.receive() == {"type": "pong"}
        await socket.send({"type": "connection_init"})
        assert await socket.receive() == {"type": "connection_ack"}
        await socket.send({"type": "ping", "payload": {"sent": 7}})
        assert await socket.receive() == {"type": "pong", "payload": {"sent": 7}}


async def test_an_unrequested_pong_is_accepted(gateway: RunningGateway) -> None:
    """It may have a payload: it is a heartbeat."""
    async with open_socket(gateway.address) as socket:
        for payload in ({}, {"payload": {"alive": True}}, {"payload": None}):
            await socket.send({"type": "pong", **payload})
        assert await socket.data("{ resumeToken }")


async def test_the_older_protocol_keeps_its_connections(gateway: RunningGateway) -> None:
    """The first `ka` follows the acknowledgement at once; its client counts from there on."""
    async with open_socket(gateway.address, LEGACY, init=False) as socket:
        await socket.send({"type": "connection_init"})
        received = [json.loads(await socket.connection.recv()) for _ in range(2)]
        assert received == [{"type": "connection_ack"}, {"type": "ka"}]


async def test_the_older_protocol_has_a_message_to_close(gateway: RunningGateway) -> None:
    """The close code is 1000."""
    async with open_socket(gateway.address, LEGACY) as socket:
        await socket.send({"type": "connection_terminate"})
        close = await socket.closed()
        assert close is not None
        assert close.code == 1000


@BOTH
async def test_the_end_of_an_unknown_operation_is_ignored(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """Client and server may end an operation at the same time."""
    async with open_socket(gateway.address, protocol) as socket:
        await socket.send({"id": "q", "type": "stop" if protocol == LEGACY else "complete"})
        assert await socket.data("{ resumeToken }")


@BOTH
async def test_too_deep_nesting_is_an_error_of_its_operation(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """Variables have almost the maximum depth of JSON, and a document the maximum of text."""
    kind = "start" if protocol == LEGACY else "subscribe"
    document = "query ($where: ThingWhere) { things(where: $where) { nodes { id } } }"
    deep = '{"not":' * 1000 + "{}" + "}" * 1000
    async with open_socket(gateway.address, protocol) as socket:
        for query, where in ((document, deep), ("{ things" + "{ nodes " * 1000, "null")):
            await socket.send(
                f'{{"id": "1", "type": "{kind}", "payload": '
                f'{{"query": "{query}", "variables": {{"where": {where}}}}}}}'
            )
            answer = await socket.receive()
            text = json.dumps(answer)
            assert "BAD_USER_INPUT" in text or "LIMIT_EXCEEDED" in text
            if answer["type"] != "error":
                assert await socket.receive() == {"id": "1", "type": "complete"}
        assert await socket.data("{ resumeToken }")


@pytest.mark.parametrize("protocols", [None, [Subprotocol("soap")]])
async def test_a_connection_without_a_supported_protocol_is_closed(
    gateway: RunningGateway, protocols: list[Subprotocol] | None
) -> None:
    """The close code is 4406."""
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    async with connect(url, subprotocols=protocols) as connection:
        with pytest.raises(ConnectionClosed) as caught:
            await connection.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 4406


async def test_a_page_of_another_origin_may_not_connect(gateway: RunningGateway) -> None:
    """A browser sends the origin of its page, which could be logged in here."""
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    with pytest.raises(Exception, match="403"):
        async with connect(
            url, subprotocols=[Subprotocol(TRANSPORT)], origin="https://evil.example"
        ):
            pass
