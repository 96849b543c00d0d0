"""Document input of mutations as BSON, and the paths of values that do not fit the model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, Decimal128, Int64, ObjectId

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Entity
from revstream.resolvers.mutations.document_input import (
    MOST_NESTED,
    DocumentChange,
    incrementable_fields,
    new_id,
    parse_change,
    parse_document,
    replacement_merge,
    writable_fields,
)
from revstream.resolvers.mutations.fenced_upsert import parse_event
from revstream.resolvers.mutations.merge_patch import REMOVED, Merge
from revstream.resolvers.mutations.result import InvalidDocument

MODEL = read_model(
    """
    type Product @collection(name: "products") {
      id: ID!
      name: String!
      price: Decimal @stored(as: "p")
      stock: Int
      sold: Long
      rating: Float
      listed: Boolean
      code: UUID
      colour: Colour
      photo: ObjectID
      sizes: [Int]
      tags: [String!]
      size: Size @stored(as: "dims")
      packages: [Package!]
      attributes: JSON
      details: JSON!
      addedAt: DateTime @stored(as: "added_at")
      makerId: ID
      maker: Maker @reference(by: "makerId")
      makerName: String @copy(of: "maker.name")
    }
    enum Colour { RED GREEN }
    type Size { width: Float! height: Float! @stored(as: "h") unit: Unit }
    type Unit { name: String! factor: Float }
    type Package { weight: Int! size: Size }
    type Maker @collection(name: "makers") { id: ObjectID! name: String! }
    type Reading @collection(name: "readings") { id: String! sequence: Long! @fence value: Float! }
    """
)
PRODUCT, READING = MODEL.entity("Product"), MODEL.entity("Reading")
WHOLE = {"name": "Lamp", "details": {}}


def document(**more: Any) -> dict[str, Any]:
    return parse_document(MODEL, PRODUCT, WHOLE | more)


def change(patch: dict[str, Any] | None = None, **increment: Any) -> DocumentChange:
    return parse_change(MODEL, PRODUCT, patch, increment)


def refused(given: dict[str, Any], *, patch: bool) -> InvalidDocument:
    with pytest.raises(InvalidDocument) as found:
        change(given) if patch else document(**given)
    return found.value


@pytest.mark.parametrize(
    ("name", "value", "stored", "kept"),
    [
        ("name", "Lämp $x", "name", "Lämp $x"),
        ("price", "12.50", "p", Decimal128("12.50")),
        ("stock", -5, "stock", -5),
        ("sold", "9007199254740993", "sold", Int64(9007199254740993)),
        ("rating", 4, "rating", 4.0),
        ("listed", False, "listed", False),
        ("code", str(UUID(int=7)), "code", Binary(UUID(int=7).bytes, 4)),
        ("colour", "RED", "colour", "RED"),
        ("photo", "64a000000000000000000001", "photo", ObjectId("64a000000000000000000001")),
        ("makerId", "64a000000000000000000001", "makerId", ObjectId("64a000000000000000000001")),
        ("sizes", [1, None, 3], "sizes", [1, None, 3]),
        ("sizes", [], "sizes", []),
        ("addedAt", "2024-05-01T12:00:00+02:00", "added_at", datetime(2024, 5, 1, 10, tzinfo=UTC)),
        ("size", {"width": 1, "height": 2}, "dims", {"width": 1.0, "h": 2.0}),
        ("packages", [{"weight": 1}], "packages", [{"weight": 1}]),
        ("attributes", [1, {"$a": None}], "attributes", [1, {"$a": None}]),
        ("attributes", {"a.b": {"c": None}}, "attributes", {"a.b": {"c": None}}),
    ],
)
def test_a_value_is_stored_under_its_stored_name_and_type(
    name: str, value: Any, stored: str, kept: Any
) -> None:
    """JSON values in a whole document stay unchanged, nulls inside them as well."""
    found = document(**{name: value})
    assert found == {"name": "Lamp", "details": {}, stored: kept}
    assert type(found[stored]) is type(kept)


def test_null_fields_are_not_stored() -> None:
    """This holds at every depth; the id and copies cannot be set by a client."""
    size = {"width": 1, "height": 2, "unit": None}
    found = document(stock=None, size=size, id="x", makerName="Ada", version=7)
    assert found == {"name": "Lamp", "details": {}, "dims": {"width": 1.0, "h": 2.0}}


@pytest.mark.parametrize("patch", [False, True], ids=["document", "patch"])
@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"name": None}, "name"),
        ({"details": None}, "details"),
        ({"name": "half \ud83d"}, "name"),
        ({"price": "1.2.3"}, "price"),
        ({"stock": 2**31}, "stock"),
        ({"sold": str(2**63)}, "sold"),
        ({"code": "x"}, "code"),
        ({"photo": "x"}, "photo"),
        ({"makerId": "x"}, "makerId"),
        ({"addedAt": "yesterday"}, "addedAt"),
        ({"sizes": [1, 2**31]}, "sizes.1"),
        ({"packages": [{"weight": 1}, {"weight": None}]}, "packages.1.weight"),
        ({"packages": [{"weight": 1, "size": {"width": 1}}]}, "packages.0.size.height"),
        ({"size": {"width": None, "height": 1}}, "size.width"),
        ({"size": {"width": 1, "height": 1, "unit": {"name": None}}}, "size.unit.name"),
        ({"attributes": {"a": 2**63}}, "attributes"),
        ({"attributes": {"a\0": 1}}, "attributes"),
        ({"details": {"a": float("inf")}}, "details"),
    ],
)
def test_an_invalid_value_is_named_by_its_path(
    given: dict[str, Any], path: str, patch: bool
) -> None:
    """The path has API names, at any depth."""
    found = refused(given, patch=patch)
    assert found.path == path
    assert found.message


def test_required_fields_must_be_present() -> None:
    """This holds in a document and in each embedded one."""
    with pytest.raises(InvalidDocument, match=r"Product\.name: missing") as found:
        parse_document(MODEL, PRODUCT, {"details": {}})
    assert found.value.path == "name"
    assert refused({"size": {"width": 1}}, patch=False).path == "size.height"


@pytest.mark.parametrize("patch", [False, True], ids=["document", "patch"])
def test_a_document_too_large_for_mongodb_is_refused_before_it_is_sent(patch: bool) -> None:
    """The maximum is 16 MB; the error names no field."""
    found = refused({"name": "x" * (16 * 1024 * 1024)}, patch=patch)
    assert (found.path, "maximum is 16,777,216" in found.message) == ("", True)


def test_a_replacement_removes_absent_fields_of_the_model_only() -> None:
    """Fields outside the model, copies and the id stay."""
    merge = replacement_merge(PRODUCT, document(stock=1))
    assert merge.entries["stock"] == 1
    assert merge.entries["p"] is REMOVED
    assert merge.entries["dims"] is REMOVED
    assert not {"_id", "id", "makerName", "version", "_change"} & set(merge.entries)


def test_a_patch_sets_unsets_and_merges() -> None:
    """Absent is left, null goes, embedded documents and JSON objects merge, lists are replaced."""
    found = change(
        {
            "price": None,
            "stock": 3,
            "size": {"height": 2, "unit": {"factor": None}},
            "tags": ["a"],
            "attributes": {"a": None, "b": {"c": [None]}, "d": 1},
        }
    )
    assert found.merge == Merge(
        {
            "p": REMOVED,
            "stock": 3,
            "dims": Merge({"h": 2.0, "unit": Merge({"factor": REMOVED})}),
            "tags": ["a"],
            "attributes": Merge({"a": REMOVED, "b": Merge({"c": [None]}), "d": 1}),
        }
    )


def test_a_patch_of_an_embedded_document_requires_its_other_fields() -> None:
    """Required fields outside the patch must exist already; the write itself checks this."""
    found = change({"size": {"height": 2, "unit": {"factor": 1}}})
    assert [(each.path, each.stored, dict(each.query)) for each in found.demands] == [
        ("size.unit.name", ("dims", "unit", "name"), {"dims.unit.name": {"$ne": None}}),
        ("size.width", ("dims", "width"), {"dims.width": {"$ne": None}}),
    ]
    assert change({"size": {"height": 2, "width": 1}}).demands == ()
    assert change({"size": None, "packages": [{"weight": 1}]}).demands == ()


@pytest.mark.parametrize("leaf", [1, None])
def test_a_patch_of_json_has_a_maximum_depth(leaf: Any) -> None:
    """A JSON value that replaces another, in a list or by itself, may be deeper."""
    deepest = leaf
    for _ in range(MOST_NESTED):
        deepest = {"a": deepest}
    assert change({"attributes": deepest}).merge.entries
    assert refused({"attributes": {"a": deepest}}, patch=True).path == "attributes"
    assert document(attributes={"a": deepest})["attributes"] == {"a": deepest}


def test_an_increment_is_an_expression_over_the_old_number() -> None:
    """It has the stored type and the stored name; a missing number counts as 0."""
    found = change(price="0.25", sold="-1", rating=None)
    assert found.increments == {"p": Decimal128("0.25"), "sold": Int64(-1)}
    assert found.merge == Merge()
    old = {"$getField": {"field": {"$literal": "p"}, "input": "$$old"}}
    assert found.added["p"] == {"$add": [{"$ifNull": [old, 0]}, {"$literal": Decimal128("0.25")}]}
    assert [each.path for each in found.demands] == ["price", "sold"]


@pytest.mark.parametrize(
    ("name", "value", "lowest", "highest"),
    [
        ("stock", 5, -(2**31), 2**31 - 6),
        ("stock", -5, -(2**31) + 5, 2**31 - 1),
        ("sold", 1, -(2**63), 2**63 - 2),
        ("sold", -(2**63), 0, 2**63 - 1),
    ],
)
def test_a_sum_must_stay_within_the_fields_type(
    name: str, value: int, lowest: int, highest: int
) -> None:
    """The check bounds the old number, so that the check itself cannot overflow."""
    [demand] = change(**{name: value}).demands
    stored = {"$ifNull": [f"${name}", 0]}
    assert demand.query == {
        "$expr": {
            "$and": [
                {"$isNumber": stored},
                {"$gte": [stored, Int64(lowest)]},
                {"$lte": [stored, Int64(highest)]},
            ]
        }
    }
    assert str(value) in demand.problem


def test_a_field_is_patched_or_incremented_not_both() -> None:
    """The order of the two would be undefined."""
    with pytest.raises(InvalidDocument, match="in both patch and increment") as found:
        change({"stock": 1}, stock=1)
    assert found.value.path == "stock"
    with pytest.raises(InvalidDocument, match=r"expected an Int"):
        change(stock=2**31)


def test_some_fields_cannot_be_written_by_a_client() -> None:
    """The id and copies are never written; a fence value only grows with events."""
    assert {"id", "makerName"}.isdisjoint(each.name for each in writable_fields(PRODUCT))
    assert [each.name for each in incrementable_fields(PRODUCT)] == [
        "price",
        "stock",
        "sold",
        "rating",
    ]
    assert [each.name for each in incrementable_fields(READING)] == ["value"]


def keyed(type_: str) -> Entity:
    text = f'type Thing @collection(name: "things") {{ id: {type_}! name: String }}'
    return read_model(text).entity("Thing")


@pytest.mark.parametrize(
    ("type_", "text", "id_"),
    [
        ("ID", "p1", "p1"),
        ("String", "p1", "p1"),
        ("ObjectID", "64a000000000000000000001", ObjectId("64a000000000000000000001")),
        ("UUID", str(UUID(int=7)), Binary(UUID(int=7).bytes, 4)),
        ("Int", "-7", -7),
        ("Long", str(2**40), Int64(2**40)),
    ],
)
def test_an_id_in_the_input_has_the_stored_type_of_the_entity(
    type_: str, text: str, id_: Any
) -> None:
    """The stored id is the one that the API returns."""
    found = new_id(keyed(type_), text)
    assert (found, type(found)) == (id_, type(id_))


@pytest.mark.parametrize(
    ("type_", "kind"), [("ID", str), ("String", str), ("ObjectID", ObjectId), ("UUID", Binary)]
)
def test_an_absent_id_is_generated(type_: str, kind: type) -> None:
    """Each generated id is new."""
    one, other = new_id(keyed(type_), None), new_id(keyed(type_), None)
    assert type(one) is kind
    assert one != other


@pytest.mark.parametrize(
    ("type_", "text", "message"),
    [
        ("Int", None, "ids of this type are not generated"),
        ("Long", None, "ids of this type are not generated"),
        ("Int", "07", "expected an Int"),
        ("ObjectID", "x", "expected an ObjectID"),
        ("UUID", "x", "expected a UUID"),
    ],
)
def test_an_invalid_id_is_refused(type_: str, text: str | None, message: str) -> None:
    """Numbers are not generated: only the client knows the next one."""
    with pytest.raises(InvalidDocument, match=message) as found:
        new_id(keyed(type_), text)
    assert found.value.path == "id"


def test_an_event_without_a_fence_value_is_refused() -> None:
    """The fence may be null in other documents, but not in an event."""
    model = read_model('type Gauge @collection(name: "gauges") { id: ID! n: Long @fence v: Int }')
    gauge = model.entity("Gauge")
    assert parse_event(model, gauge, {"n": "7", "v": 1}) == {"n": 7, "v": 1}
    with pytest.raises(InvalidDocument) as caught:
        parse_event(model, gauge, {"v": 1})
    assert caught.value.path == "n"
    assert caught.value.message == (
        "Gauge.n: missing, expected the fence value of the event; pass one"
    )
