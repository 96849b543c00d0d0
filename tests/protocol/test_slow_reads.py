"""Reads that take seconds: others do not wait for them, and they end with their clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.protocol.conftest import MODEL
from tests.support import http
from tests.support.beginning import begin_new
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.metrics import scraped

Client = MongoClient[dict[str, Any]]

DOCUMENTS = 30_000
PAGES = " ".join(
    f"a{n}: things(where: $w, first: {n + 1}, orderBy: [{{name: ASC}}]) {{ nodes {{ id }} }}"
    for n in range(12)
)
SLOW: tuple[str, dict[str, Any]] = (
    f"query($w: ThingWhere) {{ {PAGES} }}",
    {"w": {"or": [{"name": {"contains": f"zz{n}"}} for n in range(490)]}},
)
"""Twelve scans of some seconds each."""


@pytest.fixture(scope="module")
def served(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, str]]:
    """Run a gateway with two concurrent operations per caller; at the end it must still run."""
    model = tmp_path_factory.mktemp("slow") / "schema.graphql"
    model.write_text(MODEL)
    name = f"slow_{uuid4().hex[:8]}"
    begin_new(mongo_uri, name, model)
    text = "lorem ipsum dolor sit amet " * 8
    client[name].things.insert_many({"_id": f"t{n}", "name": text} for n in range(DOCUMENTS))
    with running_gateway(mongo_uri, name, Path(model), "--max-executing", "4") as running:
        yield running, name
        assert running.stop() == 0
    client.drop_database(name)
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


def send(address: str, query: str, variables: dict[str, Any]) -> socket.socket:
    """Return a connection on which the request was sent."""
    where = urlsplit(address)
    assert where.hostname is not None
    assert where.port is not None
    connection = socket.create_connection((where.hostname, where.port))
    body = json.dumps({"query": query, "variables": variables}).encode()
    head = "POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def scans(client: Client, name: str) -> int:
    """Return the number of scans that the server makes."""
    stages = [{"$currentOp": {"allUsers": True}}, {"$match": {"ns": f"{name}.things"}}]
    return len(list(client.admin.aggregate(stages)))


def executing(gateway: RunningGateway) -> float:
    return scraped(gateway.address)[("revstream_operations_executing",)]


def test_lookups_do_not_wait_for_scans_and_scans_end_with_their_client(
    served: tuple[RunningGateway, str], client: Client
) -> None:
    """One caller has at most two scans at once, whatever the number of its fields."""
    gateway, name = served
    with closing(send(gateway.address, *SLOW)) as attacker:
        wait_until(lambda: scans(client, name) >= 1)
        for _ in range(20):
            answer = http.post(
                f"{gateway.address}/graphql",
                json={"query": '{ thing(id: "t5") { id } }'},
                timeout=60,
            )
            assert answer.json() == {"data": {"thing": {"id": "t5"}}}
        assert scans(client, name) <= 2
        attacker.settimeout(0)
        with pytest.raises(BlockingIOError):
            attacker.recv(1)
    wait_until(lambda: scans(client, name) == 0, within_s=5)
    wait_until(lambda: executing(gateway) == 0, within_s=5)


def test_a_waiting_mutation_of_a_disconnected_client_is_not_executed(
    served: tuple[RunningGateway, str], client: Client
) -> None:
    """One that has begun is finished: half of it may have been written."""
    gateway, name = served
    create = "mutation($i: ID) { createThing(id: $i, document: {}) { __typename } }"
    with closing(send(gateway.address, *SLOW)), closing(send(gateway.address, *SLOW)):
        wait_until(lambda: executing(gateway) == 2)
        with closing(send(gateway.address, create, {"i": "gone"})):
            wait_until(lambda: scraped(gateway.address)[("revstream_operations_waiting",)] == 1)
        wait_until(lambda: scraped(gateway.address)[("revstream_operations_waiting",)] == 0)
    wait_until(lambda: executing(gateway) == 0)
    response = http.post(
        f"{gateway.address}/graphql",
        json={"query": create, "variables": {"i": "stayed"}},
        timeout=60,
    )
    assert response.json() == {"data": {"createThing": {"__typename": "ThingWritten"}}}
    things = client[name].things
    assert [each["_id"] for each in things.find({"_id": {"$in": ["gone", "stayed"]}})] == ["stayed"]
