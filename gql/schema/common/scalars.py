"""Scalars of the API beside GraphQL's own: names, coercion of input, error messages.

Input is coerced to the BSON value at once, so that the resolvers see one form. Output is already
in the form of the API: `resolvers.values.output` creates it. An error has the value and the
expected form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NewType, TypeAlias

import strawberry
from bson.datetime_ms import DatetimeMS
from graphql import (
    FloatValueNode,
    GraphQLError,
    IntValueNode,
    Undefined,
    ValueNode,
    print_ast,
)
from graphql.utilities import value_from_ast_untyped
from strawberry.types.scalar import ScalarDefinition

from revstream.model.definition import Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.dates import date_text
from revstream.resolvers.values.input import EXPECTED, from_api

__all__ = ["SCALARS", "SCALAR_MAP"]

Long = NewType("Long", int)
Decimal = NewType("Decimal", str)
DateTime = NewType("DateTime", str)
Date = NewType("Date", str)
Timestamp = NewType("Timestamp", str)
JSON = NewType("JSON", object)
ObjectID = NewType("ObjectID", str)
UUID = NewType("UUID", str)
Binary = NewType("Binary", str)
ResumeToken = NewType("ResumeToken", str)

_Parse: TypeAlias = "Callable[..., Any]"
"""Parser of a value, and of the literal that it was, if any."""

_DESCRIPTIONS = {
    Scalar.LONG: (
        "An integer of 64 bits. In a response it is a number from -9007199254740991 to "
        "9007199254740991, the range that JavaScript represents exactly, and text beyond. "
        "In a request it may be a number or text."
    ),
    Scalar.DECIMAL: (
        "A decimal number of up to 34 digits, stored exactly, with its trailing zeros. "
        'In a response it is text: `"12.50"`. In a request it may be text or a number.'
    ),
    Scalar.DATETIME: (
        'A time in UTC with milliseconds, in the format of RFC 3339: `"2024-05-01T12:00:00.000Z"`. '
        "In a request it may have any offset."
    ),
    Scalar.DATE: 'A day without a time, in the format of RFC 3339: `"2024-05-01"`.',
    Scalar.TIMESTAMP: (
        "MongoDB's internal timestamp: seconds since 1970 and a counter within the second, both "
        'of 32 bits: `"1714550400:1"`. It is not for dates of applications: `DateTime` is.'
    ),
    Scalar.JSON: (
        "Any JSON value: an object, a list, text, a number, a boolean or null. "
        "Integers beyond 2^53 - 1 are text. BSON values without a JSON form are text (decimals, "
        "dates, ids) or MongoDB's extended JSON."
    ),
    Scalar.OBJECTID: "MongoDB's ObjectId: 24 hexadecimal digits.",
    Scalar.UUID: "A UUID: 32 hexadecimal digits in groups of 8-4-4-4-12.",
    Scalar.BINARY: "Binary data as Base64 with padding (RFC 4648, section 4).",
}


def _coercion_error(
    name: str, shown: str, expected: str, node: ValueNode | None = None
) -> GraphQLError:
    """Return the error of a value.

    Args:
        node: the literal, for the location; graphql-core adds none to errors of scalars.
    """
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return GraphQLError(f"{name}: {shown}, expected {expected}", node)


def _parser(scalar: Scalar) -> _Parse:
    def parse(value: Any, node: ValueNode | None = None) -> Any:
        try:
            return from_api(scalar, value, scalar.value)
        except BadUserInput:
            raise _coercion_error(scalar.value, repr(value), EXPECTED[scalar], node) from None

    return parse


def _literal_parser(
    scalar: Scalar, parse: _Parse
) -> Callable[[ValueNode, dict[str, Any] | None], Any]:
    def parse_literal(node: ValueNode, variables: dict[str, Any] | None = None) -> Any:
        if scalar is Scalar.DECIMAL and isinstance(node, IntValueNode | FloatValueNode):
            # Use the digits of the literal: a float would lose the zero of 12.50.
            return parse(node.value, node)
        if scalar is not Scalar.JSON and node.kind in _FOREIGN_LITERALS:
            raise _coercion_error(scalar.value, print_ast(node), EXPECTED[scalar], node)
        return parse(_without_undefined(value_from_ast_untyped(node, variables)), node)

    return parse_literal


def _without_undefined(value: Any) -> Any:
    """Remove variables without a value from objects, and replace them with null in lists.

    graphql-core validates a document before it has variables, so all of them are undefined then.
    """
    if isinstance(value, dict):
        return {
            name: _without_undefined(each) for name, each in value.items() if each is not Undefined
        }
    if isinstance(value, list):
        return [_without_undefined(each) for each in value]
    return None if value is Undefined else value


_FOREIGN_LITERALS = frozenset({"enum_value", "list_value", "object_value"})


def _parse_token(value: Any, node: ValueNode | None = None) -> str:
    if not isinstance(value, str) or not value:
        raise _coercion_error("ResumeToken", repr(value), "the text of a resumeToken field", node)
    return value


def _parse_token_literal(node: ValueNode, variables: dict[str, Any] | None = None) -> str:
    return _parse_token(value_from_ast_untyped(node, variables), node)


def _serialize_date(value: Any) -> Any:
    return date_text(value) if isinstance(value, datetime | DatetimeMS) else value


def _identity(value: Any) -> Any:
    return value


def _definition(scalar: Scalar) -> ScalarDefinition:
    parse = _parser(scalar)
    return strawberry.scalar(
        name=scalar.value,
        description=_DESCRIPTIONS[scalar],
        serialize=_serialize_date if scalar is Scalar.DATETIME else _identity,
        parse_value=parse,
        parse_literal=_literal_parser(scalar, parse),
    )


SCALAR_MAP: Mapping[object, ScalarDefinition] = {
    Long: _definition(Scalar.LONG),
    Decimal: _definition(Scalar.DECIMAL),
    DateTime: _definition(Scalar.DATETIME),
    Date: _definition(Scalar.DATE),
    Timestamp: _definition(Scalar.TIMESTAMP),
    JSON: _definition(Scalar.JSON),
    ObjectID: _definition(Scalar.OBJECTID),
    UUID: _definition(Scalar.UUID),
    Binary: _definition(Scalar.BINARY),
    ResumeToken: strawberry.scalar(
        name="ResumeToken",
        description=(
            "A position in the change stream, as opaque text. Tokens compare as text in stream "
            "order. A subscription after a token receives each later event exactly once."
        ),
        serialize=_identity,
        parse_value=_parse_token,
        parse_literal=_parse_token_literal,
    ),
}
"""Definitions of the scalars, for Strawberry's configuration."""

SCALARS: Mapping[str, object] = {
    "ID": strawberry.ID,
    "String": str,
    "Int": int,
    "Float": float,
    "Boolean": bool,
    **{definition.name: key for key, definition in SCALAR_MAP.items()},
}
"""Strawberry's annotation of each scalar, by its GraphQL name."""
