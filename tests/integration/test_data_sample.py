"""Data checks of `doctor` and of the start: a sample of each collection against the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.maintenance.diagnosis import DiagnosisFinding
from revstream.streams.mongo.database import Mongo
from tests.support import http
from tests.support.gateway import running_gateway

Client = MongoClient[dict[str, Any]]
TEXT = """
type Product @collection(name: "products") {
  id: ID! name: String! @unique size: Size lines: [Size!]
}
type Size { width: Float! }
"""
MODEL = read_model(TEXT)


def not_well(found: list[DiagnosisFinding]) -> dict[str, DiagnosisFinding]:
    return {each.text.partition(":")[0]: each for each in found if each.level != "ok"}


async def test_invalid_fields_are_reported_with_share_example_and_fix(
    mongo: Mongo, client: Client
) -> None:
    """Fields of embedded documents are reported, too, each once, whatever the number of list
    items.
    """
    products = client[mongo.name]["products"]
    products.insert_many({"_id": f"p{n}", "name": f"n{n}"} for n in range(6))
    products.insert_one({"_id": "a", "name": 5, "size": {"width": "x"}})
    products.insert_one({"_id": "b", "lines": [{"width": 1.0}, {}, {"width": True}]})
    found = not_well(await examine_data(mongo, MODEL))
    assert set(found) == {"Product.name", "Product.size.width", "Product.lines.width"}
    name = found["Product.name"]
    assert (name.level, name.subject) == ("warning", "data")
    assert "2 of 8 documents in the sample (25%) do not fit" in name.text
    assert found["Product.size.width"].text.endswith(
        "products/a: size.width: string 'x', expected Float"
    )
    assert found["Product.size.width"].mend == (
        "store Float there, or declare the field as String in the model"
    )
    assert "1 of 8 documents" in found["Product.lines.width"].text


async def test_valid_data_has_no_findings(mongo: Mongo, client: Client) -> None:
    """Ids of any type are valid where they are declared as text."""
    products = client[mongo.name]["products"]
    products.create_index("name", unique=True)
    products.insert_many([{"_id": 1, "name": "a"}, {"_id": ObjectId(), "name": "b"}])
    assert [each.level for each in await examine_data(mongo, MODEL)] == ["ok"]


async def test_a_missing_collection_is_reported(mongo: Mongo, client: Client) -> None:
    """The finding suggests the similar name; a new database has no such finding."""
    [new] = await examine_data(mongo, MODEL)
    assert new.level == "note"
    client[mongo.name]["product"].insert_one({})
    [typo] = await examine_data(mongo, MODEL)
    assert (typo.level, typo.text) == (
        "warning",
        "Product: the collection 'products' does not exist; a similar name is 'product'",
    )


async def test_a_view_does_not_hide_other_findings(mongo: Mongo, client: Client) -> None:
    """A view has no indexes to check."""
    model = read_model(
        'type Thing @collection(name: "things") { id: ID! n: Int @unique }'
        'type Other @collection(name: "others") { id: ID! n: Int }'
    )
    database = client[mongo.name]
    database.create_collection("things", viewOn="elsewhere", pipeline=[])
    database["others"].insert_one({"_id": "a", "n": "text"})
    assert "Other.n" in not_well(await examine_data(mongo, model))


async def test_duplicates_of_a_unique_field_are_an_error(mongo: Mongo, client: Client) -> None:
    """The finding has two of the documents; the index cannot be created."""
    products = client[mongo.name]["products"]
    products.insert_many([{"_id": "a", "name": "n"}, {"_id": "b", "name": "n"}])
    [found] = not_well(await examine_data(mongo, MODEL)).values()
    assert found.level == "error"
    assert "string 'a' and string 'b'" in found.text


def test_readyz_names_an_index_that_could_not_be_created(
    mongo_uri: str, client: Client, mongo: Mongo, tmp_path: Path
) -> None:
    """The process serves all the same; the response has no values of documents."""
    model = tmp_path / "schema.graphql"
    model.write_text(TEXT)
    products = client[mongo.name]["products"]
    products.insert_many([{"_id": "a", "name": "secret"}, {"_id": "b", "name": "secret"}])
    with running_gateway(mongo_uri, mongo.name, model) as gateway:
        answer = http.get(f"{gateway.address}/readyz")
    assert "index products name" in answer.json()["trouble"]
    assert "secret" not in answer.text


async def test_plain_documents_in_a_layout_are_reported(mongo: Mongo, client: Client) -> None:
    """They have no versions in that layout, and are not served."""
    model = read_model(
        'type Product @collection(name: "products", history: EMBEDDED) { id: ID! name: String }'
    )
    client[mongo.name]["products"].insert_many(
        [{"_id": "a", "name": "n"}, {"_id": "b", "current": {"version": 1, "name": "n"}}]
    )
    [found] = not_well(await examine_data(mongo, model)).values()
    assert (
        "1 of 2 documents in the sample have no 'current.version' and are not served" in found.text
    )


@pytest.mark.parametrize(
    ("history", "well", "odd", "says"),
    [
        (
            "EMBEDDED",
            {"current": {"version": 2}, "prev": [{"version": 1}]},
            [
                {"current": {"version": 2}, "prev": {"version": 1}},
                {"current": {"version": 2}, "prev": [{"version": 1}, "n"]},
                {"current": {"version": 2}, "prev": [{"name": "n"}]},
            ],
            "3 of 5 documents in the sample have a 'prev' that is not a list of states",
        ),
        (
            "DELTAS",
            {"docId": "a", "version": 1, "unset": ["name"]},
            [
                {"docId": "a", "version": 2, "unset": "name"},
                {"docId": "a", "version": 3, "unset": [1]},
                {"docId": "a", "version": 4, "unset": {}},
            ],
            "3 of 5 documents in the sample have an 'unset' that is not a list of names",
        ),
    ],
)
async def test_invalid_version_lists_of_a_layout_are_reported(
    mongo: Mongo,
    client: Client,
    history: str,
    well: dict[str, Any],
    odd: list[dict[str, Any]],
    says: str,
) -> None:
    """The versions in them are not served; null and missing lists are valid."""
    model = read_model(
        f'type Product @collection(name: "products", history: {history}) {{ id: ID! name: String }}'
    )
    none = {**well, "docId": "b", "prev": None, "unset": None, "_id": "none"}
    client[mongo.name]["products"].insert_many([none, well, *odd])
    [found] = not_well(await examine_data(mongo, model)).values()
    assert (found.level, found.subject) == ("warning", "data")
    assert says in found.text


def test_a_start_logs_the_findings(
    mongo_uri: str, client: Client, mongo: Mongo, tmp_path: Path
) -> None:
    """It logs them before it creates anything."""
    model = tmp_path / "schema.graphql"
    model.write_text(TEXT)
    client[mongo.name]["product"].insert_one({})
    with running_gateway(mongo_uri, mongo.name, model) as gateway:
        said = [
            line for line in gateway.lines if "the collection 'products' does not exist" in line
        ]
        assert len(said) == 1
        assert "a similar name is 'product'" in said[0]
