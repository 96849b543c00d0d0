"""What is closed is gone by itself: of what the garbage collector has to look for, a gateway that
clients come to and leave would hold more and more between its looks."""

from __future__ import annotations

import gc
import json
from collections import Counter
from typing import Any

import aiohttp
from pymongo import MongoClient
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from gql.app import create_app
from gql.connections import WebSocketConnection
from gql.heads import RequestConnection
from gql.introduction import Introduction
from gql.sessions import Session
from gql.sockets import LegacySocket, TransportSocket
from tests.support.editing import open_shop
from tests.support.eventually import eventually
from tests.support.serving import served

KINDS = (
    *(RequestConnection, WebSocketConnection),
    *(TransportSocket, LegacySocket, Introduction, Session),
)
STARTS = {"graphql-transport-ws": ("subscribe", "complete"), "graphql-ws": ("start", "stop")}


async def come_and_leave(address: str, protocol: str, *, rudely: bool) -> None:
    """Subscribe, and be gone, with or without a word."""
    starts, ends = STARTS[protocol]
    async with connect(
        f"ws://{address}/graphql", subprotocols=[Subprotocol(protocol)]
    ) as connection:
        await connection.send('{"type": "connection_init"}')
        assert json.loads(await connection.recv())["type"] == "connection_ack"
        for number in ("1", "2"):
            payload = {"query": "subscription { productChanges { operation } }"}
            await connection.send(json.dumps({"id": number, "type": starts, "payload": payload}))
        # What is asked behind it is answered behind it.
        query = {"id": "3", "type": starts, "payload": {"query": "{ __typename }"}}
        await connection.send(json.dumps(query))
        while json.loads(await connection.recv()) != {"type": "complete", "id": "3"}:
            pass
        if rudely:
            connection.transport.abort()
        else:
            await connection.send(json.dumps({"id": "1", "type": ends}))


async def ask(address: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/graphql", json={"query": "{ __typename }"}) as answer,
    ):
        assert await answer.json() == {"data": {"__typename": "Query"}}


def nothing_is_left(before: set[int]) -> bool:
    found = (each for each in gc.get_objects() if type(each) in KINDS)
    left = Counter(type(each).__name__ for each in found if id(each) not in before)
    assert not left
    return True


async def test_of_clients_that_have_left_nothing_is_left(
    client: MongoClient[dict[str, Any]], mongo_uri: str, database_name: str
) -> None:
    """Without the garbage collector, whether they have said so, over each protocol."""
    async with (
        open_shop(client, mongo_uri, database_name) as shop,
        served(create_app(shop.gateway)) as address,
    ):
        gc.collect()
        before = {id(each) for each in gc.get_objects() if type(each) in KINDS}
        gc.disable()
        try:
            for protocol in STARTS:
                for rudely in (False, True, False, True):
                    await come_and_leave(address, protocol, rudely=rudely)
            for _ in range(5):
                await ask(address)
            await eventually(lambda: nothing_is_left(before))
        finally:
            gc.enable()
