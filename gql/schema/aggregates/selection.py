"""Arguments of aggregates, and the results that a request selects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from revstream.gql.engine.definitions.field import Argument
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.schema.aggregates.inputs import group_by_name
from revstream.gql.schema.aggregates.types import aggregate_name
from revstream.model.definition import Model
from revstream.resolvers.aggregates.measure import (
    KEY,
    Measure,
    Measured,
    group_type_name,
    key_type_name,
    measure_type_name,
)
from revstream.resolvers.aggregates.query import DEFAULT_GROUPS, MAX_GROUPS, AggregateSelection

__all__ = ["aggregate_arguments", "aggregate_selection"]


def aggregate_arguments(
    results: Model, shape: ObjectTypeInfo, *more: Argument
) -> tuple[Argument, ...]:
    """Return the arguments of an aggregate.

    Args:
        more: arguments after `where`.
    """
    group = group_type_name(shape.name)
    matching = (
        Argument("where", f"{shape.name}Where", "Only those that match."),
        *more,
    )
    if results.embedded(group).field(KEY) is None:
        return matching
    return (
        *matching,
        Argument(
            "groupBy",
            group_by_name(shape.name),
            "The fields that make groups. "
            "A missing value, or one that does not fit the model, is null in the key.",
        ),
        Argument("having", f"{group}Where", "Only groups that match."),
        Argument(
            "orderBy",
            f"[{group}Order!]",
            "The order of the groups, the most important field first. Default: by key.",
        ),
        Argument(
            "first",
            "Int",
            f"The maximum number of groups, at most {MAX_GROUPS:,}. Default: {DEFAULT_GROUPS}.",
        ),
    )


def aggregate_selection(
    selections: Selections, nodes: Nodes, shape: ObjectTypeInfo
) -> AggregateSelection:
    """Return the results that a request selects.

    Args:
        nodes: the selections of the aggregate.
        shape: of the documents.
    """
    selected = selections.under(nodes, aggregate_name(shape.name))
    group: Mapping[str, Nodes] = {}
    if "groups" in selected:
        group = selections.under(selected["groups"], group_type_name(shape.name))
    keys = _paths(selections, group.get(KEY, ()), shape, key_type_name)
    groups = not selected.keys().isdisjoint({"groups", "totalGroups", "hasMoreGroups"})
    total = frozenset(_measured(selections, selected, shape))
    return AggregateSelection(
        totals="count" in selected or bool(total) or not groups,
        total=total,
        groups=groups,
        grouped=frozenset(_measured(selections, group, shape)),
        keys=frozenset(keys),
        group_count="totalGroups" in selected,
    )


def _measured(
    selections: Selections, selected: Mapping[str, Nodes], shape: ObjectTypeInfo
) -> Iterator[Measured]:
    for measure in Measure:
        nodes = selected.get(measure.value, ())

        def type_name(name: str, measure: Measure = measure) -> str:
            return measure_type_name(name, measure)

        for names in _paths(selections, nodes, shape, type_name):
            yield Measured(measure, names)


def _paths(
    selections: Selections, nodes: Nodes, shape: ObjectTypeInfo, type_name: Any
) -> Iterator[tuple[str, ...]]:
    """Yield the API paths of the fields that are selected of keys or results."""
    if not nodes:
        return
    for name, places in selections.under(nodes, type_name(shape.name)).items():
        link = shape.links.get(name)
        inner = shape.embedded.get(name) if link is None else link.target
        if inner is not None:
            for path in _paths(selections, places, inner, type_name):
                yield (name, *path)
        elif name in shape.fields:
            yield (name,)
