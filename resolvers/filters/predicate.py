"""Conditions as predicates on documents in memory, which agree with MongoDB on every document.

What MongoDB does, and this does too (docs/decisions/0003-filters.md has the measurements):

- A path leads through documents, and through lists of them to each one. It ends at a value, at
  nothing (missing), or, through a list that has no documents, nowhere: not even at nothing.
- A value that is a list meets a comparison where one of its items does. Lists in lists are not
  entered.
- Only values of one kind compare: numbers of all types by what they are exactly, strings by code
  point, dates by millisecond. NaN is equal to NaN, and neither below nor above anything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from revstream.resolvers.filters.accent_folding import fold_accents
from revstream.resolvers.filters.case_folding import fold_case
from revstream.resolvers.filters.expression import (
    All,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    HasValue,
    In,
    IsList,
    Matches,
    Not,
    Refers,
    Search,
    Size,
    Some,
    Text,
    Within,
)
from revstream.resolvers.filters.mongo_query import regular_expression
from revstream.resolvers.filters.pattern import refuse_patterns
from revstream.resolvers.filters.regions import Region
from revstream.resolvers.values.dates import milliseconds
from revstream.resolvers.values.json_value import REFUSED, uuid_text
from revstream.resolvers.values.points import stored_coordinates
from revstream.streams.changefeed.event import identity

__all__ = ["Predicate", "compile_predicate", "kind_of", "reached"]

Predicate = Callable[[Mapping[str, Any]], bool]
Test = Callable[[Any], bool]
"""Of one value that is no list; what it is given may be of any type."""

MISSING: Final = object()
NAN: Final = float("nan")


def compile_predicate(condition: Condition) -> Predicate:
    """A function of a decoded document: compile once, call often."""
    match condition:
        case All(conditions):
            return _all([compile_predicate(each) for each in conditions])
        case AnyOf(conditions):
            return _any([compile_predicate(each) for each in conditions])
        case Not(inner):
            predicate = compile_predicate(inner)
            return lambda document: not predicate(document)
        case Compare(path, Comparison.EQ, None):
            return _at(path, lambda value: value is None, missing=True)
        case Compare(path, Comparison.EQ, value):
            return _at(path, _equal_to([value]))
        case Compare(path, comparison, value):
            return _at(path, _ordered(comparison, value))
        case In(path, values):
            return _at(path, _equal_to(values))
        case Text(path):
            return _at(path, _has_text(condition))
        case Matches():
            refuse_patterns(condition)
            raise AssertionError(f"regular expression not refused: {condition.path}")
        case HasValue(path):
            parts = path.split(".")
            return lambda document: any(
                value is not MISSING and value is not None for value in reached(document, parts)
            )
        case IsList(path):
            return _of_list(path, lambda items: True)
        case Size(path, count):
            return _of_list(path, lambda items: len(items) == count)
        case Some(path, inner):
            return _of_list(path, _some(compile_predicate(inner)))
        case Within(path, region):
            return _at(path, _in_region(region))
        case Search(text):
            raise AssertionError(f"search outside of a query: {text}")
        case Refers(path):
            raise AssertionError(f"reference not resolved: {path}")


def _all(predicates: list[Predicate]) -> Predicate:
    def match(document: Mapping[str, Any]) -> bool:
        # A loop takes half the time of all() and a generator.
        for predicate in predicates:  # noqa: SIM110
            if not predicate(document):
                return False
        return True

    return match


def _any(predicates: list[Predicate]) -> Predicate:
    def match(document: Mapping[str, Any]) -> bool:
        for predicate in predicates:  # noqa: SIM110
            if predicate(document):
                return True
        return False

    return match


# -- paths


def _at(path: str, test: Test, *, missing: bool = False) -> Predicate:
    """Return a test of the value at the path, or of an item of it; `missing`: its result without
    one.
    """

    def passes(value: Any) -> bool:
        if value.__class__ is list:
            return any(test(item) for item in value)
        return missing if value is MISSING else test(value)

    def match(document: Mapping[str, Any]) -> bool:
        # As `passes`, which is half of what a comparison takes.
        value = document.get(path, MISSING)
        if value.__class__ is list:
            return any(test(item) for item in value)
        return missing if value is MISSING else test(value)

    if "." not in path:
        return match
    parts = path.split(".")
    return lambda document: any(passes(value) for value in reached(document, parts))


def _of_list(path: str, test: Callable[[list[Any]], bool]) -> Predicate:
    """Return a test of a list at the path, taken as a whole."""
    parts = path.split(".")
    return lambda document: any(
        test(value) for value in reached(document, parts) if value.__class__ is list
    )


def reached(document: Mapping[str, Any], parts: Sequence[str]) -> Iterator[Any]:
    """Return the values at a path: one value or MISSING, but any number through a list."""
    value: Any = document
    for index, part in enumerate(parts):
        within = _document(value)
        if within is None:
            yield MISSING
            return
        value = within.get(part, MISSING)
        rest = parts[index + 1 :]
        if rest and value.__class__ is list:
            for item in value:
                if _document(item) is not None:
                    yield from reached(item, rest)
            return
    yield value


def _document(value: Any) -> Mapping[str, Any] | None:
    if value.__class__ is dict or isinstance(value, Mapping):
        return value
    return None


def _some(predicate: Predicate) -> Callable[[list[Any]], bool]:
    def test(items: list[Any]) -> bool:
        for item in items:
            if item.__class__ is list:
                # To $elemMatch a list in the list is a document too, with its indexes as names.
                document: Any = {str(index): each for index, each in enumerate(item)}
            else:
                document = _document(item)
            if document is not None and predicate(document):
                return True
        return False

    return test


# -- values


def _equal_to(values: Sequence[Any]) -> Test:
    """Return a test for equality with one of `values`."""
    kind = kind_of(values)
    # NAN is in it by identity, which is enough: there is one. None never is.
    wanted = frozenset(kind(each) for each in values)
    return lambda value: kind(value) in wanted


def kind_of(values: Sequence[Any]) -> Callable[[Any], Any]:
    """Return what makes a value comparable with these; it returns None for other kinds of values.

    Only ids are of several kinds: as an `ID`, each of them shows as the same text.
    """
    kinds = list(dict.fromkeys(KINDS[each.__class__] for each in values))
    if len(kinds) == 1:
        return kinds[0]

    def comparable(value: Any) -> Any:
        for place, kind in enumerate(kinds):
            found = kind(value)
            if found is not None:
                # Python calls 1 and True equal, and a date is a number here.
                return place, found
        return None

    return comparable


def _ordered(comparison: Comparison, bound: Any) -> Test:
    kind = KINDS[bound.__class__]
    limit = kind(bound)
    if limit is NAN:
        if comparison in (Comparison.LTE, Comparison.GTE):
            return lambda value: kind(value) is NAN
        return lambda value: False
    compare = ORDER[comparison]
    plain = bound.__class__ if bound.__class__ in (int, float, str) else None

    def test(value: Any) -> bool:
        # Nearly always.
        if value.__class__ is plain:
            return compare(value, limit)
        comparable = kind(value)
        # Not by `<` alone: Decimal raises where it meets NaN.
        return comparable is not None and comparable is not NAN and compare(comparable, limit)

    return test


ORDER: Mapping[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.LT: operator.lt,
    Comparison.LTE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GTE: operator.ge,
}


def _has_text(condition: Text) -> Test:
    pattern = regular_expression(condition)
    fold = _fold(condition)
    has = _text_test(fold(condition.text), condition)

    def test(value: Any) -> bool:
        if value.__class__ is str:
            return has(fold(value))
        # A stored regular expression meets one that is written just so.
        return value.__class__ is Regex and value.pattern == pattern and value.flags == 0

    return test


def _fold(condition: Text) -> Callable[[str], str]:
    if condition.ignore_accents:
        return fold_accents
    return fold_case if condition.ignore_case else str


def _text_test(text: str, condition: Text) -> Callable[[str], bool]:
    match condition.at_start, condition.at_end:
        case True, True:
            return lambda value: value == text
        case True, False:
            return lambda value: value.startswith(text)
        case False, True:
            return lambda value: value.endswith(text)
        case _:
            return lambda value: text in value


def _in_region(region: Region) -> Test:
    contains = region.test()

    def test(value: Any) -> bool:
        point = stored_coordinates(value)
        return point is not None and contains(*point)

    return test


# One function per kind: the value as Python compares it with others of that kind, None where it is
# of another. Kinds are MongoDB's: true is not 1, and "1" is neither.


def _same_string(value: Any) -> str | None:
    return value if value.__class__ is str else None


def _same_number(value: Any) -> Any:
    """An int, float or Decimal, which Python compares exactly; every NaN is the one NAN."""
    kind = value.__class__
    if kind is int or kind is Int64:
        return value
    if kind is float:
        return value if value == value else NAN  # noqa: PLR0124 — NaN
    if kind is Decimal128:
        number = value.to_decimal()
        return NAN if number.is_nan() else number
    return None


def _same_boolean(value: Any) -> bool | None:
    return value if value.__class__ is bool else None


def _same_date(value: Any) -> int | None:
    return milliseconds(value) if isinstance(value, datetime | DatetimeMS) else None


def _same_objectid(value: Any) -> ObjectId | None:
    return value if value.__class__ is ObjectId else None


def _same_uuid(value: Any) -> str | None:
    text = uuid_text(value)
    return None if text is REFUSED else text


def _same_binary(value: Any) -> bytes | None:
    # The driver decodes subtype 0 to bytes.
    return value if value.__class__ is bytes else None


def _same_timestamp(value: Any) -> Timestamp | None:
    return value if value.__class__ is Timestamp else None


def _same_document(value: Any) -> Any:
    return identity(value) if isinstance(value, Mapping) else None


KINDS: Mapping[type, Callable[[Any], Any]] = {
    str: _same_string,
    int: _same_number,
    Int64: _same_number,
    float: _same_number,
    Decimal128: _same_number,
    bool: _same_boolean,
    datetime: _same_date,
    DatetimeMS: _same_date,
    ObjectId: _same_objectid,
    Binary: _same_uuid,
    bytes: _same_binary,
    Timestamp: _same_timestamp,
    dict: _same_document,
}
