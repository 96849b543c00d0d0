"""No N+1 as the server sees it: the number of commands of a request does not depend on the number
of documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import Decimal128, ObjectId
from pymongo import MongoClient
from pymongo.database import Database

from tests.integration.test_bad_input import MODEL
from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]
Commands = Counter[tuple[str, str]]

COUNT = 50
QUERIES = {
    "supplier and history of each": """
      products(first: $n) { nodes {
        supplier { name } history(first: 3) { nodes { version diff { path } } }
      } }
    """,
    "those who refer to each": """
      suppliers(first: $n) { nodes {
        name products(first: 2) { nodes { name supplier { name } } totalCount }
      } }
    """,
    "as of a moment": """
      productsAsOf(first: $n, asOf: $now) { nodes {
        version document { name supplier { name } }
      } totalCount }
    """,
    "the trail": """
      productVersions(first: $n) { nodes {
        version document { name supplier { name } } previous { version document { stock } }
        diff { path before after }
      } }
    """,
    "lost windows of the collection": """
      products(first: $n) { nodes { history(first: 1) { gaps { from } } } }
    """,
    "version numbers": """
      products(first: $n) { nodes { version supplier { version } } totalCount resumeToken }
    """,
    "states, differences and blame": """
      products(first: $n) { nodes {
        first: state(version: 1) { version } now: state(asOf: $now) { version author }
        diff(from: 1) { path } blame { path version { version } }
        history(first: 2) { nodes { previous { version } } totalCount }
      } }
    """,
}


@pytest.fixture(scope="module", params=representatives(["motor", "pymongo"], "motor"))
def served(
    request: pytest.FixtureRequest,
    mongo_uri: str,
    client: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningGateway, Database[dict[str, Any]], str]]:
    """Run a gateway over fifty products of fifty suppliers with four versions each, all recorded;
    yields a time point, too.
    """
    database = client[f"round_trips_{uuid4().hex[:8]}"]
    suppliers = [ObjectId() for _ in range(COUNT)]
    database["suppliers"].insert_many(
        {"_id": id_, "name": f"s{n}"} for n, id_ in enumerate(suppliers)
    )
    database["products"].insert_many(
        {
            "_id": f"p{n:02}",
            "name": f"n{n}",
            "price": Decimal128("1.50"),
            "stock": 0,
            "tags": ["a", "b"],
            "size": {"width": 1.0, "height": 2.0},
            "supplierId": id_,
        }
        for n, id_ in enumerate(suppliers)
    )
    for stock in range(3):
        database["products"].update_many({}, {"$inc": {"stock": 1}, "$set": {"weight": stock}})
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    options = ("--driver", request.param, "--archive-wait-s", "60")
    with running_gateway(mongo_uri, database.name, model, *options) as gateway:
        now = gateway.query("{ resumeToken }")["resumeToken"]
        ask(gateway, QUERIES["as of a moment"], COUNT, now)
        wait_until(lambda: set(states(gateway)) == {"recording"}, within_s=60)
        yield gateway, database, now
    client.drop_database(database.name)


def states(gateway: RunningGateway) -> list[str]:
    """Return the states of the recorders: after the initial snapshot they send nothing of their
    own.
    """
    return [each["state"] for each in gateway.query("{ streams { state } }")["streams"]]


def ask(gateway: RunningGateway, query: str, n: int, now: str) -> list[Any]:
    """Return the nodes; variables that the selection does not use are not declared."""
    moment = ", $now: TimePoint!" if "$now" in query else ""
    variables = {"n": n, **({"now": {"token": now}} if moment else {})}
    data = gateway.query(f"query($n: Int{moment}) {{ {query} }}", **variables)
    (connection,) = data.values()
    nodes: list[Any] = connection["nodes"]
    return nodes


def commands_of(
    gateway: RunningGateway, database: Database[dict[str, Any]], query: str, n: int, now: str
) -> Commands:
    """Return the reads that the server received, without those of streams and leases.

    The query runs once before: coverage and version numbers are cached then, once the archive has
    reached the position of the first request.
    """
    ask(gateway, query, n, now)
    here = gateway.query("{ resumeToken }")["resumeToken"]
    ask(gateway, QUERIES["as of a moment"], n, here)
    ask(gateway, query, n, now)
    database.command("profile", 0)
    database.drop_collection("system.profile")
    database.command("profile", 2)
    nodes = ask(gateway, query, n, now)
    database.command("profile", 0)
    assert len(nodes) == n
    seen: Commands = Counter()
    for entry in database["system.profile"].find({"appName": "revstream"}):
        collection = entry["ns"].partition(".")[2]
        if not collection.startswith(("revstream.", "$cmd")):
            seen[next(iter(entry["command"])), collection] += 1
    return seen


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_fifty_documents_take_as_many_commands_as_five(
    served: tuple[RunningGateway, Database[dict[str, Any]], str], query: str
) -> None:
    """The commands and collections are the same, and few."""
    gateway, database, now = served
    few = commands_of(gateway, database, query, 5, now)
    many = commands_of(gateway, database, query, COUNT, now)
    assert few == many
    assert 0 < many.total() <= 8
