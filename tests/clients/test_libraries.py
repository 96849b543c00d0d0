"""GraphQL clients of other vendors: each queries, mutates, follows changes, and resumes from its
last token after its connection was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.clients.apollo import Apollo, running_client
from tests.clients.products import product
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, running_gateway
from tests.support.wire import TcpProxy, tcp_proxy

Goods = Collection[dict[str, Any]]

LIST = """
query Goods {
  products(first: 10) {
    __typename nodes { __typename id version name stock } resumeToken
  }
}
"""
RENAME = """
mutation Rename($id: ID!, $name: String!) {
  updateProduct(id: $id, patch: {name: $name}) {
    __typename
    ... on ProductWritten { version resumeToken product { __typename id version name stock } }
  }
}
"""
CHANGES = """
subscription Changes($after: ResumeToken) {
  productChanges(after: $after) {
    __typename kind operation documentId resumeToken product { __typename id version name stock }
  }
}
"""


@pytest.fixture(scope="module")
def shop(
    mongo_uri: str, client: MongoClient[dict[str, Any]]
) -> Iterator[tuple[RunningGateway, Goods]]:
    """Start the example shop's gateway; yields its products as another program sees them, too."""
    name = f"libraries_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as gateway:
        yield gateway, client[name]["products"]
    client.drop_database(name)


@pytest.fixture(params=["graphql-ws", "apollo", "urql", "relay"])
def connected(
    request: pytest.FixtureRequest, shop: tuple[RunningGateway, Goods]
) -> Iterator[tuple[Apollo, TcpProxy, Goods]]:
    """Yield a client, the wire between it and the gateway, and the products: one lamp."""
    gateway, goods = shop
    goods.delete_many({})
    goods.insert_one(product("lamp", f"lamp-{request.param}"))
    with (
        tcp_proxy(gateway.address) as wire,
        running_client("libraries.mjs", request.param, wire.address) as started,
    ):
        yield started, wire, goods


def test_each_client_resumes_from_its_token(connected: tuple[Apollo, TcpProxy, Goods]) -> None:
    """Each write, with the wire cut or not, arrives once and in order."""
    asked, wire, goods = connected
    lamp = goods.find_one()
    assert lamp is not None
    id_ = lamp["_id"]

    asked.ask("query", "list", LIST)
    listed = asked.next("list").data["products"]
    assert [(each["id"], each["name"]) for each in listed["nodes"]] == [(id_, "lamp")]

    asked.ask("follow", "changes", CHANGES, variables={"after": listed["resumeToken"]})
    asked.ask("mutate", "rename", RENAME, variables={"id": id_, "name": "Lamp"})
    written = asked.next("rename").data["updateProduct"]
    assert written["__typename"] == "ProductWritten"
    assert written["product"]["name"] == "Lamp"
    first = next_change(asked)
    assert (first["operation"], first["product"]) == ("UPDATE", written["product"])

    seen, made = [first["product"]["stock"]], [5]
    for round_ in range(2):
        made += change_stock(goods, id_, 10 * round_ + 100, count=5)
        wire.cut()
        made += change_stock(goods, id_, 10 * round_ + 105, count=5)
        connections = wire.connections
        wire.mend()
        wait_until(lambda before=connections: wire.connections > before)  # type: ignore[misc]
        while len(seen) < len(made):
            seen.append(next_change(asked)["product"]["stock"])
    assert seen == made
    made += change_stock(goods, id_, 999, count=1)
    assert next_change(asked)["product"]["stock"] == 999
    assert asked.is_quiet("changes")


def next_change(asked: Apollo) -> dict[str, Any]:
    """Return the next change, without checkpoint events."""
    while True:
        change: dict[str, Any] = asked.next("changes").data["productChanges"]
        if change["kind"] == "CHANGE":
            return change


def change_stock(goods: Goods, id_: str, first: int, *, count: int) -> list[int]:
    """Write each number from `first` on, as a program that knows nothing of the gateway."""
    numbers = list(range(first, first + count))
    for number in numbers:
        goods.update_one({"_id": id_}, {"$set": {"stock": number}, "$inc": {"version": 1}})
    return numbers
