"""Arguments and selection of one aggregate, as one record from the schema to the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Entity, Model
from revstream.resolvers.aggregates.group_keys import (
    GroupKey,
    StoredField,
    joins_of_keys,
    parse_group_by,
    stored_field,
)
from revstream.resolvers.aggregates.measure import KEY, Measure, Measured, group_type_name
from revstream.resolvers.aggregates.references import Join
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition, paths
from revstream.resolvers.filters.parser import Check, parse_where

__all__ = [
    "DEFAULT_GROUPS",
    "MAX_GROUPS",
    "AggregateQuery",
    "AggregateRequest",
    "AggregateSelection",
    "parse_aggregate",
]

DEFAULT_GROUPS = 100
MAX_GROUPS = 1000

_MAX_SORT_KEYS = 32
"""Number of fields by which MongoDB sorts."""

_MEASURES = {each.value: each for each in Measure}


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSelection:
    """Results that a request selects.

    Attributes:
        totals: True if results over all matching documents are selected.
        total: measures over all matching documents.
        groups: True if groups, or facts of the list of groups, are selected.
        grouped: measures of each group.
        keys: API paths of the selected parts of the key.
        group_count: True if the number of all groups is selected.
    """

    totals: bool
    total: frozenset[Measured]
    groups: bool
    grouped: frozenset[Measured]
    keys: frozenset[tuple[str, ...]]
    group_count: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRequest:
    """Arguments of an aggregate beside `where`, as the API passes them."""

    group_by: Mapping[str, Any] | None = None
    having: Mapping[str, Any] | None = None
    order_by: Sequence[Mapping[str, Any]] | None = None
    first: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateQuery:
    """Aggregate to compute.

    Attributes:
        fields: the fields of all measures.
        keys: the parts of a group's key; empty without `groupBy`.
        joins: the references of `keys`; the names of their values are `k<n>`, of the n-th key.
        grouped: measures of each group, those of `having` and `order` included.
        having: the condition on groups; its paths are those of a group in the API.
        order: paths of a group in the API, with 1 or -1; a total order.
        first: the maximum number of groups.
    """

    where: Condition | None
    selection: AggregateSelection
    fields: Mapping[tuple[str, ...], StoredField]
    keys: Sequence[GroupKey]
    joins: Sequence[Join]
    grouped: frozenset[Measured]
    having: Condition | None
    order: Sequence[tuple[str, int]]
    first: int

    @property
    def targets(self) -> Sequence[Entity]:
        """Entities to which the references of groups lead."""
        return [target for join in self.joins for target in join.targets()]

    @property
    def list_key(self) -> str | None:
        """Stored path of the list that makes groups."""
        return next((each.of.items for each in self.keys if each.of.items is not None), None)

    @property
    def paths(self) -> frozenset[str]:
        """Stored paths of the documents that are looked at, beside those of the filter."""
        return frozenset(
            [
                *(each.items or each.path for each in self.fields.values()),
                *(each.of.items or each.of.path for each in self.keys if not each.through),
                *(each.hop.path for each in self.joins),
            ]
        )


def parse_aggregate(
    model: Model,
    results: Model,
    entity: Entity,
    where: Condition | None,
    request: AggregateRequest,
    selection: AggregateSelection,
    check: Check,
) -> AggregateQuery:
    """Parse the arguments and the selection of an aggregate.

    Args:
        results: see `measure.result_model`.
        check: called with each field that is looked at; raises if the caller may not read it.

    Raises:
        BadUserInput: arguments or a selection that do not fit together.
        Forbidden: a field that the caller may not read.
    """
    keys = parse_group_by(model, entity, request.group_by or {}, check)
    names = [each.of.names for each in keys]
    _check_grouping(request, selection, names)
    having = None
    if request.having is not None:
        group = results.embedded(group_type_name(entity.name))
        having = parse_where(results, group, request.having)
    order = _order(request.order_by or (), names)
    needed = {*(paths(having) if having is not None else ()), *(path for path, _ in order)}
    grouped = selection.grouped | set(_measured(needed))
    every = {each.names for each in selection.total | grouped}
    return AggregateQuery(
        where=where,
        selection=selection,
        fields={each: stored_field(model, entity, each, check) for each in sorted(every)},
        keys=keys,
        joins=joins_of_keys(keys),
        grouped=grouped,
        having=having,
        order=order,
        first=_first(request.first),
    )


def _check_grouping(
    request: AggregateRequest, selection: AggregateSelection, names: Sequence[tuple[str, ...]]
) -> None:
    """Check that groups are requested if something of them is.

    Raises:
        BadUserInput: they are not.
    """
    if not names:
        asked = {
            "having": request.having is not None,
            "orderBy": bool(request.order_by),
            "groups": selection.groups,
        }
        for name, given in asked.items():
            if given:
                raise BadUserInput(
                    f"{name}: requested without groupBy, expected at least one field in groupBy; "
                    f"pass groupBy, or remove {name}",
                    argument="groupBy",
                )
    for each in sorted(selection.keys.difference(names)):
        path = ".".join(each)
        raise BadUserInput(
            f"key.{path}: not a field of groupBy, expected one of "
            f"{', '.join('.'.join(name) for name in names)}; add {path} to groupBy",
            argument="groupBy",
        )


def _order(
    given: Sequence[Mapping[str, Any]], keys: Sequence[tuple[str, ...]]
) -> list[tuple[str, int]]:
    """Return the order of groups: those of `orderBy`, then the key.

    Raises:
        BadUserInput: a part of the key that is not in `groupBy`, or too many fields.
    """
    order: dict[str, int] = {}
    for each in given:
        names, direction = _only_leaf(each)
        if names[0] == KEY and names[1:] not in keys:
            path = ".".join(names)
            raise BadUserInput(
                f"orderBy: {path}, expected a field of groupBy; add it to groupBy",
                argument="orderBy",
            )
        order.setdefault(".".join(names), 1 if direction == "ASC" else -1)
    for names in keys:
        order.setdefault(".".join((KEY, *names)), 1)
    if len(order) > _MAX_SORT_KEYS:
        raise BadUserInput(
            f"fields of groupBy and orderBy: {len(order)}, maximum is {_MAX_SORT_KEYS}; "
            "group or order by fewer fields",
            argument="groupBy",
        )
    return list(order.items())


def _only_leaf(given: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the path and the direction of one item of `orderBy`."""
    names: list[str] = []
    value: Any = given
    while isinstance(value, Mapping):
        [(name, value)] = value.items()
        names.append(name)
    return tuple(names), value


def _measured(group_paths: set[str]) -> Iterator[Measured]:
    """Yield the measures that paths of a group lead to."""
    for path in group_paths:
        first, *names = path.split(".")
        if first in _MEASURES:
            yield Measured(_MEASURES[first], tuple(names))


def _first(first: int | None) -> int:
    """Return the maximum number of groups.

    Raises:
        BadUserInput: not from 0 to `MAX_GROUPS`.
    """
    if first is None:
        return DEFAULT_GROUPS
    if not 0 <= first <= MAX_GROUPS:
        raise BadUserInput(
            f"first: {first:,}, expected 0 to {MAX_GROUPS:,}; use `where` and `having` to get "
            "fewer groups",
            argument="first",
        )
    return first
