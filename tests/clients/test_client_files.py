"""The files under `/client/`: what caches and code generators of other makers are set up by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from graphql import build_client_schema, build_schema, find_breaking_changes
from pymongo import MongoClient

from tests.clients.node import running_program
from tests.clients.products import product
from tests.support.gateway import ROOT, RunningGateway, running_gateway


@pytest.fixture(scope="module")
def shop(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> Iterator[RunningGateway]:
    """The example shop, with one lamp."""
    name = f"client_files_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as gateway:
        lamp = product("Lamp", "lamp") | {"dimensions": {"width": 1.5, "height": 2.0}}
        client[name]["products"].insert_one(lamp)
        yield gateway
    client.drop_database(name)


@pytest.mark.parametrize("cache", ["apollo", "graphcache"])
def test_caches_read_fragments_on_interfaces_and_complain_of_nothing(
    shop: RunningGateway, cache: str
) -> None:
    """From the cache, where the types that implement an interface have to be known; a conflict
    has the document with its type."""
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


def test_each_file_is_about_the_schema_that_is_served(shop: RunningGateway) -> None:
    """The introspection is the same schema; every scalar of it has a type."""
    served = build_schema(httpx.get(f"{shop.address}/schema.graphql").text)
    files = {
        name: httpx.get(f"{shop.address}/client/{name}.json").json()
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
def test_a_file_that_is_not_there_is_refused(shop: RunningGateway, name: str, says: str) -> None:
    """With what there is instead."""
    response = httpx.get(f"{shop.address}/client/{name}.json")
    assert (response.status_code, says in response.text) == (404, True)
