"""Apollo Client's normalized cache follows all writes by itself, against the real command.

The list is read once, over HTTP. Every later change of it comes from mutation results and events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.clients.apollo import Apollo, running_apollo
from tests.clients.products import product
from tests.support.gateway import ROOT, RunningGateway, running_gateway

LIST = """
query Goods {
  products(first: 10, orderBy: [{ id: ASC }]) { nodes { id version name stock } resumeToken }
}
"""
RENAME = """
mutation Rename($id: ID!, $name: String!) {
  updateProduct(id: $id, patch: { name: $name }, increment: { stock: -2 }) {
    ... on ProductWritten { product { id version name stock } }
  }
}
"""
DELETE = """
mutation Delete($id: ID!) {
  deleteProduct(id: $id) { ... on ProductWritten { version product { id } } }
}
"""
CHANGES = """
subscription Changes($after: ResumeToken!) {
  productChanges(after: $after) {
    kind operation transition documentId product { id version name stock }
  }
}
"""
PAST = """
query Past($id: ID!) {
  product(id: $id) { id history { nodes { id version document { id name stock } } } }
}
"""

Goods = Collection[dict[str, Any]]


@pytest.fixture(scope="module")
def shop(
    mongo_uri: str, client: MongoClient[dict[str, Any]]
) -> Iterator[tuple[RunningGateway, Goods]]:
    """Start the example shop's gateway; yields its products as another program sees them, too."""
    name = f"apollo_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as gateway:
        yield gateway, client[name]["products"]
    client.drop_database(name)


@pytest.fixture
def goods(shop: tuple[RunningGateway, Goods]) -> Goods:
    """Return the collection with a lamp and a mug only."""
    products = shop[1]
    products.delete_many({})
    # Each test has other ids: the history of a previous test's documents continues.
    mark = uuid4().hex[:8]
    products.insert_many(product(name, f"{mark}-{name}") for name in ("lamp", "mug"))
    return products


@pytest.fixture
def apollo(shop: tuple[RunningGateway, Goods], goods: Goods) -> Iterator[Apollo]:
    """Start a client with an empty cache."""
    with running_apollo(shop[0].address) as started:
        yield started


def test_a_watched_list_shows_the_result_of_a_mutation(apollo: Apollo, goods: Goods) -> None:
    """A mutation result contains the document, so the list is updated without another request."""
    lamp, mug = _ids(goods)
    assert _watched(apollo) == [(lamp, 1, "lamp", 5), (mug, 1, "mug", 5)]

    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})

    seen = apollo.next("list")
    assert _rows(seen.data) == [(lamp, 2, "Lamp", 3), (mug, 1, "mug", 5)]
    assert apollo.next("rename").requests == 2
    assert _requests(apollo) == 2, "one for the list, one for the mutation"


def test_a_watched_list_shows_writes_of_another_program(apollo: Apollo, goods: Goods) -> None:
    """A subscription alone keeps the list up to date, without update code in the client."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token})

    goods.update_one({"_id": mug}, {"$set": {"name": "Mug"}, "$inc": {"stock": 4, "version": 1}})

    seen = apollo.next("list")
    assert _rows(seen.data) == [(lamp, 1, "lamp", 5), (mug, 2, "Mug", 9)]
    assert apollo.next("changes").data["productChanges"]["transition"] == "STAY"
    assert _requests(apollo) == 1, "the list was read once"


def test_the_event_and_the_result_of_one_write_agree(apollo: Apollo, goods: Goods) -> None:
    """A subscriber also receives its own changes; the cache is the same after event and result."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token})

    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})

    answered = apollo.next("rename").data["updateProduct"]["product"]
    assert apollo.next("changes").data["productChanges"]["product"] == answered
    assert _rows(apollo.next("list").data) == [(lamp, 2, "Lamp", 3), (mug, 1, "mug", 5)]
    assert apollo.is_quiet("list"), "the second of the two changed nothing"


def test_snapshots_do_not_overwrite_the_current_document(apollo: Apollo, goods: Goods) -> None:
    """Snapshots have ids and a type of their own, so they are cached beside the document."""
    lamp, _mug = _ids(goods)
    _watched(apollo)
    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})
    apollo.next("list")

    apollo.ask("query", "past", PAST, variables={"id": lamp})

    versions = apollo.next("past").data["product"]["history"]["nodes"]
    assert [(each["version"], each["document"]["name"]) for each in versions] == [
        (2, "Lamp"),
        (1, "lamp"),
    ]
    apollo.ask("show", "cache")
    cache = apollo.next("cache").data
    assert cache[f"Product:{lamp}"]["name"] == "Lamp"
    assert cache[f"ProductSnapshot:{lamp}@1"]["name"] == "lamp"
    assert cache[f"ProductSnapshot:{lamp}@2"]["name"] == "Lamp"
    assert apollo.is_quiet("list"), "the list was not touched"


def test_a_document_deleted_by_another_program_can_be_evicted(apollo: Apollo, goods: Goods) -> None:
    """The event of a deletion names the document; evicted, it leaves every cached list."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token}, forgets=True)

    goods.delete_one({"_id": lamp})

    assert _rows(apollo.next("list").data) == [(mug, 1, "mug", 5)]
    change = apollo.next("changes").data["productChanges"]
    assert (change["transition"], change["documentId"], change["product"]) == ("LEAVE", lamp, None)
    assert _requests(apollo) == 1, "the list was read once"


def test_a_document_deleted_by_a_mutation_can_be_evicted(apollo: Apollo, goods: Goods) -> None:
    """The result of a deletion has no document; the client evicts the one that it deleted."""
    lamp, mug = _ids(goods)
    _watched(apollo)

    apollo.ask("mutate", "delete", DELETE, variables={"id": mug}, deleted=mug)

    assert _rows(apollo.next("list").data) == [(lamp, 1, "lamp", 5)]
    assert apollo.next("delete").data["deleteProduct"]["product"] is None
    assert _requests(apollo) == 2, "one for the list, one for the mutation"


def _ids(goods: Goods) -> tuple[str, str]:
    lamp, mug = sorted(each["_id"] for each in goods.find())
    return lamp, mug


def _watched(apollo: Apollo) -> list[tuple[Any, ...]]:
    """Watch the list and return its first rows."""
    apollo.ask("watch", "list", LIST)
    return _rows(apollo.next("list").data)


def _token(apollo: Apollo) -> str:
    """Watch the list and return its resume token, from which no change can be missed."""
    apollo.ask("watch", "list", LIST)
    token: str = apollo.next("list").data["products"]["resumeToken"]
    return token


def _rows(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    nodes = data["products"]["nodes"]
    return [(each["id"], each["version"], each["name"], each["stock"]) for each in nodes]


def _requests(apollo: Apollo) -> int:
    """Return the number of requests so far, after any refetch would have been sent."""
    apollo.ask("show", "cache")
    return apollo.next("cache").requests
