"""Generated tests of stored values, fast for the usual value of each type."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from bson import Decimal128, ObjectId, Timestamp

from revstream.gql.engine.definitions.code_generator import compile_function
from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.values.dates import date_text, utc_text
from revstream.resolvers.values.json_value import SAFE_INTEGER

__all__ = ["FALLBACK", "NAMES", "TEXTS", "compile_validity_test", "usual_value_code"]

FALLBACK: Any = type("Fallback", (), {"__repr__": lambda _: "FALLBACK"})()
# Test of the usual stored value of each type of the model, and its rendering.
_USUAL = {
    Scalar.STRING: ("{0}.__class__ is str", "{0}"),
    Scalar.BOOLEAN: ("{0}.__class__ is bool", "{0}"),
    Scalar.INT: ("{0}.__class__ is int and -2147483648 <= {0} <= 2147483647", "{0}"),
    # Integers that JavaScript cannot represent exactly are rendered as text.
    Scalar.LONG: (
        f"{{0}}.__class__ is int and -{SAFE_INTEGER} <= {{0}} <= {SAFE_INTEGER}",
        "{0}",
    ),
    # Neither NaN nor infinite. JavaScript programs store whole numbers as integers.
    Scalar.FLOAT: (
        "({0}.__class__ is float and {0} - {0} == 0 or {0}.__class__ is int)",
        "{0} if {0}.__class__ is float else float({0})",
    ),
    Scalar.DECIMAL: ("{0}.__class__ is Decimal128", "str({0})"),
    Scalar.OBJECTID: ("{0}.__class__ is ObjectId", "str({0})"),
    # A datetime without a time zone is in UTC.
    Scalar.DATETIME: (
        "{0}.__class__ is datetime",
        "utc_text({0}) if {0}.tzinfo is None else date_text({0})",
    ),
    Scalar.DATE: (
        "{0}.__class__ is datetime and not "
        "({0}.hour or {0}.minute or {0}.second or {0}.microsecond)",
        "{0}.isoformat()[:10]",
    ),
    Scalar.TIMESTAMP: ("{0}.__class__ is Timestamp", "f'{{{0}.time}}:{{{0}.inc}}'"),
    Scalar.BINARY: ("{0}.__class__ is bytes", "b64encode({0}).decode()"),
}
TEXTS = "{0}.__class__ is list and TEXT.issuperset(map(type, {0}))"
_USUAL_ID = {
    Scalar.ID: _USUAL[Scalar.STRING],
    Scalar.STRING: _USUAL[Scalar.STRING],
    Scalar.INT: ("{0}.__class__ is int", "str({0})"),
    Scalar.OBJECTID: _USUAL[Scalar.OBJECTID],
}


def usual_value_code(field: Field) -> tuple[str, str] | None:
    """Return Python code that tests a value, and code that renders it; None for other types.

    Both have `{0}` for the variable of the value.
    """
    if field.is_list:
        return (TEXTS, "{0}") if field.type is Scalar.STRING else None
    if field.type is Scalar.ID:
        return _USUAL_ID.get(field.stored_scalar or Scalar.ID)
    if isinstance(field.type, EnumType):
        table = repr(field.type.by_stored).replace("{", "{{").replace("}", "}}")
        shown = f"{table}[{{0}}]" if field.type.stored_as else "{0}"
        return f"{{0}}.__class__ is str and {{0}} in {table}", shown
    return _USUAL.get(field.type) if isinstance(field.type, Scalar) else None


@lru_cache(maxsize=1024)
def compile_validity_test(
    fields: tuple[Field, ...],
) -> Callable[[Callable[[str], Any]], bool] | None:
    """Compile a fast test of a document's `get`: true only if all of these fields are valid.

    Returns:
        None if there is no such test for one of the fields.
    """
    tests = []
    for number, field in enumerate(fields):
        usual = usual_value_code(replace(field, is_list=False))
        if usual is None or (field.is_list and field.type is not Scalar.STRING):
            return None
        test = TEXTS if field.is_list else usual[0]
        read = f"(a{number} := get({field.stored!r}))"
        # The value is read at its first use.
        tests.append(test.replace("{0}", read, 1).format(f"a{number}"))
    sure: Callable[[Callable[[str], Any]], bool] = compile_function(
        "get", [f"return {' and '.join(tests) or 'True'}"], NAMES
    )
    return sure


NAMES = {
    "FALLBACK": FALLBACK,
    "Decimal128": Decimal128,
    "ObjectId": ObjectId,
    "Timestamp": Timestamp,
    "b64encode": b64encode,
    "datetime": datetime,
    "date_text": date_text,
    "TEXT": frozenset({str}),
    "utc_text": utc_text,
}
