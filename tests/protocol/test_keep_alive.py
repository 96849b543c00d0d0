"""Requests over connections that stay open."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import create_app
from revstream.resolvers.current.documents import Current
from tests.support.editing import Shop, open_shop
from tests.support.eventually import eventually
from tests.support.exhaustive import scaled
from tests.support.serving import served

Client = MongoClient[dict[str, Any]]
GAUGE = "query ($id: ID!) { gauge(id: $id) { id sequence value } }"
NUMBERED = "query ($id: ID!) { gauge(id: $id) { id sequence value version } }"


class Connection:
    """A plain persistent connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, query: str
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._query = query

    def ask(self, **variables: Any) -> None:
        body = json.dumps({"query": self._query, "variables": variables}).encode()
        head = (
            b"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        self.writer.write(head + body)

    async def answer(self) -> tuple[bytes, Any]:
        """Return the head of the response, in lower case, and its body."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head, json.loads(await self.reader.readexactly(length))


@asynccontextmanager
async def connected(address: str, query: str = GAUGE) -> AsyncIterator[Connection]:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Connection(reader, writer, query)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class Reads:
    """Reads by id that can be held up.

    Attributes:
        begun: Number of reads that have begun.
        go_on: Reads wait while it is cleared.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        found = Current._found

        async def held(*args: Any, **options: Any) -> Any:
            self.begun += 1
            await self.go_on.wait()
            return await found(*args, **options)

        monkeypatch.setattr(Current, "_found", held)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture
async def shop(client: Client, mongo_uri: str, database_name: str) -> AsyncIterator[Shop]:
    async with open_shop(client, mongo_uri, database_name) as opened:
        opened.database["gauges"].insert_many(
            [{"_id": f"g{n}", "sequence": 1, "value": 1.5, "version": 1} for n in range(3)]
        )
        await opened.recorded()
        yield opened


@pytest.mark.parametrize("query", [GAUGE, NUMBERED])
async def test_each_response_has_the_current_document(shop: Shop, query: str) -> None:
    """Others write, delete, and store invalid values meanwhile.

    The version number is known, or has to be read.
    """
    rng, gauges = random.Random(3), shop.database["gauges"]
    async with (
        served(create_app(shop.gateway)) as address,
        connected(address, query) as connection,
    ):
        for step in range(scaled(all=200, fast=40)):
            id_ = f"g{rng.randrange(4)}"
            match rng.randrange(6):
                case 0:
                    gauges.delete_one({"_id": id_})
                case 1:
                    gauges.update_one({"_id": id_}, {"$set": {"value": "no number"}})
                case 2:
                    row = {"sequence": step, "value": step / 2}
                    gauges.replace_one({"_id": id_}, row, upsert=True)
            connection.ask(id=id_)
            _, response = await connection.answer()
            stored = gauges.find_one({"_id": id_})
            if stored is None:
                assert response == {"data": {"gauge": None}}
            elif isinstance(stored["value"], str):
                assert response["data"] == {"gauge": None}
                assert [each["path"] for each in response["errors"]] == [["gauge", "value"]]
            else:
                gauge = response["data"]["gauge"]
                gauge.pop("version", None)
                assert gauge == {
                    "id": id_,
                    "sequence": stored["sequence"],
                    "value": stored["value"],
                }


async def test_two_pipelined_requests_are_answered_in_order(shop: Shop, reads: Reads) -> None:
    """The second one arrives before the first is answered."""
    async with served(create_app(shop.gateway)) as address, connected(address) as connection:
        reads.go_on.clear()
        connection.ask(id="g1")
        before = reads.begun
        await eventually(lambda: reads.begun > before)
        connection.ask(id="g2")
        reads.go_on.set()
        response = [(await connection.answer())[1]["data"]["gauge"]["id"] for _ in range(2)]
        assert response == ["g1", "g2"]


@pytest.mark.parametrize("query", [GAUGE, NUMBERED])
async def test_a_client_that_disconnects_meanwhile_leaves_no_trace(
    shop: Shop, reads: Reads, query: str
) -> None:
    """Its pending read ends."""
    app = create_app(shop.gateway)
    async with served(app) as address:
        async with connected(address, query) as connection:
            reads.go_on.clear()
            before = reads.begun
            connection.ask(id="g1")
            await eventually(lambda: reads.begun > before)
            connection.writer.transport.abort()
        reads.go_on.set()
        async with connected(address) as connection:
            connection.ask(id="g2")
            assert (await connection.answer())[1]["data"]["gauge"]["id"] == "g2"


async def once_refused(address: str, go_on: asyncio.Event) -> None:
    """Wait until new connections are refused, then let the reads continue."""
    while True:
        try:
            async with connected(address):
                pass
        except ConnectionError:
            go_on.set()
            return


@pytest.mark.parametrize("query", [GAUGE, NUMBERED])
async def test_pending_requests_are_answered_while_the_server_stops(
    shop: Shop, reads: Reads, query: str
) -> None:
    """The response closes the connection."""
    async with served(create_app(shop.gateway)) as address:
        opened = connected(address, query)
        connection = await opened.__aenter__()
        reads.go_on.clear()
        before = reads.begun
        connection.ask(id="g1")
        await eventually(lambda: reads.begun > before)
        stopping = asyncio.create_task(once_refused(address, reads.go_on))
    await stopping
    head, response = await connection.answer()
    assert response["data"]["gauge"]["id"] == "g1"
    assert b"\r\nconnection: close\r\n" in head
    assert await connection.reader.read() == b""
    await opened.__aexit__(None, None, None)
