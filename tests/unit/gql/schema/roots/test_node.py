"""Tests of `gql.schema.roots.node`."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.resolvers.values.global_id import node_id
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask


@pytest.fixture(autouse=True)
def city(memory: Memory) -> None:
    memory.write("cities", {"_id": 7, "name": "Lyon"})
    memory.write("cities", {"_id": 7, "name": "Lyons"})
    memory.write("readings", {"_id": "a@b", "sequence": 1, "value": 1.0})


NODE = """
  query($id: ID!) {
    node(nodeId: $id) {
      __typename nodeId
      ... on CityState { name }
      ... on City { id }
      ... on Version { author operation }
      ... on CityVersion { id document { name } }
      ... on ReadingSnapshot { id value }
    }
  }
"""


async def test_an_object_is_read_by_its_node_id(ask: Ask) -> None:
    """Current documents, versions and snapshots have the fields of their types."""
    result = await ask(
        '{ city(id: "7") { nodeId history(first: 1) { nodes { nodeId document { nodeId } } } } }'
    )
    assert result.data is not None
    current = result.data["city"]
    version = current["history"]["nodes"][0]
    snapshot = version["document"]
    expected: dict[str, dict[str, Any]] = {
        current["nodeId"]: {"__typename": "City", "id": "7", "name": "Lyons"},
        version["nodeId"]: {
            "__typename": "CityVersion",
            "id": "7@2",
            "author": "ann",
            "operation": "UPDATE",
            "document": {"name": "Lyons"},
        },
        snapshot["nodeId"]: {"__typename": "CitySnapshot", "name": "Lyons"},
    }
    assert len(expected) == 3
    for id_, node in expected.items():
        found = await ask(NODE, id=id_)
        assert found.errors is None
        assert found.data == {"node": {**node, "nodeId": id_}}


async def test_an_id_may_contain_an_at_sign(ask: Ask) -> None:
    """The last one separates the id from the version."""
    id_ = node_id("ReadingSnapshot", "a@b@1")
    result = await ask(NODE, id=id_)
    assert result.data == {
        "node": {"__typename": "ReadingSnapshot", "nodeId": id_, "id": "a@b@1", "value": 1.0}
    }


@pytest.mark.parametrize(
    "id_",
    [node_id("City", "8"), node_id("CityVersion", "7@3"), node_id("CitySnapshot", "8@1")],
)
async def test_a_missing_object_is_null(ask: Ask, id_: str) -> None:
    """It never existed, or it is deleted."""
    result = await ask(NODE, id=id_)
    assert result.errors is None
    assert result.data == {"node": None}


@pytest.mark.parametrize(
    ("id_", "message"),
    [
        ("x", "expected a node id"),
        (node_id("Ship", "1"), "'Ship', expected a type of this API"),
        (node_id("PageInfo", "1"), "'PageInfo', expected a type of this API"),
        (node_id("City", "x"), "expected an Int"),
        (node_id("CityVersion", "7"), "expected <document id>@<version>"),
        (node_id("CityVersion", "7@x"), "expected <document id>@<version>"),
    ],
)
async def test_an_invalid_node_id_is_bad_user_input(ask: Ask, id_: str, message: str) -> None:
    """The error has the reason."""
    result = await ask(NODE, id=id_)
    assert result.data == {"node": None}
    assert result.errors is not None
    assert message in result.errors[0].message
    assert result.errors[0].extensions is not None
    assert result.errors[0].extensions["code"] == "BAD_USER_INPUT"
