"""Ids of requests: in the response, in the log, and on WebSockets with the operation's id."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2 as httpx
from pymongo.database import Database
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.support import http
from tests.support.eventually import eventually, wait_until
from tests.support.gateway import RunningGateway, running_gateway

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int! }'
MISFIT = '{ thing(id: "odd") { n } }'
FOREIGN = '{ thingsAsOf(asOf: { token: "6741B3A80000000329~.aaaaaa" }) { totalCount } }'


def ask(gateway: RunningGateway, query: str, **headers: str) -> httpx.Response:
    return http.post(f"{gateway.address}/graphql", json={"query": query}, headers=headers)


def refused(gateway: RunningGateway, code: str) -> list[dict[str, Any]]:
    """Return the log lines of refusals with a code."""
    lines = [json.loads(each) for each in gateway.lines if each.startswith("{")]
    return [each for each in lines if each.get("code") == code]


async def test_an_id_is_in_the_response_and_in_the_lines_of_its_request(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """The client's own, or a new one; an operation on a WebSocket has its id beside it."""
    with running_gateway(mongo_uri, database.name, model, "--log-json") as gateway:
        database.things.insert_one({"_id": "odd", "n": "text"})
        answer = ask(gateway, MISFIT, **{"X-Request-ID": "proxy-7f/3.1"})
        assert answer.headers["x-request-id"] == "proxy-7f/3.1"
        wait_until(lambda: refused(gateway, "DOCUMENT_MISFIT"))
        [line] = refused(gateway, "DOCUMENT_MISFIT")
        assert line["request_id"] == "proxy-7f/3.1"
        assert "operation_id" not in line
        made = [ask(gateway, "{ __typename }").headers["x-request-id"] for _ in range(2)]
        assert all(re.fullmatch("[0-9a-f]{32}", each) for each in made)
        assert made[0] != made[1]
        for path in ("/", "/readyz", "/schema.graphql", "/nothing"):
            assert "x-request-id" in http.get(f"{gateway.address}{path}").headers
        address = gateway.address.replace("http", "ws", 1) + "/graphql"
        protocol = [Subprotocol("graphql-transport-ws")]
        async with connect(address, subprotocols=protocol) as socket:
            assert socket.response is not None
            connection = socket.response.headers["x-request-id"]
            await socket.send('{"type": "connection_init"}')
            subscribe = {"id": "op-1", "type": "subscribe", "payload": {"query": FOREIGN}}
            await socket.send(json.dumps(subscribe))
            await eventually(lambda: refused(gateway, "RESUME_TOKEN_INVALID"))
        [line] = refused(gateway, "RESUME_TOKEN_INVALID")
        assert (line["request_id"], line["operation_id"]) == (connection, "op-1")
        # The process itself has none.
        stories = [json.loads(each) for each in gateway.lines if '"lease acquired"' in each]
        assert all("request_id" not in each for each in stories)
