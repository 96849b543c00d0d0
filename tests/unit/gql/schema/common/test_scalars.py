"""Tests of `gql.schema.common.scalars`: input as a literal and as a variable, and errors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import strawberry
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from strawberry.schema.config import StrawberryConfig

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.internals.strawberry import FieldInfo
from revstream.gql.schema.common.scalars import SCALAR_MAP, SCALARS
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import Scalar
from revstream.model.filter_operators import filter_operators
from revstream.resolvers.values.input import EXPECTED, FROM_API
from revstream.resolvers.values.output import TO_API

NAMES = (
    *("Long", "Decimal", "DateTime", "Date", "Timestamp", "JSON", "ObjectID", "UUID", "Binary"),
    "ResumeToken",
)
UUID_TEXT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture(scope="module")
def echo() -> tuple[strawberry.Schema, list[Any]]:
    """Return a schema with a field per scalar that stores and returns its argument."""
    given: list[Any] = []

    def resolve(_root: None, _info: Any, value: Any = "nothing") -> Any:
        given.append(value)
        return str(value) if isinstance(value, Binary | Decimal128 | ObjectId) else value

    types = Types(SCALARS)
    types.add_object(
        "Query",
        [Resolve(name, name, None, resolve, [Argument("value", name, "")]) for name in NAMES],
        None,
    )
    types.finish()
    config = StrawberryConfig(info_class=FieldInfo, scalar_map=SCALAR_MAP)
    return strawberry.Schema(query=types["Query"], config=config), given


Echo = tuple[strawberry.Schema, list[Any]]

ACCEPTED = [
    ("Long", "9223372036854775807", 9223372036854775807, Int64(2**63 - 1)),
    ("Long", '"-12"', "-12", Int64(-12)),
    ("Decimal", '"12.50"', "12.50", Decimal128("12.50")),
    ("Decimal", "12.50", None, Decimal128("12.50")),
    ("Decimal", "3", 3, Decimal128("3")),
    ("Decimal", None, 0.1, Decimal128("0.1")),
    (
        "DateTime",
        '"2024-05-01T14:00:00.25+02:00"',
        "2024-05-01T14:00:00.25+02:00",
        datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC),
    ),
    ("Date", '"2024-02-29"', "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
    ("Date", '"+012024-02-29"', "+012024-02-29", DatetimeMS(317_278_684_800_000)),
    ("Timestamp", '"4294967295:1"', "4294967295:1", Timestamp(2**32 - 1, 1)),
    ("Binary", '"AAH/"', "AAH/", b"\x00\x01\xff"),
    ("Binary", '""', "", b""),
    (
        "JSON",
        '{a: [1, 2.5, "x", true, null, {b: {}}]}',
        None,
        {"a": [1, 2.5, "x", True, None, {"b": {}}]},
    ),
    ("JSON", None, {"a": [1, 1.0, None]}, {"a": [1, 1.0, None]}),
    ("JSON", "12345678901", 12345678901, 12345678901),
    ("ObjectID", f'"{"a" * 24}"', "a" * 24, ObjectId("a" * 24)),
    ("UUID", f'"{UUID_TEXT}"', UUID_TEXT, Binary(bytes.fromhex(UUID_TEXT.replace("-", "")), 4)),
    ("ResumeToken", '"66~.x"', "66~.x", "66~.x"),
]


@pytest.mark.parametrize(("name", "literal", "variable", "expected"), ACCEPTED)
def test_a_scalar_becomes_its_stored_value(
    echo: Echo, name: str, literal: str | None, variable: Any, expected: Any
) -> None:
    """A literal and a variable have the same result."""
    schema, given = echo
    if literal is not None:
        result = schema.execute_sync(f"{{ {name}(value: {literal}) }}")
        assert result.errors is None
        assert (given[-1], type(given[-1])) == (expected, type(expected))
    if variable is not None:
        result = schema.execute_sync(
            f"query($v: {name}) {{ {name}(value: $v) }}", variable_values={"v": variable}
        )
        assert result.errors is None
        assert (given[-1], type(given[-1])) == (expected, type(expected))


REFUSED = [
    ("Long", "9223372036854775808", 2**63, "9223372036854775808", "64 bits"),
    ("Long", "1.5", 1.5, "1.5", "64 bits"),
    ("Long", "true", True, "rue", "64 bits"),
    ("Decimal", '"12,50"', "12,50", "12,50", "decimal number"),
    ("Decimal", "1.23456789012345678901234567890123456789", None, "1.2345", "34 digits"),
    ("Decimal", "[1]", [1], "[1]", "decimal number"),
    ("DateTime", '"2024-05-01"', "2024-05-01", "2024-05-01", "2024-05-01T12:00:00.000Z"),
    ("DateTime", "1714564800", 1714564800, "1714564800", "2024-05-01T12:00:00.000Z"),
    ("Date", '"2023-02-29"', "2023-02-29", "2023-02-29", "a day"),
    ("Date", '"2024-05-01T00:00:00Z"', "2024-05-01T00:00:00Z", "2024-05-01T", "a day"),
    ("Timestamp", '"4294967296:0"', "4294967296:0", "4294967296:0", "a counter"),
    ("Timestamp", '"0:0"', "0:0", "0:0", "a counter"),
    ("Timestamp", "1", 1, "1", "a counter"),
    ("Binary", '"AAH"', "AAH", "AAH", "Base64"),
    ("Binary", '"AB=="', "AB==", "AB==", "Base64"),
    ("Binary", '"A_-="', "A_-=", "A_-=", "Base64"),
    ("JSON", "100000000000000000000", 10**20, "00000000000", "64 bits"),
    ("ObjectID", '"abc"', "abc", "abc", "24 hexadecimal digits"),
    ("ObjectID", "abc", None, "abc", "24 hexadecimal digits"),
    ("UUID", '"abc"', "abc", "abc", "8-4-4-4-12"),
    ("ResumeToken", "12", 12, "12", "resumeToken"),
]


@pytest.mark.parametrize(("name", "literal", "variable", "quoted", "expected"), REFUSED)
def test_a_scalar_refuses_invalid_values(
    echo: Echo, name: str, literal: str, variable: Any, quoted: str, expected: str
) -> None:
    """The error has the value and the expected form."""
    schema, _ = echo
    results = [schema.execute_sync(f"{{ {name}(value: {literal}) }}")]
    if variable is not None:
        results.append(
            schema.execute_sync(
                f"query($v: {name}) {{ {name}(value: $v) }}", variable_values={"v": variable}
            )
        )
    for result in results:
        assert result.data is None
        assert result.errors is not None
        message = result.errors[0].message
        assert f"{name}: " in message
        assert quoted in message
        assert expected in message


def test_json_literals_may_contain_variables(echo: Echo) -> None:
    """The values of the operation's variables are inserted."""
    schema, given = echo
    result = schema.execute_sync(
        "query($v: JSON) { JSON(value: {a: [$v]}) }", variable_values={"v": {"b": 1}}
    )
    assert result.errors is None
    assert given[-1] == {"a": [{"b": 1}]}


def test_null_and_missing_values_are_different(echo: Echo) -> None:
    """A resolver can distinguish them."""
    schema, given = echo
    for name in NAMES:
        schema.execute_sync(f"{{ {name}(value: null) }}")
        assert given[-1] is None
        schema.execute_sync(f"{{ {name} }}")
        assert given[-1] == "nothing"


def test_a_long_value_is_shortened_in_the_error(echo: Echo) -> None:
    """A response does not repeat a megabyte of input."""
    schema, _ = echo
    result = schema.execute_sync(
        "query($v: UUID) { UUID(value: $v) }", variable_values={"v": "x" * 5000}
    )
    assert result.errors is not None
    assert len(result.errors[0].message) < 300


def test_every_scalar_of_the_model_language_is_converted_filtered_and_in_the_snapshots() -> None:
    """Each table with an entry per scalar has an entry for a new scalar."""
    every = set(Scalar)
    assert FROM_API.keys() == EXPECTED.keys() == TO_API.keys() == every
    # A point is an object of the API.
    assert {each for each in every if each.value not in SCALARS} == {Scalar.POINT}
    assert all(filter_operators(each, is_list=False) for each in every)
    model = (Path(__file__).parents[5] / "tests/snapshots/models/scalars.graphql").read_text()
    assert {each for each in every if f": {each.value}" not in model} == set()
