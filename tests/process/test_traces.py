"""Traces of writes, without OpenTelemetry: in from clients and programs, kept with the version, and
out again to receivers and subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support import http
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.receiver import Receiver, running_receiver
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

Things = Database[dict[str, Any]]

CHANGES = "subscription($since: DateTime) { thingChanges(since: $since) { kind traceparent } }"
CREATE = "mutation($id: ID!) { createThing(id: $id, document: {n: 1}) { __typename } }"
UPDATE = "mutation($id: ID!) { updateThing(id: $id, patch: {n: 2}) { __typename } }"
DELETE = "mutation($id: ID!) { deleteThing(id: $id) { __typename } }"
RESTORE = "mutation($id: ID!) { restoreThing(id: $id, version: 1) { __typename } }"


def trace(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver(Receiver()) as running:
        yield running


@pytest.fixture
def gateway(
    mongo_uri: str, database: Things, tmp_path: Path, receiver: Receiver
) -> Iterator[RunningGateway]:
    """Serve a collection with a sink, whose contents are stored as deltas."""
    model = tmp_path / "schema.graphql"
    model.write_text(
        'type Thing @collection(name: "things", storage: DELTA) '
        f'@sink(url: "{receiver.url}") {{ id: ID! n: Int }}'
    )
    with running_gateway(mongo_uri, database.name, model) as running:
        yield running


def mutate(gateway: RunningGateway, text: str, traceparent: str | None) -> None:
    """Send a mutation of the document `a`, as a browser with this trace does."""
    headers = {} if traceparent is None else {"traceparent": traceparent}
    body = {"query": text, "variables": {"id": "a"}}
    answer = http.post(f"{gateway.address}/graphql", json=body, headers=headers, timeout=60).json()
    assert [each["__typename"] for each in answer["data"].values()] == ["ThingWritten"], answer


async def traces_of(gateway: RunningGateway, count: int, **start: Any) -> list[str | None]:
    """Return the traces of the next changes that a subscription sends."""
    found: list[str | None] = []
    async with aclosing(gateway.subscribe(CHANGES, **start)) as events:
        async for each in events:
            if each["thingChanges"]["kind"] == "CHANGE":
                found.append(each["thingChanges"]["traceparent"])
            if len(found) == count:
                return found
    raise AssertionError(found)


async def test_the_trace_of_a_write_reaches_receivers_and_subscribers(
    gateway: RunningGateway, database: Things, receiver: Receiver, tmp_path: Path, mongo_uri: str
) -> None:
    """Each version has the trace of its own write, a deletion too; a malformed one is ignored."""
    async with aclosing(gateway.subscribe(CHANGES)) as live:
        assert (await anext(live))["thingChanges"]["kind"] == "CHECKPOINT"
        mutate(gateway, CREATE, trace(1))
        mutate(gateway, UPDATE, trace(2))
        # A program that knows nothing of traces, and leaves `_change` as it is.
        database.things.update_one({"_id": "a"}, {"$inc": {"n": 1, "version": 1}})
        change = {"id": "c4", "by": "robot", "traceparent": trace(4)}
        database.things.update_one({"_id": "a"}, {"$set": {"_change": change}, "$inc": {"n": 1}})
        mutate(gateway, DELETE, trace(5))
        mutate(gateway, RESTORE, trace(6).upper() + "x")
        mutate(gateway, UPDATE, None)
        expected = [trace(1), trace(2), None, trace(4), trace(5), None, None]
        heard: list[str | None] = []
        while len(heard) < len(expected):
            event = (await anext(live))["thingChanges"]
            if event["kind"] == "CHANGE":
                heard.append(event["traceparent"])
    assert heard == expected
    assert await traces_of(gateway, 7, since="2020-01-01T00:00:00Z") == expected

    history = (
        "{ thingVersions(first: 9) { nodes { traceparent ... on ThingVersion { version } } } }"
    )
    for text in (history, history.replace("version }", "version until }")):
        nodes = gateway.query(text)["thingVersions"]["nodes"]
        assert [each["traceparent"] for each in reversed(nodes)] == expected

    await eventually(lambda: len(receiver.taken) == 7)
    assert [each.headers.get("traceparent") for each in receiver.requests] == expected
    assert [each.event.get("traceparent") for each in receiver.requests] == expected
    options = ("--mongodb-uri", mongo_uri, "--database", database.name)
    checked = run_command("verify", *options, "--schema", str(tmp_path / "schema.graphql"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_an_operation_of_a_websocket_has_its_own_trace_or_the_connections(
    gateway: RunningGateway, database: Things, protocol: Protocol
) -> None:
    """Browsers can set no headers there; one operation's trace is not the next one's."""
    wanted = {"a": trace(1), "b": trace(9), "c": trace(1), "d": trace(1)}
    given = {"b": trace(9), "d": "malformed"}
    async with open_socket(gateway.address, protocol, init=False) as socket:
        await socket.send({"type": "connection_init", "payload": {"traceparent": trace(1)}})
        assert await socket.receive() == {"type": "connection_ack"}
        for id_ in wanted:
            payload: dict[str, Any] = {"query": CREATE, "variables": {"id": id_}}
            if id_ in given:
                payload["extensions"] = {"traceparent": given[id_]}
            kind = "start" if protocol == LEGACY else "subscribe"
            await socket.send({"id": id_, "type": kind, "payload": payload})
            answer = await socket.receive()
            assert answer["payload"]["data"]["createThing"] == {"__typename": "ThingWritten"}
            assert (await socket.receive())["type"] == "complete"
    stored = {each["_id"]: each["_change"]["traceparent"] for each in database.things.find()}
    assert stored == wanted
