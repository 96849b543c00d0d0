"""Routing key of a subscription: its filter, as far as an index can find it by an event.

A filter that is an equality, or a conjunction with one, concerns only events whose document has or
had such a value. Other filters are evaluated for each event before a task wakes up. The full filter
and the caller's rows are evaluated in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.filters.expression import All, Compare, Comparison, Condition, In
from revstream.resolvers.filters.number_filters import asks_for_number
from revstream.resolvers.filters.predicate import compile_predicate, kind_of, reached
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.changefeed.routing import EVERYTHING, Interest

__all__ = ["interest_in", "routing_key"]


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that a comparison looks at: the value at a path, or the items of a list there."""

    path: str
    kind: Callable[[Any], Any]

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]:
        kind = self.kind
        found: set[Hashable] = set()
        for value in reached(document, self.path.split(".")):
            found.update(map(kind, value) if value.__class__ is list else (kind(value),))
        found.discard(None)
        return found


def routing_key(entity: Entity, request: ChangeRequest, rows: RowFilter) -> Interest:
    """Return the routing key of a subscription with a caller's rows."""
    if request.ids:
        return Interest(keys=request.ids)
    condition = rows.narrowed(request.where)
    # For an end at a moment, other events too show that the stream has reached it.
    if condition is None or request.since is not None or asks_for_number(entity, condition):
        # No event says which number it makes.
        return EVERYTHING
    return replace(interest_in(condition), filter=compile_predicate(condition))


def interest_in(condition: Condition) -> Interest:
    """Return the interest in documents that meet a condition, before or after a change."""
    match condition:
        case All(conditions):
            found = map(interest_in, conditions)
            return next((each for each in found if each.index is not None), EVERYTHING)
        # Equal to None is also what is missing.
        case Compare(path, Comparison.EQ, value) if value is not None:
            values: tuple[Any, ...] = (value,)
        case In(path, values) if values:
            pass
        case _:
            return EVERYTHING
    kind = kind_of(values)
    return Interest(index=_Values(path, kind), values=frozenset(map(kind, values)))
