"""Mutations of a killed gateway, retried with their idempotency keys until they are answered.

Every mutation is executed exactly once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.exhaustive import scaled
from tests.support.gateway import ROOT, RunningGateway, ensure_ended, start_gateway
from tests.support.streams import by_document, check_chains

Client = MongoClient[dict[str, Any]]

# 125 rounds are 10,000 mutations, with 12 kills: run by hand, 65 s.
CLIENTS = 16
ROUNDS, KILLS = scaled(all=(10, 4), fast=(5, 2))
SHARED = 8

PRODUCT = 'name: "Lamp", price: "1", stock: 0, tags: [], addedAt: "2024-01-01T00:00:00Z"'
# The mutations of a client's round, in this order.
MUTATIONS = {
    "create": 'createProduct(id: "{own}", document: {{sku: "{own}", PRODUCT}})',
    "create without an id": 'createSupplier(document: {{name: "{own}"}})',
    "update": 'updateProduct(id: "{shared}", increment: {{stock: 1}})',
    "apply": 'applyReading(id: "{client}", document: {{sequence: {sequence}, value: 1}})',
    "delete": 'deleteProduct(id: "{own}")',
}
TOTAL = CLIENTS * ROUNDS * len(MUTATIONS)
# Responses that ask for a retry: MongoDB selects a primary again, or the killed recorder is not
# replaced yet.
COME_AGAIN = {"ARCHIVE_BEHIND", "UNAVAILABLE"}


class Clients:
    """Clients of a gateway that is restarted, and the responses that they received.

    `gateway` is the current one; `sent_again` counts repeated mutations.
    """

    def __init__(self, gateway: RunningGateway, http: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.answers: Counter[str] = Counter()
        self.sent_again = 0
        self._http = http
        self._serving = asyncio.Event()
        self._serving.set()
        self._moved = asyncio.Condition()

    async def work(self, client: int) -> None:
        """Run all rounds of one client, one mutation after the other."""
        for turn in range(ROUNDS):
            for kind, text in MUTATIONS.items():
                field = text.replace("PRODUCT", PRODUCT).format(
                    own=f"{client}-{turn}",
                    shared=f"shared-{(client + turn) % SHARED}",
                    client=f"client-{client}",
                    sequence=turn + 1,
                )
                answer = await self._until_answered(field, key=f"{kind} {client} {turn}")
                async with self._moved:
                    self.answers[answer] += 1
                    self._moved.notify_all()

    async def disturb(self, start: Any, rng: random.Random) -> None:
        """Kill the gateway after random numbers of responses, and start another one each time."""
        for count in sorted(rng.sample(range(TOTAL * 9 // 10), KILLS)):
            async with self._moved:
                await self._moved.wait_for(lambda count=count: self.answers.total() >= count)
            self._serving.clear()
            await asyncio.to_thread(self.gateway.kill)
            self.gateway = await asyncio.to_thread(start)
            self._serving.set()

    async def _until_answered(self, field: str, key: str) -> str:
        times = 0
        while True:
            await self._serving.wait()
            times += 1
            self.sent_again += times == 2
            try:
                response = await self._http.post(
                    f"{self.gateway.address}/graphql",
                    json={"query": f"mutation {{ written: {field} {{ __typename }} }}"},
                    headers={"Idempotency-Key": key},
                )
            except httpx.TransportError:
                continue
            answer = response.json()
            if "errors" not in answer:
                return str(answer["data"]["written"]["__typename"])
            assert answer["errors"][0]["extensions"]["code"] in COME_AGAIN, answer


@asynccontextmanager
async def clients_of(gateway: RunningGateway) -> AsyncIterator[Clients]:
    """Open one connection for each client; end the last gateway afterwards."""
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with httpx.AsyncClient(limits=limits, timeout=120) as http:
        clients = Clients(gateway, http)
        try:
            yield clients
        finally:
            with ensure_ended(clients.gateway):
                pass


@pytest.fixture
def impatient_mongod(client: Client) -> Iterator[None]:
    """Let MongoDB abort transactions of a killed gateway after a second or two."""
    name = "transactionLifetimeLimitSeconds"
    usual = client.admin.command({"getParameter": 1, name: 1})[name]
    client.admin.command({"setParameter": 1, name: 1})
    yield
    client.admin.command({"setParameter": 1, name: usual})


@pytest.fixture
def database(client: Client, database_name: str) -> Database[dict[str, Any]]:
    """Provide the products that all clients change."""
    found = client[database_name]
    found["products"].insert_many(
        {"_id": f"shared-{n}", "sku": f"shared-{n}", "name": "Lamp", "stock": 0, "version": 1}
        for n in range(SHARED)
    )
    return found


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("impatient_mongod")
async def test_mutations_retried_after_a_kill_are_executed_once(
    mongo_uri: str, database: Database[dict[str, Any]]
) -> None:
    """Kills with -9 happen at random times.

    Each mutation is answered as if it had been sent once, and is once in the database and in the
    archive.
    """

    def start() -> RunningGateway:
        options = ("--lease-s", "1")
        return start_gateway(mongo_uri, database.name, ROOT / "schema.graphql", *options)

    async with clients_of(start()) as clients:
        await asyncio.gather(
            clients.disturb(start, random.Random(3)), *(clients.work(n) for n in range(CLIENTS))
        )
        each = CLIENTS * ROUNDS
        assert clients.answers == {
            "ProductWritten": 3 * each,
            "SupplierWritten": each,
            "ReadingWritten": each,
        }
        assert clients.sent_again > 0
        histories = {
            name: archived(database, name) for name in ("products", "suppliers", "readings")
        }
    check_present(database)
    check_past(histories)


def archived(database: Database[dict[str, Any]], name: str) -> list[list[dict[str, Any]]]:
    """Return the versions of each document, once all writes to the collection are archived."""
    archive = database[f"{name}.versions"]
    # It is after all other writes.
    database[name].insert_one({"_id": "last", "sku": "last"})
    wait_until(lambda: archive.find_one({"doc": "last"}), within_s=60)
    database[name].delete_one({"_id": "last"})
    records = list(archive.find({"doc": {"$ne": "last"}}).sort("_id"))
    check_chains(records)
    return [list(versions) for versions in by_document(records)]


def check_present(database: Database[dict[str, Any]]) -> None:
    """Check that the collections are the result of each mutation executed once."""
    products = list(database["products"].find().sort("_id"))
    assert [each["_id"] for each in products] == [f"shared-{n}" for n in range(SHARED)]
    assert sum(each["stock"] for each in products) == CLIENTS * ROUNDS
    assert all(each["version"] == each["stock"] + 1 for each in products)
    names = sorted(each["name"] for each in database["suppliers"].find())
    assert names == sorted(f"{n}-{turn}" for n in range(CLIENTS) for turn in range(ROUNDS))
    readings = list(database["readings"].find())
    assert [each["sequence"] for each in readings] == [ROUNDS] * CLIENTS


def check_past(histories: dict[str, list[list[dict[str, Any]]]]) -> None:
    """Check that each mutation has one version."""
    own, shared = [], []
    for versions in histories["products"]:
        (shared if str(versions[0]["doc"]).startswith("shared") else own).append(versions)
    assert [[each["op"] for each in versions] for versions in own] == [["INSERT", "DELETE"]] * (
        CLIENTS * ROUNDS
    )
    for versions in shared:
        assert [each["full"]["stock"] for each in versions] == [*range(len(versions))]
    assert [len(versions) for versions in histories["suppliers"]] == [1] * (CLIENTS * ROUNDS)
    for versions in histories["readings"]:
        assert [each["full"]["sequence"] for each in versions] == [*range(1, ROUNDS + 1)]
