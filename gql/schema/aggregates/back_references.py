"""Aggregates beside back references: of documents now, and as of the moment of a past one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Resolve
from revstream.gql.engine.definitions.object_type import BackLink, ObjectTypeInfo
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument
from revstream.gql.schema.aggregates.selection import aggregate_arguments, aggregate_selection
from revstream.gql.schema.aggregates.types import aggregate_name
from revstream.gql.schema.entities.back_references import (
    equivalent_ids,
    resolved_at,
)
from revstream.gql.schema.entities.interfaces import raise_unresolved
from revstream.model.definition import Model
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import AggregateQuery, AggregateRequest, parse_aggregate
from revstream.resolvers.current.aggregates import aggregates_by_parent
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.history.as_of.referring_aggregates import referring_aggregates_as_of
from revstream.resolvers.history.as_of.referring_documents import WantedReferrers
from revstream.resolvers.history.time_point import TimePoint

__all__ = [
    "back_reference_aggregate_fields",
    "past_back_reference_aggregate_fields",
    "state_back_reference_aggregate_fields",
]


def back_reference_aggregate_fields(
    model: Model, results: Model, shape: ObjectTypeInfo
) -> list[StrawberryField]:
    """Return the aggregates of the back references of current documents."""
    return [
        _field(name, results, link, partial(_read_current, name, model, results, shape, link))
        for name, link in _named(shape)
    ]


def past_back_reference_aggregate_fields(
    model: Model, results: Model, shape: ObjectTypeInfo
) -> list[StrawberryField]:
    """Return the aggregates of the back references of past documents, at the same moment."""
    return [
        _field(name, results, link, partial(_read_past, name, model, results, shape, link))
        for name, link in _named(shape)
    ]


def state_back_reference_aggregate_fields(
    results: Model, shape: ObjectTypeInfo
) -> list[StrawberryField]:
    """Return the same fields of the interface of current and past documents."""
    return [_field(name, results, link, raise_unresolved) for name, link in _named(shape)]


def _named(shape: ObjectTypeInfo) -> Iterator[tuple[str, BackLink]]:
    """Yield the names of the aggregates; a field of the model has precedence, of members too."""
    taken = [
        names
        for each in (shape, *(shape.union or shape).variants)
        for names in (each.fields, each.links, each.list_links, each.list_pages, each.back_links)
    ]
    for link in shape.back_links.values():
        name = f"{link.reference.name}Aggregate"
        if not any(name in each for each in taken):
            yield name, link


def _field(
    name: str, results: Model, link: BackLink, resolve: Callable[..., Any]
) -> StrawberryField:
    return Resolve(
        name,
        f"{aggregate_name(link.target.name)}!",
        f"Counts, sums and other results over `{link.reference.name}`, in total and in groups.",
        resolve,
        aggregate_arguments(results, link.target),
    )


async def _read_current(
    name: str,
    model: Model,
    results: Model,
    shape: ObjectTypeInfo,
    link: BackLink,
    source: CurrentDocument,
    info: ResolveInfo,
    where: Mapping[str, Any] | None = None,
    **request: Any,
) -> AggregateResult:
    context, target = info.context, link.target
    _check_read(context, shape, link)

    async def read(ids: list[Any]) -> Any:
        condition = await context.parse_filter(model, target.entity, where, None)
        query = _parsed(info, model, results, link, condition, request)
        parents = [equivalent_ids(shape.entity, each) for each in ids]
        return await aggregates_by_parent(
            context.services.current, target.entity, link.by.stored, parents, query
        )

    kind = (shape.name, name, *map(id, info.field_nodes))
    found: AggregateResult = await context.loads.for_document(kind, source.values["_id"], read)
    return found


async def _read_past(
    name: str,
    model: Model,
    results: Model,
    shape: ObjectTypeInfo,
    link: BackLink,
    source: SnapshotDocument,
    info: ResolveInfo,
    where: Mapping[str, Any] | None = None,
    **request: Any,
) -> AggregateResult:
    context, target = info.context, link.target
    _check_read(context, shape, link)

    async def read(wanted: list[WantedReferrers]) -> Any:
        condition = await resolved_at(context, model, target.entity, where, wanted)
        query = _parsed(info, model, results, link, condition, request)
        moments = {each.at for each in wanted}
        if query.joins and len(moments) > 1:
            raise BadUserInput(
                f"{target.name}: groups by a reference at {len(moments)} time points, expected "
                "one; group by the field with the id, or read one time point",
                argument="groupBy",
            )
        for joined in query.targets:
            await context.services.moments.reached(joined, TimePoint(at=max(moments)))
        return await referring_aggregates_as_of(
            context.services.history, target.entity, link.by.stored, wanted, query
        )

    kind = (shape.name, name, *map(id, info.field_nodes))
    keys = ids_shown_as(shape.entity, source.values["_id"])
    return await context.loads.referring_at(kind, source.moment, keys, target.entity, read)


def _parsed(
    info: ResolveInfo,
    model: Model,
    results: Model,
    link: BackLink,
    where: Condition,
    request: Mapping[str, Any],
) -> AggregateQuery:
    context = info.context
    return parse_aggregate(
        model,
        results,
        link.target.entity,
        where,
        AggregateRequest(**request),
        aggregate_selection(context.selections(info), info.field_nodes, link.target),
        context.scope.check_read,
    )


def _check_read(context: RequestContext, shape: ObjectTypeInfo, link: BackLink) -> None:
    if link.reference.name in shape.guarded:
        context.scope.check_read(shape.type, link.reference)
