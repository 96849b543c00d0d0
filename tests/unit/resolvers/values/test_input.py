"""Input values of a request, as BSON."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from bson import encode
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from revstream.gql.engine.definitions.value_tests import NAMES, usual_value_code
from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.input import field_from_api, from_api, id_from_api
from revstream.resolvers.values.output import TO_API
from revstream.streams.mongo.driver.codecs import DECODED, decode

HEX = "64a000000000000000000001"
SOME_UUID = UUID("12345678-1234-5678-1234-567812345678")
AS_BINARY = Binary(SOME_UUID.bytes, 4)


@given(
    day=st.dates(),
    clock=st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 2**32 - 1)),
    data=st.binary(max_size=40),
)
def test_a_day_a_timestamp_and_binary_data_have_one_text(
    day: date, clock: tuple[int, int], data: bytes
) -> None:
    """Python's own text of each is converted to its value in MongoDB, and back."""
    for scalar, text, stored in (
        (Scalar.DATE, day.isoformat(), datetime(day.year, day.month, day.day, tzinfo=UTC)),
        (Scalar.TIMESTAMP, f"{clock[0]}:{clock[1]}", Timestamp(*clock)),
        (Scalar.BINARY, b64encode(data).decode(), data),
    ):
        found = from_api(scalar, text, "it")
        assert found == from_api(scalar, found, "it") == stored
        assert TO_API[scalar](found) == text
        field = Field(name="it", stored="it", type=scalar)
        code = usual_value_code(field)
        assert code is not None
        # The generated code of the compiled execution does the same.
        test, shown = (each.format("value") for each in code)
        assert eval(test, {**NAMES, "value": found})
        assert eval(shown, {**NAMES, "value": found}) == text
        values = decode(encode({"it": found}, codec_options=DECODED))
        assert TO_API[scalar](values["it"]) == text


@pytest.mark.parametrize(
    ("scalar", "given", "stored"),
    [
        (Scalar.STRING, "a\0é🙂", "a\0é🙂"),
        (Scalar.ID, "a", "a"),
        (Scalar.INT, -5, -5),
        (Scalar.LONG, 5, Int64(5)),
        (Scalar.LONG, "7", Int64(7)),
        (Scalar.LONG, "9223372036854775807", Int64(2**63 - 1)),
        (Scalar.LONG, "-0", Int64(0)),
        (Scalar.FLOAT, 1, 1.0),
        (Scalar.FLOAT, 1.5, 1.5),
        (Scalar.BOOLEAN, True, True),
        (Scalar.DECIMAL, "10.50", Decimal128("10.50")),
        (Scalar.DECIMAL, "-1e-3", Decimal128("-0.001")),
        (Scalar.DECIMAL, ".5", Decimal128("0.5")),
        (Scalar.DECIMAL, "-Infinity", Decimal128("-Infinity")),
        (Scalar.DECIMAL, 10, Decimal128("10")),
        (Scalar.DECIMAL, 10.1, Decimal128("10.1")),
        (Scalar.DECIMAL, "9" * 34, Decimal128("9" * 34)),
        (Scalar.DATETIME, "2024-05-01T02:00:00+02:00", datetime(2024, 5, 1, tzinfo=UTC)),
        (Scalar.DATETIME, "+033658-09-27T01:46:40Z", DatetimeMS(10**15)),
        (
            Scalar.DATETIME,
            datetime(2024, 5, 1, 0, 0, 0, 1999, tzinfo=UTC),
            datetime(2024, 5, 1, 0, 0, 0, 1000, tzinfo=UTC),
        ),
        (Scalar.OBJECTID, HEX.upper(), ObjectId(HEX)),
        (Scalar.UUID, str(SOME_UUID).upper(), AS_BINARY),
        (Scalar.UUID, SOME_UUID, AS_BINARY),
        (
            Scalar.JSON,
            {"a": [1, 1.0, None, "x", {"b.c": True}]},
            {"a": [1, 1.0, None, "x", {"b.c": True}]},
        ),
    ],
)
def test_a_value_is_converted_once_to_its_stored_type(
    scalar: Scalar, given: object, stored: object
) -> None:
    """The type is the scalar's, and a converted value is accepted unchanged."""
    once = from_api(scalar, given, "x")
    assert once == stored
    assert type(once) is type(stored)
    assert from_api(scalar, once, "x") == stored


@pytest.mark.parametrize(
    ("scalar", "given", "message"),
    [
        (Scalar.STRING, 5, "x: 5, expected a String: text"),
        (Scalar.STRING, "\ud800", "x: '\\ud800', expected a String: text"),
        (Scalar.INT, "5", "x: '5', expected an Int: a whole number of 32 bits"),
        (Scalar.INT, 2**31, "x: 2147483648, expected an Int: a whole number of 32 bits"),
        (Scalar.INT, 1.5, "x: 1.5, expected an Int: a whole number of 32 bits"),
        (Scalar.INT, True, "x: true, expected an Int: a whole number of 32 bits"),
        (Scalar.LONG, 2**63, f"x: {2**63}, expected a Long: a whole number of 64 bits"),
        (Scalar.LONG, "1e3", "x: '1e3', expected a Long: a whole number of 64 bits"),
        (Scalar.LONG, "٣", "x: '٣', expected a Long: a whole number of 64 bits"),
        (Scalar.FLOAT, float("nan"), "x: nan, expected a Float: a finite number"),
        (Scalar.FLOAT, "1", "x: '1', expected a Float: a finite number"),
        (Scalar.FLOAT, True, "x: true, expected a Float: a finite number"),
        (Scalar.BOOLEAN, 1, "x: 1, expected a Boolean: true or false"),
        (Scalar.OBJECTID, "abc", "x: 'abc', expected an ObjectID: 24 hexadecimal digits"),
        (Scalar.ID, 5, "x: 5, expected an ID: text"),
    ],
)
def test_a_value_of_another_type_is_refused_with_both_named(
    scalar: Scalar, given: object, message: str
) -> None:
    """The message names the field, the expected type and the actual value."""
    with pytest.raises(BadUserInput) as caught:
        from_api(scalar, given, "x")
    assert caught.value.message == message
    assert caught.value.code == "BAD_USER_INPUT"


@pytest.mark.parametrize(
    ("scalar", "given"),
    [
        (Scalar.FLOAT, 10**400),
        (Scalar.DECIMAL, "ten"),
        (Scalar.DECIMAL, ""),
        (Scalar.DECIMAL, "1_0"),
        (Scalar.DECIMAL, "٣"),
        (Scalar.DECIMAL, "9" * 35),
        (Scalar.DECIMAL, 10**34),
        (Scalar.DECIMAL, "1e7000"),
        (Scalar.DECIMAL, "sNaN"),
        (Scalar.DECIMAL, True),
        (Scalar.DECIMAL, float("inf")),
        (Scalar.DATETIME, "yesterday"),
        (Scalar.DATETIME, 0),
        (Scalar.OBJECTID, HEX + "0"),
        (Scalar.OBJECTID, HEX[:-1] + "\n"),
        (Scalar.UUID, SOME_UUID.hex),
        (Scalar.UUID, f"{{{SOME_UUID}}}"),
        (Scalar.UUID, b"abc"),
        (Scalar.JSON, 2**63),
        (Scalar.JSON, float("inf")),
        (Scalar.JSON, {"a\0": 1}),
        (Scalar.JSON, {"\ud800": 1}),
        (Scalar.JSON, ["\ud800"]),
        (Scalar.JSON, object()),
    ],
)
def test_no_value_is_rounded_or_guessed(scalar: Scalar, given: object) -> None:
    """Values that BSON cannot hold exactly, or that are ambiguous, are refused."""
    with pytest.raises(BadUserInput):
        from_api(scalar, given, "x")


def test_a_number_too_long_for_python_to_print_is_refused() -> None:
    """The message does not quote the number."""
    with pytest.raises(BadUserInput, match="x: a number of thousands of digits"):
        from_api(Scalar.DECIMAL, 10**5000, "x")


def test_json_may_be_deep_but_not_deeper_than_mongodb_stores() -> None:
    """The gateway's limit applies before the server's error."""
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    assert from_api(Scalar.JSON, deep, "x") == deep
    with pytest.raises(BadUserInput, match="at most 80 levels"):
        from_api(Scalar.JSON, [deep], "x")


@pytest.mark.parametrize(
    ("scalar", "text", "stored"),
    [
        (Scalar.ID, "7", "7"),
        (Scalar.STRING, "7", "7"),
        (Scalar.INT, "-7", -7),
        (Scalar.INT, "0", 0),
        (Scalar.LONG, "7", Int64(7)),
        (Scalar.LONG, "9223372036854775807", Int64(2**63 - 1)),
        (Scalar.OBJECTID, HEX, ObjectId(HEX)),
        (Scalar.UUID, str(SOME_UUID), AS_BINARY),
    ],
)
def test_an_id_is_converted_to_its_stored_type(scalar: Scalar, text: str, stored: object) -> None:
    """The API's ids are texts; the stored type is the model's."""
    converted = id_from_api(scalar, text, "Supplier.id")
    assert converted == stored
    assert type(converted) is type(stored)


@pytest.mark.parametrize(
    ("scalar", "text", "message"),
    [
        (Scalar.OBJECTID, "abc", "'abc', expected an ObjectID: 24 hexadecimal digits"),
        (Scalar.INT, "abc", "'abc', expected an Int: a whole number of 32 bits"),
        (Scalar.INT, "007", "'007', expected an Int: a whole number of 32 bits"),
        (Scalar.INT, "-0", "'-0', expected an Int: a whole number of 32 bits"),
        (Scalar.INT, "1.0", "'1.0', expected an Int: a whole number of 32 bits"),
        (Scalar.INT, "2147483648", "'2147483648', expected an Int: a whole number of 32 bits"),
        (Scalar.LONG, "9" * 19, f"'{'9' * 19}', expected a Long: a whole number of 64 bits"),
        (
            Scalar.UUID,
            "x",
            "'x', expected a UUID: 32 hexadecimal digits in groups of 8-4-4-4-12",
        ),
    ],
)
def test_an_id_that_no_document_can_have_is_refused(
    scalar: Scalar, text: str, message: str
) -> None:
    """Only the exact text that the API returns for an id is valid."""
    with pytest.raises(BadUserInput) as caught:
        id_from_api(scalar, text, "Supplier.id")
    assert caught.value.message == f"Supplier.id: {message}"


def test_a_field_is_converted_by_its_type() -> None:
    """Enum values stay, ids have their stored type, scalars have their own."""
    colour = EnumType(name="Colour", values=("RED", "GREEN"))
    field = Field(name="colour", stored="colour", type=colour)
    assert field_from_api(field, "RED", "Product.colour eq") == "RED"
    with pytest.raises(
        BadUserInput, match=r"Product\.colour eq: 'red', expected one of RED, GREEN"
    ):
        field_from_api(field, "red", "Product.colour eq")
    owner = Field(name="ownerId", stored="o", type=Scalar.ID, stored_scalar=Scalar.OBJECTID)
    assert field_from_api(owner, HEX, "x") == ObjectId(HEX)
    price = Field(name="price", stored="p", type=Scalar.DECIMAL, stored_scalar=Scalar.DECIMAL)
    assert field_from_api(price, "1.0", "x") == Decimal128("1.0")
