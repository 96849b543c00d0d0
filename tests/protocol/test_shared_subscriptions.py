"""Broadcast groups: executed once, sent to all, each subscription complete and in order."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx2 as httpx
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support.event_streams import open_stream
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway
from tests.support.metrics import scraped
from tests.support.sockets import LEGACY, TRANSPORT, Socket, open_socket

Things = Collection[dict[str, Any]]

CHANGES = """
subscription($after: ResumeToken, $name: String) {
  thingChanges(after: $after, where: {name: {eq: $name}}) {
    kind operation resumeToken documentId thing { id name version }
  }
}
"""


async def changes(socket: Socket, count: int) -> list[dict[str, Any]]:
    """Return the next changes of its only subscription."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        message = await socket.receive()
        kind = "data" if socket.protocol == LEGACY else "next"
        assert (message["id"], message["type"]) == ("s", kind), message
        change = message["payload"]["data"]["thingChanges"]
        if change["kind"] == "CHANGE":
            found.append(change)
    return found


async def started(socket: Socket, name: str, after: str | None = None) -> None:
    await socket.start("s", CHANGES, name=name, after=after)
    if after is None:
        first = (await socket.receive())["payload"]["data"]["thingChanges"]
        assert first["kind"] == "CHECKPOINT"


async def shared(gateway: RunningGateway, count: int) -> None:
    """Wait until so many subscriptions are in a group."""
    await eventually(
        lambda: scraped(gateway.address)["revstream_subscriptions_shared", "things"] == count
    )


async def test_one_execution_serves_all_subscriptions_in_order(
    gateway: RunningGateway, things: Things
) -> None:
    """Late, leaving and other subscriptions change nothing."""
    name, other = uuid4().hex, uuid4().hex
    ids = [f"{name}-{number:03}" for number in range(60)]
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(open_socket(gateway.address)) for _ in range(10)]
        for each in sockets[:8]:
            await started(each, name)
        stranger = await stack.enter_async_context(open_socket(gateway.address))
        await started(stranger, other)
        await shared(gateway, 7)
        things.insert_many([{"_id": each, "name": name} for each in ids[:20]])
        things.insert_one({"_id": other, "name": other})
        received = await asyncio.gather(*(changes(each, 20) for each in sockets[:8]))
        # One resumes from the first token, one from the middle; one leaves.
        await started(sockets[8], name, received[0][0]["resumeToken"])
        await started(sockets[9], name, received[3][9]["resumeToken"])
        await sockets[1].send({"id": "s", "type": "complete"})
        things.insert_many([{"_id": each, "name": name} for each in ids[20:]])
        received += await asyncio.gather(changes(sockets[8], 59), changes(sockets[9], 50))
        more = await asyncio.gather(*(changes(sockets[n], 40) for n in (0, *range(2, 8))))
        assert [each["documentId"] for each in received[8]] == ids[1:]
        assert [each["documentId"] for each in received[9]] == ids[10:]
        for first, rest in zip((received[0], *received[2:8]), more, strict=True):
            assert [each["documentId"] for each in first + rest] == ids
            assert first + rest == [received[0][0], *received[8]]
        assert [each["documentId"] for each in await changes(stranger, 1)] == [other]
        await shared(gateway, 9)
    await shared(gateway, 0)


async def test_a_slow_subscription_leaves_the_group_and_misses_nothing(
    gateway: RunningGateway, things: Things
) -> None:
    """The group receives every event."""
    name = uuid4().hex
    async with AsyncExitStack() as stack:
        alone, well, ill = [
            await stack.enter_async_context(open_socket(gateway.address)) for _ in range(3)
        ]
        for each in (alone, well, ill):
            await each.start("s", LONG, id=name)
            assert (await each.receive())["payload"]["data"]["thingChanges"]["kind"] == "CHECKPOINT"
        await shared(gateway, 2)
        ill.connection.transport.pause_reading()
        for number in range(MANY):
            await _replace(things, name, number)
            assert [await _number(each) for each in (alone, well)] == [number, number]
            if number == 0:
                # The first has joined.
                await shared(gateway, 3)
        # All but the slow one.
        await shared(gateway, 2)
        ill.connection.transport.resume_reading()
        assert [await _number(ill) for _ in range(MANY)] == list(range(MANY))


async def test_every_transport_is_served_by_the_same_execution(
    gateway: RunningGateway, things: Things
) -> None:
    """All transports have the same changes in the same order.

    The id of an event is its token; a client that reconnects with `Last-Event-ID` resumes after
    it.
    """
    name = uuid4().hex
    ids = [f"{name}-{number:03}" for number in range(30)]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        sockets = [
            await enter(open_socket(gateway.address, protocol))
            for protocol in (TRANSPORT, LEGACY, LEGACY)
        ]
        for each in sockets:
            await started(each, name)
        streams = [
            await enter(open_stream(gateway.address, CHANGES, name=name)),
            await enter(open_stream(gateway.address, CHANGES, name=name)),
        ]
        parts = await enter(open_parts(gateway.address, CHANGES, name=name))
        await shared(gateway, 5)
        things.insert_many([{"_id": each, "name": name} for each in ids])
        received = [await changes(each, len(ids)) for each in sockets]
        events = [[await each.change() for _ in ids] for each in streams]
        received.append([change for change in [await anext(parts) for _ in range(31)] if change])
        assert [each["documentId"] for each in received[0]] == ids
        assert received[0] == received[1] == received[2] == received[3]
        for each in events:
            assert [change.pop("id") for change in each] == [c["resumeToken"] for c in received[0]]
            assert each == received[0]
        token = received[0][9]["resumeToken"]
        again = await enter(open_stream(gateway.address, CHANGES, name=name, last=token))
        assert [(await again.change())["documentId"] for _ in ids[10:]] == ids[10:]
        await shared(gateway, 7)
        # One operation of the older protocol ends, the others continue.
        await sockets[1].send({"id": "s", "type": "stop"})
        while (await sockets[1].receive())["type"] != "complete":
            pass
        await shared(gateway, 6)
        things.update_one({"_id": ids[0]}, {"$set": {"more": 1}})
        assert [(await changes(each, 1))[0]["documentId"] for each in (sockets[0], sockets[2])] == [
            ids[0],
            ids[0],
        ]
        assert (await again.change())["documentId"] == ids[0]
    await shared(gateway, 0)


async def test_a_stream_that_is_not_read_leaves_the_group_and_misses_nothing(
    gateway: RunningGateway, things: Things
) -> None:
    """It has the flow control of a single response."""
    name = uuid4().hex
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        alone = await enter(open_socket(gateway.address))
        await alone.start("s", LONG, id=name)
        await alone.receive()
        well = await enter(open_stream(gateway.address, LONG, id=name))
        reader = await enter(unread(gateway.address, LONG, id=name))
        await shared(gateway, 2)
        for number in range(MANY):
            await _replace(things, name, number)
            # The first one joins, too: otherwise it might be the slow one.
            assert await _number(alone) == number
            assert (await well.change())["thing"]["name"] == f"{number}{TEXT}"
            if number == 0:
                await shared(gateway, 3)
        await shared(gateway, 2)
        found: list[int] = []
        while len(found) < MANY:
            line = await reader.readline()
            if line.startswith(b"data: {") and b'"CHANGE"' in line:
                change = json.loads(line[6:])["data"]["thingChanges"]
                found.append(int(change["thing"]["name"].rstrip("x")))
        assert found == list(range(MANY))


async def test_a_reconnect_storm_within_the_ring_sends_no_command_to_mongodb(
    gateway: RunningGateway, things: Things, client: MongoClient[dict[str, Any]]
) -> None:
    """Each subscription receives its events, then a checkpoint."""
    name = uuid4().hex
    ids = [f"{name}-{number:03}" for number in range(120)]
    database = client[things.database.name]

    def document_ids(messages: list[dict[str, Any]]) -> list[str]:
        assert messages[-1]["kind"] == "CHECKPOINT"
        return [each["documentId"] for each in messages[:-1]]

    async with AsyncExitStack() as stack:
        stayed = await stack.enter_async_context(open_socket(gateway.address))
        await started(stayed, name)
        things.insert_many([{"_id": each, "name": name} for each in ids])
        tokens = [each["resumeToken"] for each in await changes(stayed, len(ids))]
        sockets = [
            await stack.enter_async_context(open_socket(gateway.address)) for _ in range(200)
        ]
        # All of the writes are complete: their versions are in the archive.
        written = {"doc": {"$in": ids}}
        await eventually(lambda: database["things.versions"].count_documents(written) == len(ids))
        database.command("profile", 2)
        try:
            order = [(number * 37) % len(ids) for number in range(len(sockets))]
            for each, place in zip(sockets, order, strict=True):
                await each.start("s", CHANGES, name=name, after=tokens[place])
            for each, place in zip(sockets, order, strict=True):
                assert document_ids(await until_checkpoint(each)) == ids[place + 1 :]
            # The profiler records this command, and would record others.
            things.find_one({"_id": f"seen-{name}"})
        finally:
            database.command("profile", 0)
        commands = [
            each
            for each in database["system.profile"].find({"ns": {"$regex": r"\.things|cmd\.aggr"}})
            # Only the change streams wait for events.
            if "getMore" not in each["command"]
        ]
        database.drop_collection("system.profile")
        assert [each["command"].get("filter") for each in commands] == [{"_id": f"seen-{name}"}]


async def test_events_are_routed_to_filters_that_match_before_or_after(
    gateway: RunningGateway, things: Things
) -> None:
    """Only subscriptions whose filter matches the values before or after receive the event."""
    mark = uuid4().hex
    names = [f"{mark}-{number}" for number in range(20)]
    async with open_socket(gateway.address) as socket:
        for each in names:
            await socket.start(each, MOVES, names=[each, f"{each}-too"])
            assert (await socket.receive())["payload"]["data"]["thingChanges"]["transition"] is None
        things.insert_one({"_id": mark, "name": names[3]})
        things.update_one({"_id": mark}, {"$set": {"name": names[7]}})
        things.update_one({"_id": mark}, {"$set": {"name": f"{names[7]}-too"}})
        things.update_one({"_id": mark}, {"$set": {"name": [names[7], names[9]]}})
        things.update_one({"_id": mark}, {"$unset": {"name": 1}})
        things.update_one({"_id": mark}, {"$set": {"name": names[0]}})
        things.delete_one({"_id": mark})
        found: dict[str, list[str]] = {}
        for _ in range(10):
            message = await socket.receive()
            change = message["payload"]["data"]["thingChanges"]
            found.setdefault(message["id"], []).append(change["transition"])
        assert found == {
            names[3]: ["ENTER", "LEAVE"],
            names[7]: ["ENTER", "STAY", "STAY", "LEAVE"],
            names[9]: ["ENTER", "LEAVE"],
            names[0]: ["ENTER", "LEAVE"],
        }


MOVES = """
subscription($names: [String!]) { thingChanges(where: {name: {in: $names}}) { transition } }
"""


async def until_checkpoint(socket: Socket) -> list[dict[str, Any]]:
    """Return the messages of its only subscription up to the checkpoint."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["kind"] != "CHECKPOINT":
        found.append((await socket.receive())["payload"]["data"]["thingChanges"])
    return found


@asynccontextmanager
async def open_parts(
    address: str, query: str, **variables: Any
) -> AsyncIterator[AsyncIterator[dict[str, Any] | None]]:
    """Yield changes as Apollo Client reads them; None for other lines."""
    headers = {"accept": "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json"}
    body = {"query": query, "variables": variables}

    async def found(response: httpx.Response) -> AsyncIterator[dict[str, Any] | None]:
        async for line in response.aiter_lines():
            if line.startswith("{"):
                payload = json.loads(line).get("payload")
                change = payload and payload["data"]["thingChanges"]
                yield change if change and change["kind"] == "CHANGE" else None

    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{address}/graphql", headers=headers, json=body) as response,
    ):
        yield found(response)


@asynccontextmanager
async def unread(address: str, query: str, **variables: Any) -> AsyncIterator[asyncio.StreamReader]:
    """Open an event stream that is read from the socket only on demand."""
    host, port = address.removeprefix("http://").split(":")
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=plain, limit=256 * 1024)
    parameters = urlencode({"query": query, "variables": json.dumps(variables)})
    writer.write(
        f"GET /graphql?{parameters} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        "accept: text/event-stream\r\n\r\n".encode()
    )
    try:
        yield reader
    finally:
        writer.transport.abort()


MANY, TEXT = 60, "x" * 100_000
"""A number of events that exceeds all buffers on the way."""
LONG = "subscription($id: ID) { thingChanges(id: $id) { kind thing { name } } }"


async def _replace(things: Things, name: str, number: int) -> None:
    document = {"name": f"{number}{TEXT}"}
    await asyncio.to_thread(things.replace_one, {"_id": name}, document, upsert=True)


async def _number(socket: Socket) -> int:
    (change,) = await changes(socket, 1)
    return int(change["thing"]["name"].rstrip("x"))
