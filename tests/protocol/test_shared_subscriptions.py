"""Subscriptions that are told the same: executed once, sent to all, and each complete and in order,
whenever it came and from wherever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from pymongo.collection import Collection

from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway
from tests.support.metrics import scraped
from tests.support.sockets import Socket, open_socket

Things = Collection[dict[str, Any]]

CHANGES = """
subscription($after: ResumeToken, $name: String) {
  thingChanges(after: $after, where: {name: {eq: $name}}) {
    kind operation resumeToken documentId thing { id name version }
  }
}
"""


async def changes(socket: Socket, count: int) -> list[dict[str, Any]]:
    """The next changes of its only subscription."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        message = await socket.receive()
        assert (message["id"], message["type"]) == ("s", "next"), message
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
    """Once so many are in an audience."""
    await eventually(
        lambda: scraped(gateway.address)["revstream_subscriptions_shared", "things"] == count
    )


async def test_all_are_told_everything_in_order_by_one_execution(
    gateway: RunningGateway, things: Things
) -> None:
    """The first on its own, the others together; who comes in between misses nothing, who leaves
    takes nothing along, and whoever asks for something else is not told of it."""
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
        told = await asyncio.gather(*(changes(each, 20) for each in sockets[:8]))
        # One from the beginning again, one from the middle, by what they hold; one leaves.
        await started(sockets[8], name, told[0][0]["resumeToken"])
        await started(sockets[9], name, told[3][9]["resumeToken"])
        await sockets[1].send({"id": "s", "type": "complete"})
        things.insert_many([{"_id": each, "name": name} for each in ids[20:]])
        told += await asyncio.gather(changes(sockets[8], 59), changes(sockets[9], 50))
        more = await asyncio.gather(*(changes(sockets[n], 40) for n in (0, *range(2, 8))))
        assert [each["documentId"] for each in told[8]] == ids[1:]
        assert [each["documentId"] for each in told[9]] == ids[10:]
        for first, rest in zip((told[0], *told[2:8]), more, strict=True):
            assert [each["documentId"] for each in first + rest] == ids
            assert first + rest == [told[0][0], *told[8]]
        assert [each["documentId"] for each in await changes(stranger, 1)] == [other]
        await shared(gateway, 8)
    await shared(gateway, 0)


async def test_who_takes_nothing_goes_on_alone_and_misses_nothing(
    gateway: RunningGateway, things: Things
) -> None:
    """Those beside it are told everything meanwhile."""
    name = uuid4().hex
    count, text = 60, "x" * 100_000

    def write() -> None:
        for number in range(count):
            things.replace_one({"_id": name}, {"name": f"{number}{text}"}, upsert=True)

    async with AsyncExitStack() as stack:
        alone, well, ill = [
            await stack.enter_async_context(open_socket(gateway.address)) for _ in range(3)
        ]
        for each in (alone, well, ill):
            await each.start("s", LONG, id=name)
            assert (await each.receive())["payload"]["data"]["thingChanges"]["kind"] == "CHECKPOINT"
        await shared(gateway, 2)
        ill.connection.transport.pause_reading()
        writing = asyncio.create_task(asyncio.to_thread(write))
        numbers = [_number(await well.receive()) for _ in range(count)]
        await writing
        members = "revstream_subscriptions_shared", "things"
        await eventually(lambda: scraped(gateway.address)[members] < 2)
        ill.connection.transport.resume_reading()
        assert [_number(await ill.receive()) for _ in range(count)] == numbers
        assert numbers == list(range(count))


LONG = "subscription($id: ID) { thingChanges(id: $id) { kind thing { name } } }"


def _number(message: dict[str, Any]) -> int:
    name = message["payload"]["data"]["thingChanges"]["thing"]["name"]
    return int(name.rstrip("x"))
