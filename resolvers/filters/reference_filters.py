"""Filters through references in both directions, in two steps: the ids of the matching targets, or
those that the targets hold, then the documents.

Both reads use indexes, and row rules of the targets apply to the first as to any other read. The
number of ids is bounded. Source: docs/decisions/0051-reference-filters.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from revstream.model.definition import Field
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.expression import (
    NOTHING,
    All,
    AnyOf,
    Condition,
    In,
    Not,
    Refers,
    Some,
    all_of,
    any_of,
    negate,
)

__all__ = [
    "MOST_REFERENCES",
    "MOST_TARGETS",
    "FindIds",
    "held_count_stages",
    "held_id_stages",
    "references_in",
    "resolve_references",
]

MOST_TARGETS = 10_000
"""Ids that may match on the other side of a reference. They are part of the query."""

MOST_REFERENCES = 5

FindIds = Callable[[Refers, Condition], Awaitable[Sequence[Any]]]
"""(reference, its resolved condition) -> ids that match, in each type in which they are stored."""


def held_id_stages(field: Field, *, limit: int, prefix: str = "") -> list[Mapping[str, Any]]:
    """Return stages that make documents into the ids that a field of them holds, as `_id`.

    Args:
        limit: maximum number of ids.
        prefix: of the path of the field.
    """
    path = f"${prefix}{field.stored}"
    distinct: Mapping[str, Any] = {"$group": {"_id": "$_id"}}
    # A field that is no list may hold one all the same, but mostly a few ids recur.
    first = {"$project": {"_id": path}} if field.is_list else {"$group": {"_id": path}}
    return [
        first,
        {"$unwind": "$_id"},
        {"$match": {"_id": {"$ne": None}}},
        distinct,
        {"$limit": limit},
    ]


def held_count_stages(
    field: Field, ids: Sequence[Any], *, prefix: str = ""
) -> list[Mapping[str, Any]]:
    """Return stages that make documents into `{_id, n}`: how many of them hold each of the ids.

    Args:
        prefix: of the path of the field.
    """
    path = f"${prefix}{field.stored}"
    # As in `held_id_stages`: twice as fast where a few ids recur.
    first: Mapping[str, Any] = {"$group": {"_id": path, "n": {"$sum": 1}}}
    if field.is_list:
        first = {"$project": {"_id": path, "n": {"$literal": 1}}}
    each_once = {"$cond": [{"$isArray": "$_id"}, {"$setUnion": ["$_id", []]}, "$_id"]}
    return [
        first,
        {"$project": {"_id": each_once, "n": 1}},
        {"$unwind": "$_id"},
        {"$match": {"_id": {"$in": list(ids)}}},
        {"$group": {"_id": "$_id", "n": {"$sum": "$n"}}},
    ]


def references_in(condition: Condition) -> list[Refers]:
    """Return the references of a condition, those inside of other ones included."""
    match condition:
        case All(conditions) | AnyOf(conditions):
            return [found for each in conditions for found in references_in(each)]
        case Not(inner) | Some(_, inner):
            return references_in(inner)
        case Refers(condition=inner):
            return [condition, *references_in(inner)]
        case _:
            return []


async def resolve_references(condition: Condition, find: FindIds) -> Condition:
    """Replace each reference by the ids of the matching targets.

    Returns:
        The same condition, if it has no references.

    Raises:
        LimitExceeded: too many references. `find` may raise other errors.
    """
    count = len(references_in(condition))
    if not count:
        return condition
    if count > MOST_REFERENCES:
        raise LimitExceeded(
            f"references in a filter: {count}, maximum is {MOST_REFERENCES}; use fewer",
            limit="references in a filter",
            asked=count,
            bound=MOST_REFERENCES,
        )
    return await _resolved(condition, find)


async def _resolved(condition: Condition, find: FindIds) -> Condition:
    match condition:
        case All(conditions):
            return all_of([await _resolved(each, find) for each in conditions])
        case AnyOf(conditions):
            return any_of([await _resolved(each, find) for each in conditions])
        case Not(inner):
            return negate(await _resolved(inner, find))
        case Some(path, inner):
            return Some(path, await _resolved(inner, find))
        case Refers(path, condition=inner):
            ids = await find(condition, await _resolved(inner, find))
            return In(path, tuple(ids)) if ids else NOTHING
        case _:
            return condition
