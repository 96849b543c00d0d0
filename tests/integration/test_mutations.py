"""Create, update, replace and delete: what they make of a document, and what stands in their
way."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64

from tests.support.editing import Shop, lamp, tell

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_document_is_created_as_it_was_given(shop: Shop) -> None:
    """In the types of the model, with the count of its writes and who made this one."""
    id_ = shop.fresh_id()
    result = await shop.mutate("createProduct", id=id_, document=lamp(id_), comment="first")
    assert result["__typename"] == "ProductWritten"
    assert result["product"] == await shop.present(id_)
    stored = shop.database["products"].find_one({"_id": id_})
    assert stored is not None
    assert (stored["price"], stored["version"]) == (Decimal128("12.50"), 1)
    assert (stored["_change"]["by"], stored["_change"]["why"]) == ("ann", "first")


async def test_an_id_is_made_up_where_none_is_given(shop: Shop) -> None:
    """And told."""
    result = await shop.mutate("createProduct", document=lamp(shop.fresh_id()))
    assert await shop.present(result["product"]["id"]) == result["product"]


async def test_an_id_that_is_taken_is_a_result(shop: Shop) -> None:
    """With the path of the id."""
    id_ = await shop.made()
    result = await shop.mutate("createProduct", id=id_, document=lamp("another sku"))
    assert (result["__typename"], result["path"]) == ("AlreadyExists", "id")


@pytest.mark.parametrize("mutation", ["create", "update", "replace"])
async def test_a_unique_value_that_is_taken_is_a_result(shop: Shop, mutation: str) -> None:
    """With the path of the field, whichever mutation it is; nothing is written."""
    taken, id_ = await shop.made(), await shop.made()
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


async def test_a_patch_changes_what_it_names_and_nothing_else(shop: Shop) -> None:
    """Lists are replaced, null unsets."""
    id_ = await shop.made(sold=7)
    before = await shop.present(id_)
    patch = {"name": "Torch", "tags": ["a", "b"], "sold": None}
    result = await shop.mutate("updateProduct", id=id_, patch=patch)
    assert before is not None
    assert result["product"] == {**before, **patch, "version": 2}
    assert "sold" not in (shop.database["products"].find_one({"_id": id_}) or {})


# RFC 7396, appendix A, as far as both are objects; and names that MongoDB reads otherwise.
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
async def test_json_is_merged_as_rfc_7396_says(
    shop: Shop, there: Any, patch: Any, merged: Any
) -> None:
    """Whatever its names are: none is read as an operator or a path."""
    id_ = await shop.made(attributes=there)
    result = await shop.mutate("updateProduct", id=id_, patch={"attributes": patch})
    assert result["product"]["attributes"] == merged
    assert (shop.database["products"].find_one({"_id": id_}) or {})["attributes"] == merged


async def test_an_embedded_document_is_patched_in_part(shop: Shop) -> None:
    """What the patch does not name stays, what it sets to null goes."""
    id_ = await shop.made(dimensions={"width": 1, "height": 2, "note": "about"})
    patch = {"dimensions": {"width": 3, "note": None}}
    result = await shop.mutate("updateProduct", id=id_, patch=patch)
    assert result["product"]["dimensions"] == {"width": 3, "height": 2, "note": None}


async def test_a_part_of_an_embedded_document_that_is_not_there_is_refused(shop: Shop) -> None:
    """Where the rest of it is required; with the path of what is missing."""
    id_ = await shop.made()
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
async def test_what_does_not_fit_the_model_is_a_result(
    shop: Shop, given: dict[str, Any], path: str
) -> None:
    """With the path of the field, in the API's names."""
    id_ = await shop.made()
    result = await shop.mutate("updateProduct", id=id_, **given)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", path)


async def test_a_validator_that_refuses_what_is_added_is_named(shop: Shop) -> None:
    """With the fields that it has to allow beside the program's own."""
    id_ = await shop.made()
    rule = {"$jsonSchema": {"not": {"required": ["_change"]}}}
    shop.database.command("collMod", "products", validator=rule)
    try:
        result = await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
    finally:
        shop.database.command("collMod", "products", validator={})
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "")
    assert "the validator of the collection 'products'" in result["message"]
    assert "what revstream adds: _change, version" in result["message"]


async def test_a_patch_and_an_increment_are_one_write(shop: Shop) -> None:
    """Of all types of numbers; one that is not there begins at zero."""
    id_ = await shop.made()
    increment = {"stock": -2, "price": "0.25", "sold": "9007199254740993"}
    result = await shop.mutate(
        "updateProduct", id=id_, patch={"name": "Torch"}, increment=increment
    )
    product = result["product"]
    assert (product["name"], product["stock"], product["price"]) == ("Torch", 3, "12.75")
    assert product["sold"] == "9007199254740993"
    assert tell(await shop.history(id_), "version", "operation") == [(1, "INSERT"), (2, "UPDATE")]


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
async def test_an_increment_that_cannot_be_is_refused(
    shop: Shop, stored: dict[str, Any], increment: dict[str, Any]
) -> None:
    """Beyond 32 and 64 bits, and on what another program has stored as text; nothing changes."""
    id_ = await shop.made()
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
    """The sum of two numbers that are there may be none."""
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


async def test_an_increment_up_to_the_limit_is_made(shop: Shop) -> None:
    """The highest number is one."""
    id_ = await shop.made(stock=2**31 - 2)
    result = await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
    assert result["product"]["stock"] == 2**31 - 1


async def test_replace_keeps_what_the_model_does_not_name(shop: Shop) -> None:
    """And removes what it names and the new content does not have."""
    id_ = await shop.made(sold=7)
    shop.database["products"].update_one({"_id": id_}, {"$set": {"legacy": {"a.b": 1}}})
    result = await shop.mutate("replaceProduct", id=id_, document=lamp(id_))
    assert result["product"]["sold"] is None
    stored = shop.database["products"].find_one({"_id": id_}) or {}
    assert stored["legacy"] == {"a.b": 1}
    assert "sold" not in stored


@pytest.mark.parametrize("mutation", ["update", "replace", "delete", "restore"])
async def test_what_is_not_there_cannot_be_written(shop: Shop, mutation: str) -> None:
    """With a version expected or without."""
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


async def test_history_says_who_did_what_and_why(shop: Shop) -> None:
    """Of every kind of mutation, a deletion included."""
    id_ = await shop.made()
    await shop.mutate("updateProduct", author="bob", id=id_, patch={"name": "x"}, comment="u")
    await shop.mutate("replaceProduct", author=None, id=id_, document=lamp(id_), comment="r")
    await shop.mutate("deleteProduct", author="cy", id=id_, comment="d")
    await shop.mutate("restoreProduct", author="dee", id=id_, version=2, comment="b")
    assert tell(await shop.history(id_), "operation", "author", "comment", "restoredFrom") == [
        ("INSERT", "ann", None, None),
        ("UPDATE", "bob", "u", None),
        ("REPLACE", None, "r", None),
        ("DELETE", "cy", "d", None),
        ("INSERT", "dee", "b", 2),
    ]


async def test_a_deletion_without_author_is_recorded_as_one(shop: Shop) -> None:
    """It takes one operation less, and says nobody."""
    id_ = await shop.made()
    await shop.mutate("deleteProduct", author=None, id=id_)
    last = (await shop.history(id_))[-1]
    assert (last["operation"], last["author"], last["document"]) == ("DELETE", None, None)
