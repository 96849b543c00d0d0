"""Conditions as MongoDB queries, in shapes that its planner can use indexes for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from bson import Int64, ObjectId

from revstream.resolvers.filters.accent_folding import MARK, accent_variants, fold_accents
from revstream.resolvers.filters.case_folding import case_variants
from revstream.resolvers.filters.expression import (
    NOTHING,
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
    all_of,
    negate,
)
from revstream.streams.changefeed.event import possible_ids

__all__ = ["to_query", "with_ids"]

# The planner answers it from the index of `_id` without reading anything; `$alwaysFalse` and
# `{$nor: [{}]}` scan the collection (measured on 6.0.5). No document meets it, whatever it holds.
NO_DOCUMENT: Mapping[str, Any] = {"_id": {"$in": []}}

# All types but null, and undefined, which the driver decodes as null.
_NOT_NULL = [
    *("number", "string", "object", "array", "bool", "date", "objectId", "binData", "regex"),
    *("timestamp", "javascript", "javascriptWithScope", "symbol", "dbPointer", "minKey", "maxKey"),
]

# Of none of them does a filter mean anything but equality.
_PLAIN_IDS = {str, int, Int64, ObjectId, UUID}


def with_ids(ids: Sequence[Any]) -> dict[str, Any]:
    """A filter for the documents that have one of them."""
    if len(ids) == 1 and ids[0].__class__ in _PLAIN_IDS:
        # Looked up without being planned, which neither `$in` nor `$eq` is: 160 → 127 µs of
        # mongod (measured on 6.0.5).
        return {"_id": ids[0]}
    return {"_id": {"$in": list(possible_ids(ids))}}


_MOST_EXCLUDED = 2000
"""Values of a `notIn` that is an alternative, of which MongoDB makes bounds in an index."""


def _excludes_many(condition: Condition) -> bool:
    match condition:
        case Not(In(_, values)):
            return len(values) > _MOST_EXCLUDED
        case _:
            return False


def to_query(condition: Condition, *, prefix: str = "") -> dict[str, Any]:
    """A filter document of its own for `find` and `$match`.

    Strings are compared as they are; a collection with a collation of its own must be read with
    `collation={"locale": "simple"}` for the query to mean what the predicate does.

    Args:
        prefix: Where the documents lie in what is read, "full." in the archive.
    """
    match condition:
        case All(conditions):
            return _merged([to_query(each, prefix=prefix) for each in conditions])
        case AnyOf(()):
            return dict(NO_DOCUMENT)
        case AnyOf(conditions) if any(map(_excludes_many, conditions)):
            # The planner makes no bounds of a `$nor`: their union takes seconds.
            none = all_of([negate(each) for each in conditions])
            return {"$nor": [to_query(none, prefix=prefix)]}
        case AnyOf(conditions):
            return {"$or": [to_query(each, prefix=prefix) for each in conditions]}
        case Not(inner):
            return _negated(inner, prefix)
        case Within(path, region):
            # MongoDB takes no other operator beside it.
            return {"$and": [{prefix + path: {"$geoWithin": each}} for each in region.queries()]}
        case Search(text):
            return {"$text": {"$search": text}}
        case Refers():
            raise AssertionError(f"reference not resolved: {condition.path}")
        case _:
            return {prefix + condition.path: _operator(condition)}


def _operator(
    condition: Compare | In | Text | Matches | HasValue | IsList | Size | Some,
) -> dict[str, Any]:
    match condition:
        case Compare(_, comparison, value):
            return {comparison.value: value}
        case In(_, values):
            return {"$in": list(values)}
        case Text():
            return {"$regex": regular_expression(condition)}
        case Matches(_, _, expression):
            return {"$regex": expression}
        case HasValue():
            return {"$type": _NOT_NULL}
        case IsList():
            return {"$type": "array"}
        case Size(_, count):
            return {"$size": count}
        case Some(_, inner):
            return {"$elemMatch": to_query(inner)}


def _negated(condition: Condition, prefix: str) -> dict[str, Any]:
    match condition:
        case Compare(path, Comparison.EQ, value):
            return {prefix + path: {"$ne": value}}
        case In(path, values):
            return {prefix + path: {"$nin": list(values)}}
        case AnyOf(conditions) if condition != NOTHING:
            return {"$nor": [to_query(each, prefix=prefix) for each in conditions]}
        case All() | AnyOf() | Not() | Within() | Search() | Refers():
            return {"$nor": [to_query(condition, prefix=prefix)]}
        case _:
            return {prefix + condition.path: {"$not": _operator(condition)}}


def _merged(queries: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge into one query document: `{price: {$gte: 1, $lt: 2}, stock: {$gt: 0}}`."""
    merged: dict[str, Any] = {}
    apart: list[dict[str, Any]] = []
    for query in queries:
        for key, value in query.items():
            if key not in merged:
                merged[key] = value
            elif not key.startswith("$") and not merged[key].keys() & value.keys():
                merged[key] = {**merged[key], **value}
            else:
                apart.append({key: value})
    if not apart:
        return merged
    return {"$and": [{key: value} for key, value in merged.items()] + apart}


def regular_expression(condition: Text) -> str:
    """Return an expression for exactly that text: scripts, newlines and NUL included.

    Without case it lists the variants of each character: the option `i` has the server's table of
    characters, which differs between versions. Without accents the same, with marks between them.
    """
    text, marks = condition.text, ""
    if condition.ignore_accents:
        # Possessive: no letter is a mark, so there is nothing to go back for.
        marks = f"{MARK}*+"
        literal = marks.join(map(_any_accent, fold_accents(text)))
    elif condition.ignore_case:
        literal = "".join(map(_any_case, text))
    else:
        literal = text.translate(SPECIAL)
    # Unlike `$`, `\z` does not match before a newline at the end.
    at_end = f"{marks}\\z" if condition.at_end else ""
    return (f"^{marks}" if condition.at_start else "") + literal + at_end


def _any_accent(letter: str) -> str:
    variants = accent_variants(letter)
    return f"[{variants}]" if variants else letter.translate(SPECIAL)


def _any_case(character: str) -> str:
    variants = case_variants(character)
    return f"[{variants}]" if len(variants) > 1 else character.translate(SPECIAL)


SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\^$.|?*+()[]{}"} | {"\0": "\\x00"})
"""MongoDB refuses a NUL in a regular expression as such (error 51091)."""
