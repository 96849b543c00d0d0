"""Filters through references, in two steps: the ids of the matching targets, then the documents.

Both reads use indexes, and row rules of the targets apply to the first as to any other read. The
number of ids is bounded. Source: docs/decisions/0051-reference-filters.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from revstream.model.definition import Entity
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

__all__ = ["MOST_TARGETS", "FindIds", "references_in", "resolve_references"]

MOST_TARGETS = 10_000
"""Documents that may match on the other side of a reference. Their ids are part of the query."""

_MOST_REFERENCES = 5

FindIds = Callable[[Entity, Condition], Awaitable[Sequence[Any]]]
"""(entity, condition) -> ids of the matching documents, in each type in which they are stored."""


def references_in(condition: Condition) -> list[Refers]:
    """Return the references of a condition, those inside of other ones included."""
    match condition:
        case All(conditions) | AnyOf(conditions):
            return [found for each in conditions for found in references_in(each)]
        case Not(inner) | Some(_, inner):
            return references_in(inner)
        case Refers(_, _, _, inner):
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
    if count > _MOST_REFERENCES:
        raise LimitExceeded(
            f"references in a filter: {count}, maximum is {_MOST_REFERENCES}; use fewer",
            limit="references in a filter",
            asked=count,
            bound=_MOST_REFERENCES,
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
        case Refers(path, _, target, inner):
            ids = await find(target, await _resolved(inner, find))
            return In(path, tuple(ids)) if ids else NOTHING
        case _:
            return condition
