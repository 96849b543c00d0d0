"""Closed connections and finished operations are freed by reference counting.

Reference cycles would accumulate in a gateway between two runs of the garbage collector.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import ref

import aiohttp
import pytest
from graphql import GraphQLError
from pymongo import MongoClient
from starlette.requests import ClientDisconnect
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from revstream.gql.auth.sessions import Session
from revstream.gql.endpoint.websocket import LegacySocket, TransportSocket
from revstream.gql.endpoint.websocket_auth import WebSocketAuthentication
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.request.loaders import Loaders
from revstream.gql.runtime.asgi_app import create_app
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.server.client_presence import CLIENT, ClientPresence, while_client_waits
from revstream.gql.server.http_connection import RequestConnection
from revstream.gql.server.websocket_connection import WebSocketConnection
from revstream.streams.core.errors import GatewayError
from tests.support.editing import open_shop
from tests.support.eventually import eventually
from tests.support.serving import served

# A broadcast group releases a subscription at the next event.
BRIEF = Settings(quiet_s=0.5)
KINDS = (
    *(RequestConnection, WebSocketConnection),
    *(TransportSocket, LegacySocket, WebSocketAuthentication, Session),
)
STARTS = {"graphql-transport-ws": ("subscribe", "complete"), "graphql-ws": ("start", "stop")}


@pytest.fixture(autouse=True)
def frozen() -> None:
    """Exclude existing objects from garbage collections."""
    gc.collect()
    gc.freeze()


async def come_and_leave(address: str, protocol: str, *, rudely: bool) -> None:
    """Subscribe and disconnect, with or without a closing message."""
    starts, ends = STARTS[protocol]
    async with connect(
        f"ws://{address}/graphql", subprotocols=[Subprotocol(protocol)]
    ) as connection:
        await connection.send('{"type": "connection_init"}')
        assert json.loads(await connection.recv())["type"] == "connection_ack"
        for number in ("1", "2"):
            payload = {"query": "subscription { productChanges { operation } }"}
            await connection.send(json.dumps({"id": number, "type": starts, "payload": payload}))
        # A later request is answered after it.
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


def objects_of(kinds: tuple[type, ...]) -> set[int]:
    # Not `isinstance`, which resolves weak proxies.
    return {id(each) for each in gc.get_objects() if issubclass(type(each), kinds)}


def nothing_is_left(before: set[int], kinds: tuple[type, ...] = KINDS) -> bool:
    found = (each for each in gc.get_objects() if issubclass(type(each), kinds))
    left = Counter(type(each).__name__ for each in found if id(each) not in before)
    assert not left
    return True


async def left_by(execute: Callable[[], Awaitable[object]]) -> str:
    """Return a description of the objects that an operation leaves without a collection; or ""."""
    for _ in range(2):
        # The last one may be cached for the next equal operation.
        await execute()
    before = objects_of(OPERATION_KINDS)
    gc.disable()
    try:
        for _ in range(3):
            await execute()
        await eventually(lambda: nothing_is_left(before, OPERATION_KINDS), within_s=3)
    except AssertionError as exc:
        return str(exc)
    finally:
        gc.enable()
    return ""


async def test_disconnected_clients_leave_no_reference_cycles(
    client: MongoClient[dict[str, Any]], mongo_uri: str, database_name: str
) -> None:
    """This holds over each protocol, with and without a closing message."""
    async with (
        open_shop(client, mongo_uri, database_name, BRIEF) as shop,
        served(create_app(shop.gateway)) as address,
    ):
        before = objects_of(KINDS)
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


OPERATION_KINDS = (Executor, Loaders, GraphQLError, GatewayError)
OPERATIONS = {
    "by id": '{ product(id: "a") { name version } }',
    "list": "{ products(first: 3) { nodes { name version } } }",
    "history": """{ product(id: "a") {
        history { nodes { version diff { path } previous { version } comments { nodes { text } } } }
        blame { path version { version } } diff(from: 1, to: 2) { path } drafts { nodes { number } }
    } }""",
    "version": '{ productVersion(id: "a", version: 1) { version document { name } } }',
    "as of a token": '{ productVersion(id: "a", asOf: { token: "%s" }) { version } }',
    "as of a time": '{ productsAsOf(asOf: { time: "2020-01-01T00:00:00Z" }) { totalCount } }',
    "a refused token": '{ productsAsOf(asOf: { token: "F0000000FFFFFFFF~.%s" }) { totalCount } }',
    "a refused cursor": '{ productVersions(after: "none") { nodes { version } } }',
    "a refused limit": "{ products(first: 100000) { nodes { id } } }",
    "a lost version": '{ product(id: "a") { diff(from: 77) { path } } }',
    "no document": "{",
    "a mutation": 'mutation { updateProduct(id: "a", patch: { name: "x" }) { __typename } }',
    "a conflict": """mutation {
        updateProduct(id: "a", expectedVersion: 99, patch: { name: "x" }) { __typename }
    }""",
}


async def test_finished_operations_leave_no_reference_cycles(
    client: MongoClient[dict[str, Any]],
    mongo_uri: str,
    database_name: str,
) -> None:
    """Neither loaded data nor errors, which refer to their frames, are left."""
    left = {}
    async with (
        open_shop(client, mongo_uri, database_name) as shop,
        served(create_app(shop.gateway)) as address,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):

        async def execute(query: str) -> Any:
            async with session.post(f"http://{address}/graphql", json={"query": query}) as answer:
                return await answer.json()

        document = '{ sku: "a", name: "n", price: "1", stock: 1, tags: [] }'
        await execute(
            f'mutation {{ createProduct(id: "a", document: {document}) {{ __typename }} }}'
        )
        await execute('mutation { updateProduct(id: "a", patch: { name: "m" }) { __typename } }')
        token = (await execute("{ resumeToken }"))["data"]["resumeToken"]
        facts = {"as of a token": token, "a refused token": token.rpartition(".")[2]}
        for name, text in OPERATIONS.items():
            query = text % facts[name] if name in facts else text
            left[name] = await left_by(partial(execute, query))
    assert not {name: found for name, found in left.items() if found}


class Connection:
    presence: ClientPresence | None = None


async def test_a_cancelled_request_leaves_no_reference_cycle() -> None:
    """Its task and the connection refer to each other while it runs."""
    connection = Connection()
    left: list[ref[ClientPresence]] = []

    async def request() -> str:
        try:
            with while_client_waits({"type": "http", "extensions": {CLIENT: connection}}):
                assert connection.presence is not None
                left.append(ref(connection.presence))
                await asyncio.Event().wait()
        except ClientDisconnect:
            return "gone"
        return "answered"

    gc.collect()
    gc.disable()
    try:
        task = asyncio.create_task(request())
        await eventually(lambda: left)
        assert connection.presence is not None
        connection.presence.leave()
        assert await task == "gone"
        del task
        assert connection.presence is None
        await eventually(lambda: left[0]() is None, within_s=5)
    finally:
        gc.enable()
