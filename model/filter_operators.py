"""Operators of filters: the one table, by the kind of a field.

Row rules are validated with it, `where` arguments are parsed with it, and the filter inputs of the
schema are made from it. Source: docs/decisions/0003-filters.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from revstream.model.definition import EnumType, Scalar

__all__ = ["BOOLEAN_OPERANDS", "LIST_OPERANDS", "NUMBER_OPERANDS", "filter_operators"]

_ORDER = ("lt", "lte", "gt", "gte")
_CHOICE = ("eq", "ne", "in", "notIn", "exists")
_ORDERED = ("eq", "ne", "in", "notIn", *_ORDER, "exists")
_TEXT = (
    "startsWith",
    "endsWith",
    "contains",
    "eqIgnoreCase",
    "startsWithIgnoreCase",
    "endsWithIgnoreCase",
    "containsIgnoreCase",
    "eqIgnoreCaseAndAccents",
    "startsWithIgnoreCaseAndAccents",
    "endsWithIgnoreCaseAndAccents",
    "containsIgnoreCaseAndAccents",
)
_LIST = ("has", "hasEvery", "hasSome", "size", "isEmpty", "exists")
_EMBEDDED = ("and", "or", "not", "exists")
_LIST_OF_EMBEDDED = ("some", "every", "none", "size", "isEmpty", "exists")
_BY_SCALAR: Mapping[Scalar, tuple[str, ...]] = {
    Scalar.ID: _CHOICE,
    Scalar.OBJECTID: _CHOICE,
    Scalar.UUID: _CHOICE,
    Scalar.BINARY: _CHOICE,
    Scalar.STRING: ("eq", "ne", "in", "notIn", *_ORDER, *_TEXT, "exists"),
    Scalar.INT: _ORDERED,
    Scalar.LONG: _ORDERED,
    Scalar.FLOAT: _ORDERED,
    Scalar.DECIMAL: _ORDERED,
    Scalar.DATETIME: _ORDERED,
    Scalar.DATE: _ORDERED,
    Scalar.TIMESTAMP: _ORDERED,
    Scalar.BOOLEAN: ("eq", "ne", "exists"),
}

LIST_OPERANDS = frozenset({"in", "notIn", "hasEvery", "hasSome"})
"""Operators whose operand is a list of values."""
BOOLEAN_OPERANDS = frozenset({"exists", "isEmpty"})
"""Operators whose operand is true or false, whatever the field holds."""
NUMBER_OPERANDS = frozenset({"size"})
"""Operators whose operand is a number of items, whatever the field holds."""


def filter_operators(kind: Scalar | EnumType | None, *, is_list: bool) -> tuple[str, ...]:
    """Return the operators of a field's filter, in the order of the API; none for JSON.

    Args:
        kind: The field's type; None for an embedded type, whose filter has its fields too.
    """
    if kind is None:
        return _LIST_OF_EMBEDDED if is_list else _EMBEDDED
    if kind is Scalar.JSON:
        return ()
    if is_list:
        return _LIST
    return _CHOICE if isinstance(kind, EnumType) else _BY_SCALAR[kind]
