"""Operations whose clients disconnect while the operations wait for a slot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.runtime.asgi_app import create_app
from revstream.streams.core.fair_semaphore import FairSemaphore
from tests.support.editing import Shop, open_shop
from tests.support.eventually import eventually
from tests.support.serving import served
from tests.support.sockets import TRANSPORT, open_socket

Client = MongoClient[dict[str, Any]]
WRITE = """mutation($id: ID!, $document: ProductInput!) {
  createProduct(id: $id, document: $document) { __typename }
}"""


@pytest.fixture
async def shop(client: Client, mongo_uri: str, database_name: str) -> AsyncIterator[Shop]:
    async with open_shop(client, mongo_uri, database_name) as opened:
        yield opened


def document(id_: str) -> dict[str, Any]:
    return {"sku": id_, "name": "x", "price": "1", "stock": 1, "tags": []}


def limiter_of(shop: Shop) -> ConcurrencyLimiter:
    limiter = shop.gateway.availability.changed.__self__  # type: ignore[attr-defined]
    assert isinstance(limiter, ConcurrencyLimiter)
    return limiter


async def send_request(address: str, id_: str) -> asyncio.StreamWriter:
    host, _, port = address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {"query": WRITE, "variables": {"id": id_, "document": document(id_)}}
    ).encode()
    writer.write(
        b"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return writer


async def test_a_waiting_operation_is_dropped_with_its_client(shop: Shop) -> None:
    """The waiting operation never executes and delays no other; those of other clients execute."""
    async with served(create_app(shop.gateway)) as address:
        limiter = limiter_of(shop)
        limiter._slots = FairSemaphore(1, per_caller=1)
        await limiter.acquire("somebody")
        writers = [await send_request(address, f"h{n}") for n in range(6)]
        async with open_socket(f"http://{address}", TRANSPORT) as socket:
            for n in range(2):
                await socket.start(f"w{n}", WRITE, id=f"w{n}", document=document(f"w{n}"))
            await eventually(lambda: limiter.waiting == 8)
            for writer in writers[1:]:
                writer.transport.abort()
            await socket.send({"id": "w0", "type": "complete"})
            await eventually(lambda: limiter.waiting == 2)
        await eventually(lambda: limiter.waiting == 1)
        limiter.release("somebody")
        products = shop.database["products"]
        await eventually(lambda: products.count_documents({}) > 0)
        await eventually(lambda: limiter.executing == limiter.waiting == 0)
        assert [each["_id"] for each in products.find()] == ["h0"]
        writers[0].close()
