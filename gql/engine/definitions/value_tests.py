"""Generated tests of stored values: quick for the types that they nearly always have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from bson import Decimal128, ObjectId

from revstream.gql.engine.definitions.code_generator import compile_function
from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.values.dates import date_text, utc_text
from revstream.resolvers.values.json_value import SAFE_INTEGER

__all__ = ["FALLBACK", "NAMES", "TEXTS", "sure_of", "usual_of"]

FALLBACK: Any = type("Fallback", (), {"__repr__": lambda _: "FALLBACK"})()
# What stored values nearly always are, by the type in the model, and how they are shown then.
_USUAL = {
    Scalar.STRING: ("{0}.__class__ is str", "{0}"),
    Scalar.BOOLEAN: ("{0}.__class__ is bool", "{0}"),
    Scalar.INT: ("{0}.__class__ is int and -2147483648 <= {0} <= 2147483647", "{0}"),
    # Beyond what JavaScript keeps exactly, it is text.
    Scalar.LONG: (
        f"{{0}}.__class__ is int and -{SAFE_INTEGER} <= {{0}} <= {SAFE_INTEGER}",
        "{0}",
    ),
    # Neither NaN nor infinite; JavaScript stores whole ones as integers.
    Scalar.FLOAT: (
        "({0}.__class__ is float and {0} - {0} == 0 or {0}.__class__ is int)",
        "{0} if {0}.__class__ is float else float({0})",
    ),
    Scalar.DECIMAL: ("{0}.__class__ is Decimal128", "str({0})"),
    Scalar.OBJECTID: ("{0}.__class__ is ObjectId", "str({0})"),
    # In UTC, whether it says so or not.
    Scalar.DATETIME: (
        "{0}.__class__ is datetime",
        "utc_text({0}) if {0}.tzinfo is None else date_text({0})",
    ),
}
TEXTS = "{0}.__class__ is list and TEXT.issuperset(map(type, {0}))"
_USUAL_ID = {
    Scalar.ID: _USUAL[Scalar.STRING],
    Scalar.STRING: _USUAL[Scalar.STRING],
    Scalar.INT: ("{0}.__class__ is int", "str({0})"),
    Scalar.OBJECTID: _USUAL[Scalar.OBJECTID],
}


def usual_of(field: Field) -> tuple[str, str] | None:
    """A test, and how to show what passes it; None where values are to be looked at."""
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
def sure_of(fields: tuple[Field, ...]) -> Callable[[Callable[[str], Any]], bool] | None:
    """A quick test of a document's `get`: True where all of these fields can surely be shown; None
    where there is no such test."""
    tests = []
    for number, field in enumerate(fields):
        usual = usual_of(replace(field, is_list=False))
        if usual is None or (field.is_list and field.type is not Scalar.STRING):
            return None
        test = TEXTS if field.is_list else usual[0]
        read = f"(a{number} := get({field.stored!r}))"
        # It is read where it is looked at first.
        tests.append(test.replace("{0}", read, 1).format(f"a{number}"))
    sure: Callable[[Callable[[str], Any]], bool] = compile_function(
        "get", [f"return {' and '.join(tests) or 'True'}"], NAMES
    )
    return sure


NAMES = {
    "FALLBACK": FALLBACK,
    "Decimal128": Decimal128,
    "ObjectId": ObjectId,
    "datetime": datetime,
    "date_text": date_text,
    "TEXT": frozenset({str}),
    "utc_text": utc_text,
}
