"""Repeated lists while their documents are written: each response has the current documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support.eventually import wait_until
from tests.support.exhaustive import scaled
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") {
  id: ID! name: String n: Int tags: [String!] ownerId: ID
  owner: Owner @reference(by: "ownerId")
}
type Owner @collection(name: "owners") { id: ID! name: String! }
"""
FIELDS = "id name n tags"
# The same fields by several operations, in several orders, and beside a reference.
LISTS = {
    "all": f"{{ things(first: 50) {{ nodes {{ {FIELDS} }} }} }}",
    "renamed": "{ things(first: 50) { nodes { tags n title: name id } } }",
    "edges": f"{{ things(first: 50) {{ edges {{ cursor node {{ {FIELDS} }} }} }} }}",
    "numbered": f"{{ things(first: 50) {{ nodes {{ {FIELDS} version }} }} }}",
    "owned": f"{{ things(first: 50) {{ nodes {{ {FIELDS} owner {{ id name }} }} }} }}",
    "large": f"{{ things(first: 100) {{ nodes {{ {FIELDS} }} }} }}",
    "by name": f"{{ things(first: 50, orderBy: [{{name: DESC}}, {{id: ASC}}]) "
    f"{{ nodes {{ {FIELDS} }} pageInfo {{ endCursor }} }} }}",
}
STEPS = scaled(all=120, fast=40)


@pytest.fixture
def things(client: Client) -> Iterator[Collection[dict[str, Any]]]:
    database = client[f"lists_{uuid4().hex[:8]}"]
    database["owners"].insert_many([{"_id": f"o{n}", "name": f"Owner {n}"} for n in range(3)])
    database["things"].insert_many([_thing(n) for n in range(20)])
    yield database["things"]
    client.drop_database(database.name)


@pytest.fixture
def gateway(
    mongo_uri: str, things: Collection[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, things.database.name, model) as running:
        # During the initial snapshot, a document may have no version yet: ARCHIVE_BEHIND.
        wait_until(lambda: "errors" not in running.post(LISTS["numbered"]))
        yield running


def _thing(n: int) -> dict[str, Any]:
    return {"_id": f"t{n:02}", "name": f"Thing {n}", "n": n, "tags": ["a"], "ownerId": f"o{n % 3}"}


def _write(rng: random.Random, things: Collection[dict[str, Any]]) -> None:
    one = {"_id": f"t{rng.randrange(24):02}"}
    owner = {"_id": f"o{rng.randrange(3)}"}
    match rng.randrange(5):
        case 0:
            things.delete_one(one)
        case 1:
            things.replace_one(one, _thing(rng.randrange(24)) | one, upsert=True)
        case 2:
            things.update_one(one, {"$set": {"n": rng.randrange(3), "tags": ["b", "c"]}})
        case 3:
            # The response has only the version number.
            things.update_one(one, {"$inc": {"unmodelled": 1}})
        case 4:
            things.database["owners"].update_one(owner, {"$set": {"name": f"{rng.random()}"}})


def _shown(things: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": each["_id"], **{name: each.get(name) for name in ("name", "n", "tags")}}
        for each in things.find().sort("_id", 1)
    ]


def _check(name: str, connection: dict[str, Any], things: Collection[dict[str, Any]]) -> None:
    expected = _shown(things)
    if name == "edges":
        assert [each["node"] for each in connection["edges"]] == expected
        return
    nodes = connection["nodes"]
    if name == "renamed":
        expected = [
            {"tags": each["tags"], "n": each["n"], "title": each["name"], "id": each["id"]}
            for each in expected
        ]
        assert [list(each) for each in nodes] == [list(each) for each in expected]
    if name == "by name":
        expected.sort(key=lambda each: each["id"])
        expected.sort(key=lambda each: each["name"], reverse=True)
    if name == "owned":
        owners = {each["_id"]: each["name"] for each in things.database["owners"].find()}
        for each in things.find():
            [node] = [one for one in nodes if one["id"] == each["_id"]]
            owner = each["ownerId"]
            assert node.pop("owner") == {"id": owner, "name": owners[owner]}
    if name == "numbered":
        for one in nodes:
            del one["version"]
    assert nodes == expected


def test_each_response_has_the_current_documents(
    gateway: RunningGateway, things: Collection[dict[str, Any]]
) -> None:
    """Writes and reads alternate at random."""
    rng = random.Random(7)
    for _ in range(STEPS):
        if rng.randrange(2):
            _write(rng, things)
        name = rng.choice(list(LISTS))
        _check(name, gateway.query(LISTS[name])["things"], things)


def test_a_version_number_is_the_last_one_though_no_other_field_changes(
    gateway: RunningGateway, things: Collection[dict[str, Any]]
) -> None:
    """Its document is unchanged."""

    def numbers() -> dict[str, int]:
        nodes = gateway.query(LISTS["numbered"])["things"]["nodes"]
        return {each["id"]: each["version"] for each in nodes}

    wait_until(lambda: set(numbers().values()) == {1})
    for _ in range(2):
        before = numbers()["t03"]
        things.update_one({"_id": "t03"}, {"$inc": {"unmodelled": 1}})
        wait_until(lambda before=before: numbers()["t03"] == before + 1)
    assert sorted(numbers().values()) == [1] * 19 + [3]
