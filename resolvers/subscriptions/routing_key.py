"""What a subscription wants to be told of, as far as an event tells by itself.

Of a filter that is an equality, or that is one and more, only events can concern it whose document
had or has such a value; of others each event is judged before anybody wakes for it. What is found
is still judged by the filter, and by the caller's rows, for what it means to him.
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
    """What a comparison with values of one kind looks at: the value at a path, or its items."""

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
    """Of a subscription by a caller with these rows."""
    if request.ids:
        return Interest(keys=request.ids)
    condition = rows.narrowed(request.where)
    # Where a moment is asked for, also what does not match tells that the stream has come to it.
    if condition is None or request.since is not None or asks_for_number(entity, condition):
        # No event says which number it makes.
        return EVERYTHING
    return replace(interest_in(condition), filter=compile_predicate(condition))


def interest_in(condition: Condition) -> Interest:
    """In documents that meet it, before or after."""
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
