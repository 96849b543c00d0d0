"""Many writers of one document, with and without the gateway.

No write is lost, none counts twice, and the archive has each of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import ROOT, RunningGateway, running_gateway
from tests.support.streams import check_chains

Client = MongoClient[dict[str, Any]]
Version = dict[str, Any]

CLIENTS = 50
# 100 take four minutes, since only one of fifty compared writes succeeds. Run by hand.
WRITES_EACH = 2
INITIAL = 7
# The number of clients and writes of each kind beside compared ones, in the test of plain
# programs.
MIXED_CLIENTS, MIXED_WRITES_EACH, PLAIN_WRITES_EACH = 10, 5, 25

CREATE = """
mutation ($stock: Int!) {
  createProduct(id: "p1", document: {
    sku: "s1", name: "Lamp", price: "1", stock: $stock, tags: [], addedAt: "2024-01-01T00:00:00Z"
  }) { ... on ProductWritten { version } }
}
"""
# Queries for a version and its content, as clients send them.
CURRENT = '{ product(id: "p1") { version stock } }'
NEWEST = """
{ productVersions(where: {documentId: {eq: "p1"}}, first: 1) {
  nodes { version document { stock } }
} }
"""
COMPARED = """
mutation ($version: Int!, $stock: Int!, $current: Boolean!) {
  updateProduct(id: "p1", expectedVersion: $version, patch: {stock: $stock}) {
    __typename
    ... on ProductWritten { version product { stock } }
    ... on VersionConflict { current @include(if: $current) { ... on Product { version stock } } }
  }
}
"""
ADDED = """
mutation { updateProduct(id: "p1", increment: {stock: 1}) { __typename } }
"""
VERSIONS = """
query ($after: String) {
  productVersions(where: {documentId: {eq: "p1"}}, first: 100, after: $after) {
    nodes { version operation at until document { stock } }
    pageInfo { hasNextPage endCursor }
  }
}
"""


class Shop:
    """Responses of one gateway to its clients."""

    def __init__(self, gateway: RunningGateway, http: httpx.AsyncClient) -> None:
        self.conflicts = 0
        self.written = 0
        self.moved = threading.Condition()
        self._address = f"{gateway.address}/graphql"
        self._http = http

    async def increment_compared(self, times: int, reading: str) -> None:
        """Read, add one, and write if the version is unchanged."""
        current = reading == CURRENT
        version, stock = await self._read(reading)
        while times:
            answer = await self._ask(COMPARED, version=version, stock=stock + 1, current=current)
            written = answer["updateProduct"]
            if written["__typename"] == "VersionConflict":
                self.conflicts += 1
                seen = written.get("current")
                version, stock = (
                    (seen["version"], seen["stock"]) if seen else await self._read(reading)
                )
                continue
            assert written["__typename"] == "ProductWritten", written
            version, stock = version + 1, stock + 1
            assert (written["version"], written["product"]["stock"]) == (version, stock)
            times -= 1
            self._count()

    async def increment(self, times: int) -> None:
        """Let the gateway add one."""
        for _ in range(times):
            answer = (await self._ask(ADDED))["updateProduct"]
            assert answer["__typename"] == "ProductWritten", answer
            self._count()

    def await_written(self, count: int) -> None:
        """Wait in another thread until so many writes are acknowledged."""
        with self.moved:
            assert self.moved.wait_for(lambda: self.written >= count, timeout=120)

    async def _read(self, text: str) -> tuple[int, int]:
        """Return the version, and its stock."""
        answer = await self._ask(text)
        if text == CURRENT:
            return answer["product"]["version"], answer["product"]["stock"]
        [newest] = answer["productVersions"]["nodes"]
        return newest["version"], newest["document"]["stock"]

    def _count(self) -> None:
        with self.moved:
            self.written += 1
            self.moved.notify_all()

    async def _ask(self, text: str, **variables: Any) -> dict[str, Any]:
        body = {"query": text, "variables": variables}
        answer = (await self._http.post(self._address, json=body)).json()
        assert "errors" not in answer, answer["errors"]
        found: dict[str, Any] = answer["data"]
        return found


@asynccontextmanager
async def shop(gateway: RunningGateway) -> AsyncIterator[Shop]:
    """Provide the clients of the gateway, each with a connection."""
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with httpx.AsyncClient(limits=limits, timeout=120) as http:
        yield Shop(gateway, http)


@pytest.fixture
def gateway(mongo_uri: str, database_name: str) -> Iterator[RunningGateway]:
    """Run a gateway with product `p1` in its first version, whose recorder has read the oplog."""
    with running_gateway(mongo_uri, database_name, ROOT / "schema.graphql") as running:

        def records() -> bool:
            streams = running.query("{ streams { state } }")["streams"]
            return all(
                each["state"] != "reading" and each["state"] != "waiting" for each in streams
            )

        wait_until(records, within_s=60)
        assert running.query(CREATE, stock=INITIAL)["createProduct"] == {"version": 1}
        yield running


@pytest.fixture
def database(client: Client, database_name: str) -> Database[dict[str, Any]]:
    return client[database_name]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(CURRENT, id="from the present"),
        pytest.param(NEWEST, id="from history", marks=exhaustive),
    ],
)
async def test_fifty_clients_with_compared_writes_lose_none_and_repeat_none(
    gateway: RunningGateway, database: Database[dict[str, Any]], reading: str
) -> None:
    """Each reads, adds one and writes with `expectedVersion`.

    Every version is one more than the one before, and there is one for each acknowledged write.
    """
    async with shop(gateway) as clients:
        await asyncio.gather(
            *(clients.increment_compared(WRITES_EACH, reading) for _ in range(CLIENTS))
        )
    total = CLIENTS * WRITES_EACH
    assert clients.written == total
    assert clients.conflicts > 0
    stored = database["products"].find_one({"_id": "p1"})
    assert stored is not None
    assert (stored["version"], stored["stock"]) == (1 + total, INITIAL + total)
    versions = all_versions(gateway)
    assert [(each["version"], each["document"]["stock"]) for each in versions] == [
        (n, INITIAL + n - 1) for n in range(1, total + 2)
    ]
    assert {each["operation"] for each in versions[1:]} == {"UPDATE"}
    check_archive(database, versions)


@pytest.mark.timeout(1200)
async def test_plain_programs_and_clients_lose_no_write(
    gateway: RunningGateway, database: Database[dict[str, Any]]
) -> None:
    """The sum is right at the end, and each version is one more than the one before.

    Two programs increment the version, two do not, beside clients that compare and clients that
    increment.
    """
    async with shop(gateway) as clients:
        of_clients = 2 * MIXED_CLIENTS * MIXED_WRITES_EACH
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as threads:
            plain = [
                loop.run_in_executor(threads, write_plainly, database, clients, of_clients, count)
                for count in (True, True, False, False)
            ]
            await asyncio.gather(
                *plain,
                *(
                    clients.increment_compared(MIXED_WRITES_EACH, NEWEST)
                    for _ in range(MIXED_CLIENTS)
                ),
                *(clients.increment(MIXED_WRITES_EACH) for _ in range(MIXED_CLIENTS)),
            )
    total = of_clients + len(plain) * PLAIN_WRITES_EACH
    stored = database["products"].find_one({"_id": "p1"})
    assert stored is not None
    assert stored["stock"] == INITIAL + total
    # The recorder reaches the writes of plain programs later; no request waits for it.
    wait_until(lambda: database["products.versions"].count_documents({}) >= total + 1)
    versions = all_versions(gateway)
    assert [each["document"]["stock"] for each in versions] == [
        *range(INITIAL, INITIAL + total + 1)
    ]
    assert all(one["version"] < other["version"] for one, other in pairwise(versions))
    check_archive(database, versions)


def write_plainly(
    database: Database[dict[str, Any]], clients: Shop, of_clients: int, count: bool
) -> None:
    """Write without the gateway, spread over all documents of the clients."""
    change = {"stock": 1, "version": 1} if count else {"stock": 1}
    for turn in range(PLAIN_WRITES_EACH):
        clients.await_written(turn * of_clients // PLAIN_WRITES_EACH)
        result = database["products"].update_one({"_id": "p1"}, {"$inc": change})
        assert result.modified_count == 1


def all_versions(gateway: RunningGateway) -> list[Version]:
    """Return all versions of the product from the API, page by page, the oldest first."""
    found: list[Version] = []
    after = None
    while True:
        page = gateway.query(VERSIONS, after=after)["productVersions"]
        found += page["nodes"]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            return found[::-1]


def check_archive(database: Database[dict[str, Any]], versions: Sequence[Version]) -> None:
    """Check that each version is shown and valid until the next one."""
    for one, other in pairwise(versions):
        assert one["until"] == other["at"], (one, other)
    assert versions[-1]["until"] is None
    records = list(database["products.versions"].find().sort("_id"))
    assert [each["v"] for each in records] == [each["version"] for each in versions]
    check_chains(records)
