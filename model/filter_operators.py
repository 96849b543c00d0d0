"""Operators of filters: the one table, by the kind of a field.

Row rules are validated with it, `where` arguments are parsed with it, and the filter inputs of the
schema are made from it. Source: docs/decisions/0003-filters.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from revstream.model.definition import EnumType, Scalar

__all__ = [
    "BOOLEAN_OPERANDS",
    "LIST_OPERANDS",
    "NUMBER_OPERANDS",
    "POINT_INPUTS",
    "POINT_OPERANDS",
    "TEXT_OPERANDS",
    "filter_operators",
    "json_path_mistake",
]

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
_JSON = ("path", "eq", "ne", "in", "notIn", *_ORDER, *_TEXT, "size", "isEmpty", "exists")
_BY_SCALAR: Mapping[Scalar, tuple[str, ...]] = {
    Scalar.ID: _CHOICE,
    Scalar.OBJECTID: _CHOICE,
    Scalar.UUID: _CHOICE,
    Scalar.BINARY: _CHOICE,
    Scalar.STRING: ("eq", "ne", "in", "notIn", *_ORDER, *_TEXT, "matches", "exists"),
    Scalar.INT: _ORDERED,
    Scalar.LONG: _ORDERED,
    Scalar.FLOAT: _ORDERED,
    Scalar.DECIMAL: _ORDERED,
    Scalar.DATETIME: _ORDERED,
    Scalar.DATE: _ORDERED,
    Scalar.TIMESTAMP: _ORDERED,
    Scalar.BOOLEAN: ("eq", "ne", "exists"),
    Scalar.POINT: ("within", "near", "exists"),
}

LIST_OPERANDS = frozenset({"in", "notIn", "hasEvery", "hasSome"})
"""Operators whose operand is a list of values."""
BOOLEAN_OPERANDS = frozenset({"exists", "isEmpty"})
"""Operators whose operand is true or false, whatever the field holds."""
NUMBER_OPERANDS = frozenset({"size"})
"""Operators whose operand is a number of items, whatever the field holds."""
POINT_OPERANDS = {"within": "PointWithin", "near": "PointNear"}
"""Operators of points, with the input types of their operands."""
POINT_INPUTS: Mapping[str, Mapping[str, str]] = {
    "PointWithin": {"box": "PointBox", "circle": "PointCircle", "polygon": "[PointInput]"},
    "PointBox": {"southWest": "PointInput", "northEast": "PointInput"},
    "PointCircle": {"center": "PointInput", "radius": "Float"},
    "PointNear": {"point": "PointInput", "maxDistance": "Float", "minDistance": "Float"},
    "PointInput": {"longitude": "Float", "latitude": "Float"},
    "[PointInput]": {},
}
"""Input types of points: the types of their fields. Brackets are a list."""
TEXT_OPERANDS = frozenset({"path", "matches", *_TEXT})
"""Operators whose operand is text, whatever the field holds."""

_LONGEST_PATH = 500
_DEEPEST_PATH = 20


def filter_operators(kind: Scalar | EnumType | None, *, is_list: bool) -> tuple[str, ...]:
    """Return the operators of a field's filter, in the order of the API.

    Args:
        kind: The field's type; None for an embedded type, whose filter has its fields too.
    """
    if kind is None:
        return _LIST_OF_EMBEDDED if is_list else _EMBEDDED
    if kind is Scalar.JSON:
        # A list of JSON is JSON.
        return _JSON
    if is_list:
        return _LIST
    return _CHOICE if isinstance(kind, EnumType) else _BY_SCALAR[kind]


def json_path_mistake(path: str) -> str | None:
    """Return what a path into a JSON field was expected to be, and the mend; None if it is valid.

    A number is refused, because MongoDB reads it as an index too.
    """
    names = path.split(".")
    if len(path) > _LONGEST_PATH:
        return f"at most {_LONGEST_PATH} characters; shorten it"
    if len(names) > _DEEPEST_PATH:
        return f"at most {_DEEPEST_PATH} names; shorten it"
    if "" in names:
        return "names with one dot between them; remove the empty name"
    if "\0" in path or not _is_unicode(path):
        return "Unicode text without NUL; no field has this name"
    if any(name.startswith("$") for name in names):
        return "names without $ at the start, which MongoDB reads as operators; filter by another"
    if any(name.isdecimal() for name in names):
        return (
            "names that are no numbers, which MongoDB reads as indexes; leave an index out to "
            "find any item of a list"
        )
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
