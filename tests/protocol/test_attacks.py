"""Small requests with large responses: each is refused quickly, and others are served."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient

from tests.support import http
from tests.support.attacks import ATTACKS, HARMLESS, product
from tests.support.beginning import begin_new
from tests.support.gateway import ROOT, RunningGateway, running_gateway
from tests.support.metrics import scraped
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

Client = MongoClient[dict[str, Any]]
LONGEST_S = 20.0
"""The limit for requests that take milliseconds, on a busy machine."""


REFUSED = {"LIMIT_EXCEEDED", "BAD_USER_INPUT"}


@pytest.fixture(scope="module")
def database(mongo_uri: str, client: Client) -> Iterator[str]:
    name = f"attacks_{uuid4().hex[:8]}"
    begin_new(mongo_uri, name, ROOT / "schema.graphql")
    client[name].products.insert_many(
        {
            "_id": f"p{n}" if n else "p",
            "sku": str(n),
            "name": "Lamp",
            "price": 1,
            "stock": n,
            "tags": [],
        }
        for n in range(100)
    )
    yield name
    client.drop_database(name)


@pytest.fixture(scope="module")
def gateway(mongo_uri: str, database: str) -> Iterator[RunningGateway]:
    """Run a gateway with default settings.

    At the end it must still run, without an internal error.
    """
    with running_gateway(mongo_uri, database, ROOT / "schema.graphql") as running:
        yield running
        assert running.process.poll() is None
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


def post(address: str, query: str, variables: dict[str, Any]) -> httpx.Response:
    body = json.dumps({"query": query, "variables": variables})
    headers = {"content-type": "application/json"}
    return http.post(f"{address}/graphql", content=body, headers=headers, timeout=120)


def attack(gateway: RunningGateway, name: str) -> None:
    """Send the request: it is refused, or answered if it does no harm."""
    response = post(gateway.address, *ATTACKS[name])
    assert response.status_code < 500, response.text[:500]
    errors = response.json().get("errors")
    if errors or name not in HARMLESS:
        assert errors[0]["extensions"]["code"] in REFUSED, errors


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_time(gateway: RunningGateway, name: str) -> None:
    """It takes milliseconds; a busy machine needs the larger bound."""
    began = time.monotonic()
    attack(gateway, name)
    assert time.monotonic() - began < LONGEST_S


def test_other_clients_are_served_during_attacks(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    """All attacks run at once and repeatedly, beside clients that read one document."""
    stop = threading.Event()

    def honest(seconds_of: list[float]) -> None:
        with httpx.Client() as client:
            query = {"query": product("id name")}
            while not stop.is_set():
                began = time.monotonic()
                answer = client.post(f"{gateway.address}/graphql", json=query, timeout=120).json()
                seconds_of.append(time.monotonic() - began)
                assert answer == {"data": {"product": {"id": "p", "name": "Lamp"}}}

    def measured(beside: Any) -> list[float]:
        stop.clear()
        found: list[float] = []
        with ThreadPoolExecutor(3) as pool:
            clients = [pool.submit(honest, found) for _ in range(2)]
            try:
                pool.submit(beside).result()
            finally:
                stop.set()
            for each in clients:
                each.result()
        return sorted(found)

    def attacks() -> None:
        for name in ATTACKS:
            attack(gateway, name)

    quiet = measured(lambda: stop.wait(1))
    under = measured(attacks)
    with capsys.disabled():
        sys.stdout.write(
            f"\np99 of others: {_p99(quiet)} ms alone, {_p99(under)} ms under attack\n"
        )
    assert len(under) > len(ATTACKS) / 4
    assert under[-1] < LONGEST_S


def _p99(seconds: list[float]) -> float:
    return round(seconds[int(len(seconds) * 0.99)] * 1000, 1)


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_an_attack_on_a_socket_is_an_error_of_its_operation(
    gateway: RunningGateway, protocol: Protocol
) -> None:
    """The socket and its other operations continue."""
    async with open_socket(gateway.address, protocol) as socket:
        for name in (
            "fragments within fragments, 12 KB",
            "a ring of fragments",
            "pages within pages",
        ):
            query, variables = ATTACKS[name]
            errors = await socket.errors(query, **variables)
            assert errors[0]["extensions"]["code"] in REFUSED
        assert await socket.data(product("id")) == {"product": {"id": "p"}}


async def test_operations_beyond_the_limits_get_retry_after(mongo_uri: str, database: str) -> None:
    """The status is 503; admitted ones are served, and afterwards all are."""
    options = ("--max-executing", "1", "--max-waiting", "2", "--max-connection-operations", "2")
    with running_gateway(
        mongo_uri, database, ROOT / "schema.graphql", "--no-record", *options
    ) as gateway:
        query = "{ products(first: 100) { nodes { id name supplier { name } } } }"
        with ThreadPoolExecutor(30) as pool:
            answers = list(pool.map(lambda _: post(gateway.address, query, {}), range(60)))
        shed = [each for each in answers if each.status_code == 503]
        served = [each for each in answers if each.status_code == 200]
        assert len(shed) + len(served) == 60
        assert shed
        assert served
        for each in shed:
            assert each.headers["retry-after"] == "1"
            [error] = each.json()["errors"]
            assert error["extensions"]["code"] == "UNAVAILABLE"
            assert "waiting operations: 2" in error["message"]
        for each in served:
            assert len(each.json()["data"]["products"]["nodes"]) == 100
        assert post(gateway.address, product("id"), {}).json() == {"data": {"product": {"id": "p"}}}
        async with open_socket(gateway.address, TRANSPORT) as socket:
            for name in "ab":
                await socket.start(name, "subscription { readingChanges { kind } }")
            await socket.start("c", product("id"))
            # The other streams may send something meanwhile.
            while (answer := await socket.receive())["id"] != "c":
                pass
            [error] = answer["payload"]
            assert error["extensions"]["code"] == "LIMIT_EXCEEDED"
            assert "maximum is 2" in error["message"]
        samples = scraped(gateway.address)
        assert samples["revstream_operations_shed_total",] == len(shed)
        assert samples["revstream_operations_executing",] == 0


def test_the_cost_is_in_the_response_if_requested(gateway: RunningGateway) -> None:
    """The cost and its maximum are beside the data or the refusal."""
    query = (
        "query($n: Int) { products(first: $n) { nodes { history(first: 50) { nodes { id } } } } }"
    )
    for number, cost in ((100, 5100), (1000, 51_000)):
        payload = {"query": query, "variables": {"n": number}, "extensions": {"cost": True}}
        answer = http.post(f"{gateway.address}/graphql", json=payload, timeout=60).json()
        assert answer["extensions"]["cost"]["cost"] == cost
        assert answer["extensions"]["cost"]["maxCost"] == 10_000
        refusals = [each["message"] for each in answer.get("errors", ())]
        assert bool(refusals) == (cost > 10_000)
        assert all("51,000" in each and "maximum is 10,000" in each for each in refusals)
    assert (
        "extensions"
        not in http.post(f"{gateway.address}/graphql", json={"query": product("id")}).json()
    )
