"""Operators of filters: an operator with its operand, as a condition on a stored path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from revstream.model.definition import Field, Scalar
from revstream.model.filter_operators import json_path_mistake
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import (
    NOTHING,
    Compare,
    Comparison,
    Condition,
    HasValue,
    In,
    IsList,
    Matches,
    Not,
    Size,
    Text,
    all_of,
    negate,
)
from revstream.resolvers.filters.pattern import parse_pattern
from revstream.resolvers.filters.point_filters import near, within
from revstream.resolvers.values.input import field_from_api, ids_meant
from revstream.resolvers.values.output import TEXT_IDS, shorten_repr

__all__ = ["OPERATIONS", "as_list", "exists", "is_empty", "json_path", "list_exists", "size"]

LONGEST_TEXT = 10_000
"""Characters of the start of a text; MongoDB refuses regular expressions somewhat longer."""

LONGEST_TEXT_INSIDE = 1_000
"""The same anywhere in a text, where MongoDB begins anew at each character of the text; and without
regard to case, where each character becomes a class of characters."""

LONGEST_TEXT_WITHOUT_ACCENTS = 200
"""The same without regard to accents: each class is larger, and marks may follow."""


Operation = Callable[[Field, str, str, object], Condition]
"""(field, path, owner, operand) -> condition. The owner is for messages, and names the operator.
An operand is None for `eq` and `ne` only.
"""


def as_list(owner: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected a list")
    return value


def _boolean(owner: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected true or false")
    return value


def _value(field: Field, owner: str, operand: object) -> Any:
    return None if operand is None else _one_from_api(field, operand, owner)


def _one_from_api(field: Field, operand: object, owner: str) -> Any:
    if field.type is Scalar.JSON and isinstance(operand, Mapping | list):
        # MongoDB compares objects by the order of their fields, too.
        raise BadUserInput(
            f"{owner}: {shorten_repr(operand)}, expected text, a number, true or false; name the "
            "field inside of it by path"
        )
    return field_from_api(field, operand, owner)


def _values(field: Field, owner: str, operand: object) -> tuple[Any, ...]:
    values = as_list(owner, operand)
    if any(each is None for each in values):
        raise BadUserInput(
            f"{owner}: null in the list, expected values; to find null values, pass exists: false"
        )
    return tuple(_one_from_api(field, each, owner) for each in values)


def _compare(comparison: Comparison) -> Operation:
    def operation(field: Field, path: str, owner: str, operand: object) -> Condition:
        value = _value(field, owner, operand)
        if isinstance(value, bool):
            raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected text or a number")
        return Compare(path, comparison, value)

    return operation


def _equal(field: Field, path: str, owner: str, operand: object) -> Condition:
    if operand is None and field.type is Scalar.JSON:
        return negate(HasValue(path))
    return _equal_to_one(field, path, (_value(field, owner, operand),))


def _in(field: Field, path: str, owner: str, operand: object) -> Condition:
    return _equal_to_one(field, path, _values(field, owner, operand))


def _has_every(field: Field, path: str, owner: str, operand: object) -> Condition:
    values = _values(field, owner, operand)
    return all_of([_equal_to_one(field, path, (value,)) for value in values])


def _equal_to_one(field: Field, path: str, values: Sequence[Any]) -> Condition:
    """Return the condition that one of the values lies there, ids in each type that shows so."""
    if field.type is Scalar.ID and field.stored_scalar in TEXT_IDS:
        values = [id_ for each in values for id_ in ([each] if each is None else ids_meant(each))]
    match values:
        case [] | ():
            return NOTHING
        case [value]:
            return Compare(path, Comparison.EQ, value)
        case _:
            return In(path, tuple(values))


def _text(
    *,
    at_start: bool = False,
    at_end: bool = False,
    ignore_case: bool = False,
    ignore_accents: bool = False,
) -> Operation:
    longest = LONGEST_TEXT if at_start and not ignore_case else LONGEST_TEXT_INSIDE
    if ignore_accents:
        longest = LONGEST_TEXT_WITHOUT_ACCENTS

    def operation(field: Field, path: str, owner: str, operand: object) -> Condition:
        text = _value(field, owner, operand)
        if not isinstance(text, str):
            raise BadUserInput(f"{owner}: {shorten_repr(text)}, expected text")
        if len(text) > longest:
            raise BadUserInput(
                f"{owner}: {len(text):,} characters, maximum is {longest:,}; shorten the text"
            )
        return Text(path, text, at_start, at_end, ignore_case, ignore_accents)

    return operation


def _matches(field: Field, path: str, owner: str, operand: object) -> Condition:
    pattern = parse_pattern(_value(field, owner, operand), owner)
    matches = Matches(path, owner, pattern.expression)
    if not pattern.prefix:
        return matches
    # Only a plain prefix gives bounds in an index.
    return all_of([Text(path, pattern.prefix, at_start=True), matches])


def exists(field: Field, path: str, owner: str, operand: object) -> Condition:
    if field.type is Scalar.JSON:
        return HasValue(path) if _boolean(owner, operand) else Not(HasValue(path))
    if field.is_list:
        return list_exists(path, owner, operand)
    missing = Compare(path, Comparison.EQ, None)
    return Not(missing) if _boolean(owner, operand) else missing


def list_exists(path: str, owner: str, operand: object) -> Condition:
    # Equal to None is also a list that holds a null; that one exists.
    missing = all_of([Compare(path, Comparison.EQ, None), Not(IsList(path))])
    return Not(missing) if _boolean(owner, operand) else missing


def is_empty(path: str, owner: str, operand: object) -> Condition:
    # A list that is missing is neither empty nor not.
    if _boolean(owner, operand):
        return Size(path, 0)
    return all_of([IsList(path), Not(Size(path, 0))])


def size(path: str, owner: str, operand: object) -> Condition:
    if not isinstance(operand, int) or isinstance(operand, bool) or operand < 0:
        raise BadUserInput(f"{owner}: {shorten_repr(operand)}, expected a number of items, from 0")
    # MongoDB takes no number of items above 32 bits.
    return Size(path, min(operand, 2**31 - 1))


def json_path(path: str, owner: str, operators: Mapping[str, Any]) -> str:
    """Return the path to the value inside of a JSON field that a filter names, or to the field.

    Raises:
        BadUserInput: no path, or no operator beside it.
    """
    if "path" not in operators:
        return path
    inner = operators["path"]
    if not isinstance(inner, str):
        raise BadUserInput(f"{owner}.path: {shorten_repr(inner)}, expected text")
    mistake = json_path_mistake(inner)
    if mistake is not None:
        raise BadUserInput(f"{owner}.path: {shorten_repr(inner)}, expected {mistake}")
    if len(operators) == 1:
        raise BadUserInput(f"{owner}: path alone, expected an operator; add one, such as exists")
    return f"{path}.{inner}"


def _negated(operation: Operation) -> Operation:
    return lambda field, path, owner, operand: negate(operation(field, path, owner, operand))


OPERATIONS: Mapping[str, Operation] = {
    "eq": _equal,
    "ne": _negated(_equal),
    "in": _in,
    "notIn": _negated(_in),
    "lt": _compare(Comparison.LT),
    "lte": _compare(Comparison.LTE),
    "gt": _compare(Comparison.GT),
    "gte": _compare(Comparison.GTE),
    "startsWith": _text(at_start=True),
    "endsWith": _text(at_end=True),
    "contains": _text(),
    "eqIgnoreCase": _text(at_start=True, at_end=True, ignore_case=True),
    "startsWithIgnoreCase": _text(at_start=True, ignore_case=True),
    "endsWithIgnoreCase": _text(at_end=True, ignore_case=True),
    "containsIgnoreCase": _text(ignore_case=True),
    "eqIgnoreCaseAndAccents": _text(at_start=True, at_end=True, ignore_accents=True),
    "startsWithIgnoreCaseAndAccents": _text(at_start=True, ignore_accents=True),
    "endsWithIgnoreCaseAndAccents": _text(at_end=True, ignore_accents=True),
    "containsIgnoreCaseAndAccents": _text(ignore_accents=True),
    "matches": _matches,
    "exists": exists,
    "within": within,
    "near": near,
    "has": _equal,
    "hasSome": _in,
    "hasEvery": _has_every,
    "size": lambda field, path, owner, operand: size(path, owner, operand),
    "isEmpty": lambda field, path, owner, operand: is_empty(path, owner, operand),
}
