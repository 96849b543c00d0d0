"""A normalized cache follows what is written, by itself: Apollo Client against the real command.

The list is read once, over HTTP. All that it shows afterwards came with the answers to mutations
and with events.
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
    """The example shop's gateway, and its products as another program sees them."""
    name = f"apollo_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as gateway:
        yield gateway, client[name]["products"]
    client.drop_database(name)


@pytest.fixture
def goods(shop: tuple[RunningGateway, Goods]) -> Goods:
    """A lamp and a mug, and nothing else."""
    products = shop[1]
    products.delete_many({})
    # Each test's are others than those of the test before, whose history goes on.
    mark = uuid4().hex[:8]
    products.insert_many(product(name, f"{mark}-{name}") for name in ("lamp", "mug"))
    return products


@pytest.fixture
def apollo(shop: tuple[RunningGateway, Goods], goods: Goods) -> Iterator[Apollo]:
    """A client that knows nothing yet."""
    with running_apollo(shop[0].address) as started:
        yield started


def test_a_watched_list_shows_what_a_mutation_answered(apollo: Apollo, goods: Goods) -> None:
    """The mutation's answer names the document, so the list follows without being read again."""
    lamp, mug = _ids(goods)
    assert _watched(apollo) == [(lamp, 1, "lamp", 5), (mug, 1, "mug", 5)]

    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})

    seen = apollo.told("list")
    assert _rows(seen.data) == [(lamp, 2, "Lamp", 3), (mug, 1, "mug", 5)]
    assert apollo.told("rename").requests == 2
    assert _requests(apollo) == 2, "one for the list, one for the mutation"


def test_a_watched_list_shows_what_another_program_wrote(apollo: Apollo, goods: Goods) -> None:
    """A subscription alone keeps the list up to date: nothing in the client joins the two."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token})

    goods.update_one({"_id": mug}, {"$set": {"name": "Mug"}, "$inc": {"stock": 4, "version": 1}})

    seen = apollo.told("list")
    assert _rows(seen.data) == [(lamp, 1, "lamp", 5), (mug, 2, "Mug", 9)]
    assert apollo.told("changes").data["productChanges"]["transition"] == "STAY"
    assert _requests(apollo) == 1, "the list was read once"


def test_events_and_answers_of_one_write_leave_the_same(apollo: Apollo, goods: Goods) -> None:
    """Who follows changes sees its own ones, too: the cache is the same after both."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token})

    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})

    answered = apollo.told("rename").data["updateProduct"]["product"]
    assert apollo.told("changes").data["productChanges"]["product"] == answered
    assert _rows(apollo.told("list").data) == [(lamp, 2, "Lamp", 3), (mug, 1, "mug", 5)]
    assert apollo.is_quiet("list"), "the second of the two changed nothing"


def test_the_past_does_not_overwrite_the_present(apollo: Apollo, goods: Goods) -> None:
    """Past states have ids and a type of their own, so they lie beside the document they were."""
    lamp, _mug = _ids(goods)
    _watched(apollo)
    apollo.ask("mutate", "rename", RENAME, variables={"id": lamp, "name": "Lamp"})
    apollo.told("list")

    apollo.ask("query", "past", PAST, variables={"id": lamp})

    versions = apollo.told("past").data["product"]["history"]["nodes"]
    assert [(each["version"], each["document"]["name"]) for each in versions] == [
        (2, "Lamp"),
        (1, "lamp"),
    ]
    apollo.ask("show", "cache")
    cache = apollo.told("cache").data
    assert cache[f"Product:{lamp}"]["name"] == "Lamp"
    assert cache[f"ProductSnapshot:{lamp}@1"]["name"] == "lamp"
    assert cache[f"ProductSnapshot:{lamp}@2"]["name"] == "Lamp"
    assert apollo.is_quiet("list"), "the list was not touched"


def test_a_document_that_another_program_deletes_can_be_forgotten(
    apollo: Apollo, goods: Goods
) -> None:
    """The event of a deletion names the document; evicted, it leaves every list it was in."""
    lamp, mug = _ids(goods)
    token = _token(apollo)
    apollo.ask("follow", "changes", CHANGES, variables={"after": token}, forgets=True)

    goods.delete_one({"_id": lamp})

    assert _rows(apollo.told("list").data) == [(mug, 1, "mug", 5)]
    change = apollo.told("changes").data["productChanges"]
    assert (change["transition"], change["documentId"], change["product"]) == ("LEAVE", lamp, None)
    assert _requests(apollo) == 1, "the list was read once"


def test_a_document_that_a_mutation_deletes_can_be_forgotten(apollo: Apollo, goods: Goods) -> None:
    """The answer to the deletion has no document; the client evicts the one it asked for."""
    lamp, mug = _ids(goods)
    _watched(apollo)

    apollo.ask("mutate", "delete", DELETE, variables={"id": mug}, deleted=mug)

    assert _rows(apollo.told("list").data) == [(lamp, 1, "lamp", 5)]
    assert apollo.told("delete").data["deleteProduct"]["product"] is None
    assert _requests(apollo) == 2, "one for the list, one for the mutation"


def _ids(goods: Goods) -> tuple[str, str]:
    lamp, mug = sorted(each["_id"] for each in goods.find())
    return lamp, mug


def _watched(apollo: Apollo) -> list[tuple[Any, ...]]:
    """Watch the list; the rows that it begins with."""
    apollo.ask("watch", "list", LIST)
    return _rows(apollo.told("list").data)


def _token(apollo: Apollo) -> str:
    """Watch the list; where it was read, so that no change can be missed from there on."""
    apollo.ask("watch", "list", LIST)
    token: str = apollo.told("list").data["products"]["resumeToken"]
    return token


def _rows(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    nodes = data["products"]["nodes"]
    return [(each["id"], each["version"], each["name"], each["stock"]) for each in nodes]


def _requests(apollo: Apollo) -> int:
    """How many were sent until now, by when whatever was to be read again would have been."""
    apollo.ask("show", "cache")
    return apollo.told("cache").requests
