"""Differences inside of points, as differences of whole points: their parts are no fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from revstream.model.definition import Entity, Model, Scalar
from revstream.resolvers.values.field_path import api_path
from revstream.streams.raw_bson.diff import Difference, DifferenceKind

__all__ = ["value_at", "whole_path", "with_whole_points"]


def with_whole_points(
    entity: Entity,
    model: Model,
    found: Iterable[Difference],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Iterator[Difference]:
    """Yield the differences; those inside of one point are one change of the whole point."""
    seen: set[tuple[str, ...]] = set()
    for each in found:
        # It may be a point in one of the states alone: their types may differ.
        places = [whole_path(entity, model, tuple(each.path), one) for one in (before, after)]
        names = min(places, key=len)
        if len(names) == len(each.path):
            yield each
        elif names not in seen:
            seen.add(names)
            values = (value_at(state, names, None) for state in (before, after))
            yield Difference(names, DifferenceKind.CHANGED, *values)


def whole_path(entity: Entity, model: Model, names: tuple[str, ...], state: Any) -> tuple[str, ...]:
    """Return the stored path; that of the point, if it leads inside of one."""
    place = api_path(entity, model, names, state)
    inside = place is not None and place.field is not None and place.field.type is Scalar.POINT
    return names[: len(names) - place.cut] if place is not None and inside else names


def value_at(state: Any, names: Sequence[str], default: Any) -> Any:
    """Return the value at a stored path, or the default."""
    for name in names:
        if not isinstance(state, Mapping) or name not in state:
            return default
        state = state[name]
    return state
