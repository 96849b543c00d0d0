"""Create, update, replace and delete mutations: their effect on a document, and their refusals."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64

from tests.support.editing import Shop, lamp, pick

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_document_is_created_with_its_content(shop: Shop) -> None:
    """It has the model's types, version 1 and the attribution."""
    id_ = shop.fresh_id()
    result = await shop.mutate("createProduct", id=id_, document=lamp(id_), comment="first")
    assert result["__typename"] == "ProductWritten"
    assert result["product"] == await shop.present(id_)
    stored = shop.database["products"].find_one({"_id": id_})
    assert stored is not None
    assert (stored["price"], stored["version"]) == (Decimal128("12.50"), 1)
    assert (stored["_change"]["by"], stored["_change"]["why"]) == ("ann", "first")


async def test_a_missing_id_is_generated(shop: Shop) -> None:
    """The result contains it."""
    result = await shop.mutate("createProduct", document=lamp(shop.fresh_id()))
    assert await shop.present(result["product"]["id"]) == result["product"]


async def test_an_id_that_is_taken_is_a_result(shop: Shop) -> None:
    """The result has the path of the id."""
    id_ = await shop.create()
    result = await shop.mutate("createProduct", id=id_, document=lamp("another sku"))
    assert (result["__typename"], result["path"]) == ("AlreadyExists", "id")


@pytest.mark.parametrize("mutation", ["create", "update", "replace"])
async def test_a_unique_value_that_is_taken_is_a_result(shop: Shop, mutation: str) -> None:
    """Each mutation returns the path of the field, and nothing is written."""
    taken, id_ = await shop.create(), await shop.create()
    result = await shop.mutate(
        f"{mutation}Product",
        **{
            "create": {"document": lamp(taken)},
            "update": {"id": id_, "patch": {"sku": taken}},
            "replace": {"id": id_, "document": lamp(taken), "expectedVersion": 1},
        }[mutation],
    )
    assert (result["__typename"], result["path"]) == ("AlreadyExists", "sku")
    assert len(await shop.history(id_)) == 1


async def test_a_patch_changes_only_its_own_fields(shop: Shop) -> None:
    """Lists are replaced, and null removes a field."""
    id_ = await shop.create(sold=7)
    before = await shop.present(id_)
    patch = {"name": "Torch", "tags": ["a", "b"], "sold": None}
    result = await shop.mutate("updateProduct", id=id_, patch=patch)
    assert before is not None
    assert result["product"] == {**before, **patch, "version": 2}
    assert "sold" not in (shop.database["products"].find_one({"_id": id_}) or {})


# RFC 7396, appendix A, where both are objects; and names with a meaning in MongoDB.
MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    (["a", "b"], {"a": "b", "c": None}, {"a": "b"}),
    ("text", {"a": 1}, {"a": 1}),
    ({"a": 1}, ["c"], ["c"]),
    ({"$a": 1, "a.b": 2, "": 3, "a": {"b": 4}}, {"$a": None, "a.b": 5, "": {"x": 6}},
     {"a.b": 5, "": {"x": 6}, "a": {"b": 4}}),
    ({"$set": {"x.y": 1}}, {"$set": {"x.y": None, "$inc": "$name"}}, {"$set": {"$inc": "$name"}}),
]  # fmt: skip


@pytest.mark.parametrize(("there", "patch", "merged"), MERGES)
async def test_json_is_merged_by_rfc_7396(shop: Shop, there: Any, patch: Any, merged: Any) -> None:
    """No name is taken for an operator or a path."""
    id_ = await shop.create(attributes=there)
    result = await shop.mutate("updateProduct", id=id_, patch={"attributes": patch})
    assert result["product"]["attributes"] == merged
    assert (shop.database["products"].find_one({"_id": id_}) or {})["attributes"] == merged


async def test_an_embedded_document_is_patched_field_by_field(shop: Shop) -> None:
    """Other fields stay, and null removes a field."""
    id_ = await shop.create(dimensions={"width": 1, "height": 2, "note": "about"})
    patch = {"dimensions": {"width": 3, "note": None}}
    result = await shop.mutate("updateProduct", id=id_, patch=patch)
    assert result["product"]["dimensions"] == {"width": 3, "height": 2, "note": None}


async def test_a_partial_patch_of_a_missing_embedded_document_is_refused(shop: Shop) -> None:
    """Its other fields are required; the result has the path of the missing one."""
    id_ = await shop.create()
    result = await shop.mutate("updateProduct", id=id_, patch={"dimensions": {"width": 3}})
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "dimensions.height")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"patch": {"name": None}}, "name"),
        ({"patch": {"dimensions": {"width": None, "height": 1}}}, "dimensions.width"),
        ({"patch": {"stock": 1}, "increment": {"stock": 1}}, "stock"),
    ],
)
async def test_content_that_violates_the_model_is_a_result(
    shop: Shop, given: dict[str, Any], path: str
) -> None:
    """It has the path of the field, in the API's names."""
    id_ = await shop.create()
    result = await shop.mutate("updateProduct", id=id_, **given)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", path)


async def test_a_validator_that_refuses_added_fields_is_named(shop: Shop) -> None:
    """The message has the fields that it must allow in addition."""
    id_ = await shop.create()
    rule = {"$jsonSchema": {"not": {"required": ["_change"]}}}
    shop.database.command("collMod", "products", validator=rule)
    try:
        result = await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
    finally:
        shop.database.command("collMod", "products", validator={})
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "")
    assert "the validator of the collection 'products'" in result["message"]
    assert "the fields of revstream: _change, version" in result["message"]


async def test_a_patch_and_an_increment_are_one_write(shop: Shop) -> None:
    """Increments work for all number types; a missing number begins at zero."""
    id_ = await shop.create()
    increment = {"stock": -2, "price": "0.25", "sold": "9007199254740993"}
    result = await shop.mutate(
        "updateProduct", id=id_, patch={"name": "Torch"}, increment=increment
    )
    product = result["product"]
    assert (product["name"], product["stock"], product["price"]) == ("Torch", 3, "12.75")
    assert product["sold"] == "9007199254740993"
    assert pick(await shop.history(id_), "version", "operation") == [(1, "INSERT"), (2, "UPDATE")]


@pytest.mark.parametrize(
    ("stored", "increment"),
    [
        ({"stock": 2**31 - 1}, {"stock": 1}),
        ({"stock": -(2**31)}, {"stock": -1}),
        ({"sold": Int64(2**63 - 1)}, {"sold": 1}),
        ({"sold": Int64(-(2**63))}, {"sold": -1}),
        ({"sold": Int64(2)}, {"sold": str(2**63 - 1)}),
        ({"stock": "five"}, {"stock": 1}),
        ({"price": "cheap"}, {"price": "1"}),
        ({"price": Decimal128("9.9E6144")}, {"price": "9.9E6144"}),
    ],
)
async def test_an_impossible_increment_is_refused(
    shop: Shop, stored: dict[str, Any], increment: dict[str, Any]
) -> None:
    """Sums beyond 32 and 64 bits, and stored texts, are refused; nothing changes."""
    id_ = await shop.create()
    shop.database["products"].update_one({"_id": id_}, {"$set": stored})
    before = shop.database["products"].find_one({"_id": id_})
    text = """
      mutation($id: ID!, $increment: ProductIncrement) {
        result: updateProduct(id: $id, increment: $increment) {
          __typename ... on InvalidDocument { path } } }
    """
    result = (await shop.ask(text, id=id_, increment=increment))["result"]
    assert result == {"__typename": "InvalidDocument", "path": next(iter(increment))}
    assert shop.database["products"].find_one({"_id": id_}) == before


async def test_no_increment_writes_an_infinity(shop: Shop) -> None:
    """The sum of two finite numbers may be infinite."""
    id_ = shop.fresh_id()
    shop.database["gauges"].insert_one({"_id": id_, "sequence": Int64(1), "value": 1.5e308})
    text = """
      mutation($id: ID!, $value: Float!) {
        result: updateGauge(id: $id, increment: {value: $value}) {
          __typename ... on InvalidDocument { path } } }
    """
    result = (await shop.ask(text, id=id_, value=1.5e308))["result"]
    assert result == {"__typename": "InvalidDocument", "path": "value"}
    result = (await shop.ask(text, id=id_, value=-1.5e308))["result"]
    assert result == {"__typename": "GaugeWritten"}
    assert (shop.database["gauges"].find_one({"_id": id_}) or {})["value"] == 0.0


async def test_an_increment_to_the_highest_number_succeeds(shop: Shop) -> None:
    """The highest number is valid."""
    id_ = await shop.create(stock=2**31 - 2)
    result = await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
    assert result["product"]["stock"] == 2**31 - 1


async def test_replace_keeps_fields_outside_the_model(shop: Shop) -> None:
    """Fields of the model that the new content lacks are removed."""
    id_ = await shop.create(sold=7)
    shop.database["products"].update_one({"_id": id_}, {"$set": {"legacy": {"a.b": 1}}})
    result = await shop.mutate("replaceProduct", id=id_, document=lamp(id_))
    assert result["product"]["sold"] is None
    stored = shop.database["products"].find_one({"_id": id_}) or {}
    assert stored["legacy"] == {"a.b": 1}
    assert "sold" not in stored


@pytest.mark.parametrize("mutation", ["update", "replace", "delete", "restore"])
async def test_a_missing_document_cannot_be_written(shop: Shop, mutation: str) -> None:
    """This holds with and without an expected version."""
    id_ = shop.fresh_id()
    given = {
        "update": {"patch": {"name": "x"}},
        "replace": {"document": lamp(id_)},
        "delete": {},
        "restore": {"version": 1},
    }[mutation]
    for expected in ({}, {"expectedVersion": 1}):
        result = await shop.mutate(f"{mutation}Product", id=id_, **given, **expected)
        assert result["__typename"] == "DocumentNotFound"


async def test_history_has_author_operation_and_comment(shop: Shop) -> None:
    """Every kind of mutation has them, a deletion included."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", author="bob", id=id_, patch={"name": "x"}, comment="u")
    await shop.mutate("replaceProduct", author=None, id=id_, document=lamp(id_), comment="r")
    await shop.mutate("deleteProduct", author="cy", id=id_, comment="d")
    await shop.mutate("restoreProduct", author="dee", id=id_, version=2, comment="b")
    assert pick(await shop.history(id_), "operation", "author", "comment", "restoredFrom") == [
        ("INSERT", "ann", None, None),
        ("UPDATE", "bob", "u", None),
        ("REPLACE", None, "r", None),
        ("DELETE", "cy", "d", None),
        ("INSERT", "dee", "b", 2),
    ]


async def test_a_deletion_without_author_has_no_author_in_history(shop: Shop) -> None:
    """It takes one operation less."""
    id_ = await shop.create()
    await shop.mutate("deleteProduct", author=None, id=id_)
    last = (await shop.history(id_))[-1]
    assert (last["operation"], last["author"], last["document"]) == ("DELETE", None, None)
