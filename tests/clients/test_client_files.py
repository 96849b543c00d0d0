"""The files under `/client/`, which configure other vendors' caches and code generators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from graphql import build_client_schema, build_schema, find_breaking_changes
from pymongo import MongoClient

from tests.clients.node import running_program
from tests.clients.products import product
from tests.support import http
from tests.support.gateway import ROOT, RunningGateway, running_gateway


@pytest.fixture(scope="module")
def shop(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> Iterator[RunningGateway]:
    """Start the example shop with one lamp."""
    name = f"client_files_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as gateway:
        lamp = product("Lamp", "lamp") | {"dimensions": {"width": 1.5, "height": 2.0}}
        client[name]["products"].insert_one(lamp)
        yield gateway
    client.drop_database(name)


@pytest.mark.parametrize("cache", ["apollo", "graphcache"])
def test_caches_read_fragments_on_interfaces_without_warnings(
    shop: RunningGateway, cache: str
) -> None:
    """A cache reads fragments on interfaces, for which it must know the implementing types.

    A conflict contains the document with its type.
    """
    with running_program("caches.mjs", shop.address) as (process, said):
        assert process.wait(timeout=120) == 0
    found = next(each for each in said if each["cache"] == cache)
    assert found["complaints"] == []
    [lamp] = found["data"]["products"]["nodes"]
    assert (lamp["name"], lamp["dimensions"]["width"]) == ("Lamp", 1.5)
    [version] = lamp["history"]["nodes"]
    assert (version["operation"], version["document"]["name"]) == ("INSERT", "Lamp")
    refused = found["data"]["updateProduct"]
    assert refused["__typename"] == "VersionConflict"
    assert refused["currentProduct"]["name"] == "Lamp"
    assert "9" in refused["message"]


def test_each_file_matches_the_served_schema(shop: RunningGateway) -> None:
    """The introspection file is the served schema; every scalar of it has a type."""
    served = build_schema(http.get(f"{shop.address}/schema.graphql").text)
    files = {
        name: http.get(f"{shop.address}/client/{name}.json").json()
        for name in ("possible-types", "scalars", "graphcache", "codegen")
    }
    assert find_breaking_changes(served, build_client_schema(files["graphcache"]["schema"])) == []
    own = {
        name
        for name, type_ in served.type_map.items()
        if type(type_).__name__.endswith("ScalarType")
    }
    assert files["scalars"].keys() == own - {"ID", "String", "Int", "Float", "Boolean"}
    assert files["codegen"]["generates"]["src/gql/"]["config"]["scalars"] == files["scalars"]
    assert files["possible-types"]["Node"][:3] == [
        "Customer",
        "CustomerSnapshot",
        "CustomerVersion",
    ]


@pytest.mark.parametrize(("name", "says"), [("relay", "--relay"), ("nothing", "/client/scalars")])
def test_a_missing_file_is_a_404(shop: RunningGateway, name: str, says: str) -> None:
    """The response to a wrong name lists the files that exist."""
    response = http.get(f"{shop.address}/client/{name}.json")
    assert (response.status_code, says in response.text) == (404, True)
