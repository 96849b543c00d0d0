"""Stored values as API values, and those that do not fit the model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.json_value import json_value
from revstream.resolvers.values.output import ValueLocation, converter, id_to_api
from revstream.streams.mongo.driver.codecs import RAW

PLACE = ValueLocation("products", ObjectId("64a000000000000000000001"))
NAN, INFINITY = float("nan"), float("inf")
SOME_UUID = UUID("12345678-1234-5678-1234-567812345678")


def field(kind: Scalar | EnumType | str, **facts: Any) -> Field:
    return Field(name="price", stored="price", type=kind, **facts)


def same(left: object, right: object) -> bool:
    """Compare value and type: 1, 1.0 and True differ."""
    return left == right and type(left) is type(right)


@pytest.mark.parametrize(
    ("scalar", "stored", "expected"),
    [
        (Scalar.STRING, "", ""),
        (Scalar.STRING, "a\0é🙂", "a\0é🙂"),
        (Scalar.INT, 5, 5),
        (Scalar.INT, Int64(-5), -5),
        (Scalar.INT, 5.0, 5),
        (Scalar.INT, -(2**31), -(2**31)),
        (Scalar.LONG, 5, 5),
        (Scalar.LONG, Int64(2**53 - 1), 2**53 - 1),
        (Scalar.LONG, Int64(2**53), "9007199254740992"),
        (Scalar.LONG, Int64(-(2**63)), "-9223372036854775808"),
        (Scalar.LONG, 1e18, "1000000000000000000"),
        (Scalar.FLOAT, 1.5, 1.5),
        (Scalar.FLOAT, 1.0, 1.0),
        (Scalar.FLOAT, 1, 1),
        (Scalar.FLOAT, Int64(1), 1),
        (Scalar.BOOLEAN, False, False),
        (Scalar.DECIMAL, Decimal128("10.50"), "10.50"),
        (Scalar.DECIMAL, Decimal128("1E+3"), "1E+3"),
        (Scalar.DECIMAL, Decimal128("NaN"), "NaN"),
        (Scalar.DECIMAL, 5, "5"),
        (Scalar.DECIMAL, Int64(2**62), "4611686018427387904"),
        (Scalar.DECIMAL, 10.1, "10.1"),
        (Scalar.DECIMAL, 1e22, "1E+22"),
        (Scalar.DATETIME, datetime(2024, 5, 1, tzinfo=UTC), "2024-05-01T00:00:00.000Z"),
        (Scalar.DATETIME, DatetimeMS(10**15), "+033658-09-27T01:46:40.000Z"),
        (Scalar.OBJECTID, ObjectId("64a000000000000000000001"), "64a000000000000000000001"),
        (Scalar.UUID, Binary(SOME_UUID.bytes, 4), str(SOME_UUID)),
        (Scalar.UUID, SOME_UUID, str(SOME_UUID)),
        (Scalar.JSON, {"a": [1, 1.0, True]}, {"a": [1, 1.0, True]}),
    ],
)
def test_a_value_that_fits_is_converted(scalar: Scalar, stored: object, expected: object) -> None:
    """No digit is lost, and the JSON type is that of the scalar."""
    assert same(converter(field(scalar))(stored, PLACE), expected)


@pytest.mark.parametrize(
    ("scalar", "stored", "found"),
    [
        (Scalar.STRING, 5, "int 5"),
        (Scalar.STRING, Code("a"), "javascript {'$code': 'a'}"),
        (Scalar.STRING, ["a"], "an array"),
        (Scalar.INT, "5", "string '5'"),
        (Scalar.INT, 5.5, "double 5.5"),
        (Scalar.INT, True, "bool true"),
        (Scalar.INT, 2**31, "int 2147483648"),
        (Scalar.INT, Int64(2**31), "long 2147483648"),
        (Scalar.INT, Decimal128("5"), "decimal '5'"),
        (Scalar.LONG, 1e19, "double 1e+19"),
        (Scalar.LONG, NAN, "double 'NaN'"),
        (Scalar.FLOAT, NAN, "double 'NaN'"),
        (Scalar.FLOAT, Int64(2**53 + 1), "long '9007199254740993'"),
        (Scalar.FLOAT, -INFINITY, "double '-Infinity'"),
        (Scalar.FLOAT, Decimal128("1.5"), "decimal '1.5'"),
        (Scalar.FLOAT, False, "bool false"),
        (Scalar.BOOLEAN, 1, "int 1"),
        (Scalar.DECIMAL, "10.50", "string '10.50'"),
        (Scalar.DECIMAL, True, "bool true"),
        (Scalar.DATETIME, "2024-05-01T00:00:00Z", "string '2024-05-01T00:00:00Z'"),
        (Scalar.DATETIME, Timestamp(1, 2), "timestamp {'$timestamp': {'t': 1, 'i': 2}}"),
        (Scalar.OBJECTID, "64a000000000000000000001", "string '64a000000000000000000001'"),
        (Scalar.UUID, Binary(SOME_UUID.bytes, 3), "binData 'EjRWeBI0VngSNFZ4EjRWeA=='"),
        (Scalar.UUID, Binary(b"abc", 4), "binData 'YWJj'"),
        (Scalar.UUID, str(SOME_UUID), f"string '{SOME_UUID}'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_location(
    scalar: Scalar, stored: object, found: str
) -> None:
    """The error names the document, the field, the actual value and the expected type."""
    with pytest.raises(DocumentMisfit) as caught:
        converter(field(scalar))(stored, PLACE.inside("sizes"))
    assert caught.value.message == (
        f"products/64a000000000000000000001: sizes.price: {found}, expected {scalar.value}"
    )
    facts = dict(caught.value.extensions)
    assert str(facts.pop("mend")).startswith(f"store {scalar.value} there, or ")
    assert facts == {
        "code": "DOCUMENT_MISFIT",
        "collection": "products",
        "documentId": "64a000000000000000000001",
        "field": "sizes.price",
    }


@pytest.mark.parametrize(
    ("stored", "mend"),
    [
        (None, "store a value in price, or remove its ! in the model"),
        ("5", "store Int there, or declare the field as String in the model"),
        (Int64(2**40), "store Int there, or declare the field as Long in the model"),
        (Timestamp(1, 2), "store Int there, or declare the field as Timestamp in the model"),
        (Regex("a"), "store Int there, or change the field's type in the model"),
    ],
)
def test_a_misfit_has_a_fix(stored: object, mend: str) -> None:
    """The fix is in the document, or in the model as the actual type."""
    with pytest.raises(DocumentMisfit) as caught:
        converter(field(Scalar.INT, required=True))(stored, PLACE)
    assert caught.value.extensions["mend"] == mend


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("a", "a"),
        (5, "5"),
        (Int64(2**60), str(2**60)),
        (5.0, "5"),
        (2.5, "2.5"),
        (ObjectId("64a000000000000000000001"), "64a000000000000000000001"),
        (Binary(SOME_UUID.bytes, 4), str(SOME_UUID)),
        (Decimal128("1.50"), "1.50"),
        (True, "true"),
        ({"a": 1, "b": "ü"}, '{"a": 1, "b": "ü"}'),
    ],
)
def test_an_id_of_any_type_is_text(stored: object, expected: str) -> None:
    """A field declared as ID accepts any stored id, in lists of ids too."""
    assert converter(field(Scalar.ID))(stored, PLACE) == expected
    assert converter(field(Scalar.ID, is_list=True))([stored, "x"], PLACE) == [expected, "x"]


def test_an_enum_value_may_be_stored_as_another_text() -> None:
    """The stored text is returned as the value's name; the name itself is not the stored text."""
    status = EnumType(
        name="Status", values=("IN_PROGRESS", "DONE"), stored_as={"IN_PROGRESS": "in-progress"}
    )
    assert converter(field(status))("in-progress", PLACE) == "IN_PROGRESS"
    assert converter(field(status))("DONE", PLACE) == "DONE"
    with pytest.raises(DocumentMisfit, match=r"'IN_PROGRESS', expected one of in-progress, DONE"):
        converter(field(status))("IN_PROGRESS", PLACE)


def test_a_long_value_is_cut_in_the_message() -> None:
    """The error does not contain the whole text."""
    with pytest.raises(DocumentMisfit) as caught:
        converter(field(Scalar.INT))("x" * 10_000, PLACE)
    assert len(caught.value.message) < 200


def test_missing_and_null_values_are_null_unless_required() -> None:
    """A missing value and null are equal; a required value must exist."""
    assert converter(field(Scalar.STRING))(None, PLACE) is None
    assert converter(field(Scalar.STRING, is_list=True))(None, PLACE) is None
    with pytest.raises(DocumentMisfit, match="price: null or missing, expected String"):
        converter(field(Scalar.STRING, required=True))(None, PLACE)
    with pytest.raises(DocumentMisfit, match="null or missing, expected a list of String"):
        converter(field(Scalar.STRING, required=True, is_list=True))(None, PLACE)


def test_snapshots_may_lack_required_fields() -> None:
    """History is older than the model: a missing value is null, a wrong type is still a misfit."""
    convert = converter(field(Scalar.STRING, required=True), nullable=True)
    assert convert(None, PLACE) is None
    with pytest.raises(DocumentMisfit):
        convert(5, PLACE)


def test_lists_are_converted_item_by_item() -> None:
    """An item that does not fit is named by its index."""
    numbers = field(Scalar.LONG, is_list=True)
    assert converter(numbers)([1, None, Int64(2**60)], PLACE) == [1, None, str(2**60)]
    assert converter(numbers)([], PLACE) == []
    with pytest.raises(DocumentMisfit, match=r"price\.1: string 'x', expected Long"):
        converter(numbers)([1, "x"], PLACE)
    with pytest.raises(DocumentMisfit, match=r"price\.0: an array, expected Long"):
        converter(numbers)([[1]], PLACE)
    with pytest.raises(DocumentMisfit, match="int 1, expected a list of Long"):
        converter(numbers)(1, PLACE)
    with pytest.raises(DocumentMisfit, match=r"price\.1: null or missing"):
        converter(field(Scalar.LONG, is_list=True, item_required=True))([1, None], PLACE)


def test_an_enum_has_its_values_only() -> None:
    """Any other value is a misfit that lists them."""
    colour = field(EnumType(name="Colour", values=("RED", "GREEN")))
    assert converter(colour)("RED", PLACE) == "RED"
    with pytest.raises(DocumentMisfit, match="string 'red', expected one of RED, GREEN"):
        converter(colour)("red", PLACE)
    with pytest.raises(DocumentMisfit, match="expected one of RED, GREEN"):
        converter(colour)(1, PLACE)


def test_embedded_documents_are_returned_unconverted() -> None:
    """They are converted field by field; any other value is a misfit."""
    size = field("Size")
    raw = RawBSONDocument(bson.encode({"w": 1.0}), RAW)
    assert converter(size)({"w": 1.0}, PLACE) == {"w": 1.0}
    assert converter(size)(raw, PLACE) is raw
    assert converter(field("Size", is_list=True))([{"w": 1.0}, None], PLACE) == [{"w": 1.0}, None]
    with pytest.raises(DocumentMisfit, match="price: an array, expected Size"):
        converter(size)([{"w": 1.0}], PLACE)


@pytest.mark.parametrize(
    ("scalar", "stored", "expected"),
    [
        (Scalar.ID, "a b", "a b"),
        (Scalar.STRING, "a b", "a b"),
        (Scalar.INT, 7, "7"),
        (Scalar.INT, 7.0, "7"),
        (Scalar.LONG, Int64(2**60), str(2**60)),
        (Scalar.OBJECTID, ObjectId("64a000000000000000000001"), "64a000000000000000000001"),
        (Scalar.UUID, SOME_UUID, str(SOME_UUID)),
    ],
)
def test_an_id_is_text_however_it_is_stored(scalar: Scalar, stored: object, expected: str) -> None:
    """`_id` and a reference to it have the same ID."""
    assert id_to_api(scalar, stored, PLACE) == expected
    assert converter(field(Scalar.ID, stored_scalar=scalar))(stored, PLACE) == expected


def test_an_id_of_another_type_is_a_misfit() -> None:
    """The error names the document whose `_id` has the wrong type."""
    place = ValueLocation("suppliers", "abc")
    with pytest.raises(DocumentMisfit, match="suppliers/abc: id: string 'abc', expected ObjectID"):
        id_to_api(Scalar.OBJECTID, "abc", place)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, None),
        (1, 1),
        (1.0, 1.0),
        (True, True),
        (Int64(2**60), str(2**60)),
        (NAN, "NaN"),
        (INFINITY, "Infinity"),
        (-INFINITY, "-Infinity"),
        ("a", "a"),
        (Decimal128("1.50"), "1.50"),
        (datetime(2024, 5, 1, 1, 2, 3, 4000, tzinfo=UTC), "2024-05-01T01:02:03.004Z"),
        (DatetimeMS(10**15), "+033658-09-27T01:46:40.000Z"),
        (ObjectId("64a000000000000000000001"), "64a000000000000000000001"),
        (SOME_UUID, str(SOME_UUID)),
        (Binary(SOME_UUID.bytes, 4), str(SOME_UUID)),
        (Binary(b"abc", 4), "YWJj"),
        (b"abc", "YWJj"),
        (Timestamp(1, 2), {"$timestamp": {"t": 1, "i": 2}}),
        (Regex("a", "ix"), {"$regularExpression": {"pattern": "a", "options": "ix"}}),
        (Code("f()"), {"$code": "f()"}),
        (Code("f()", {"a": Int64(1)}), {"$code": "f()", "$scope": {"a": 1}}),
        (
            DBRef("things", ObjectId("64a000000000000000000001")),
            {"$ref": "things", "$id": "64a000000000000000000001"},
        ),
        (MinKey(), {"$minKey": 1}),
        (MaxKey(), {"$maxKey": 1}),
        ({"a.b": {"0": [Int64(1), 1.0, {}]}}, {"a.b": {"0": [1, 1.0, {}]}}),
    ],
)
def test_any_stored_value_has_a_json_rendering(stored: object, expected: object) -> None:
    """JSON's types stay; the others become text or extended JSON."""
    assert same(json_value(stored), expected)
    nested = json_value({"a": [stored]})
    assert same(nested["a"][0], expected)


def test_raw_documents_render_as_decoded_ones() -> None:
    """Undecoded records of the archive give the same JSON."""
    document = {"a": {"b": [{"c": Int64(1)}, Decimal128("1.0")]}}
    raw = RawBSONDocument(bson.encode(document), RAW)
    assert json_value(raw) == {"a": {"b": [{"c": 1}, "1.0"]}}
