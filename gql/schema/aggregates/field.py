"""Fields that return aggregates: their arguments, and the results that a request selects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import BackLink, ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.schema.aggregates.inputs import group_by_name
from revstream.gql.schema.aggregates.types import aggregate_name, define_aggregates
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.back_references import equivalent_ids
from revstream.model.definition import Model
from revstream.resolvers.aggregates.measure import (
    KEY,
    Measure,
    Measured,
    group_type_name,
    key_type_name,
    measure_type_name,
    result_model,
)
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import (
    DEFAULT_GROUPS,
    MAX_GROUPS,
    AggregateRequest,
    AggregateSelection,
    parse_aggregate,
)
from revstream.resolvers.current.aggregates import aggregate, aggregates_by_parent
from revstream.resolvers.history.aggregates import aggregate_as_of, aggregate_versions
from revstream.resolvers.history.version_filter import (
    OPERATION,
    VERSION_RECORD,
    parse_version_where,
)

__all__ = [
    "aggregate_field",
    "back_reference_aggregate_fields",
    "define_version_aggregates",
    "version_aggregate_field",
]


_VERSION_SHAPE = ObjectTypeInfo(
    type=VERSION_RECORD, fields={each.name: each for each in VERSION_RECORD.fields}
)
_VERSION_MODEL = Model(entities=(VERSION_RECORD,), embeddeds=(), enums=(OPERATION,))
_VERSION_RESULTS = result_model(_VERSION_MODEL)


def define_version_aggregates(types: Types) -> None:
    """Define the types of the aggregates of versions, which are the same for all entities."""
    define_aggregates(types, _VERSION_RESULTS, {VERSION_RECORD.name: _VERSION_SHAPE})


def version_aggregate_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of the aggregates of an entity's versions."""
    entity = shape.entity

    async def resolve(
        _root: None, info: ResolveInfo, where: Mapping[str, Any] | None = None, **request: Any
    ) -> AggregateResult:
        context = info.context
        query = parse_aggregate(
            _VERSION_MODEL,
            _VERSION_RESULTS,
            VERSION_RECORD,
            None,
            AggregateRequest(**request),
            _selection(context.selections(info), info.field_nodes, _VERSION_SHAPE),
            # Facts of versions have no access rules of their own.
            lambda kind, member: None,
        )
        matching = parse_version_where(model, entity, where, context.scope)
        return await aggregate_versions(context.services.history, entity, matching, query)

    return Resolve(
        f"{entity.singular}VersionsAggregate",
        f"{aggregate_name(VERSION_RECORD.name)}!",
        "Counts and other results over the versions of all documents (the audit trail), in total "
        "and in groups.",
        resolve,
        _arguments(_VERSION_RESULTS, _VERSION_SHAPE),
    )


def aggregate_field(model: Model, results: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of an entity's aggregates."""
    entity = shape.entity

    async def resolve(
        _root: None,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        as_of: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> AggregateResult:
        context, moment = info.context, None
        if as_of is not None:
            moment = await context.loads.moment(entity, as_of.get("time"), as_of.get("token"))
        at = None if moment is None else moment.at
        query = parse_aggregate(
            model,
            results,
            entity,
            await context.parse_filter(model, entity, where, at),
            AggregateRequest(**request),
            _selection(context.selections(info), info.field_nodes, shape),
            context.scope.check_read,
        )
        if moment is None:
            return await aggregate(context.services.current, entity, query)
        for join in query.joins:
            for target in join.targets():
                await context.services.moments.reached(target, moment)
        return await aggregate_as_of(context.services.history, entity, moment.at, query)

    return Resolve(
        f"{entity.plural}Aggregate",
        f"{aggregate_name(shape.name)}!",
        f"Counts, sums and other results over the documents of `{entity.collection}`, now or at "
        "a time point, in total and in groups.",
        resolve,
        _arguments(results, shape, _AS_OF),
    )


def back_reference_aggregate_fields(
    model: Model, results: Model, shape: ObjectTypeInfo
) -> Iterator[StrawberryField]:
    """Yield the aggregates of an entity's back references; a field of the model has precedence."""
    for link in shape.back_links.values():
        name = f"{link.reference.name}Aggregate"
        taken = (shape.fields, shape.links, shape.list_links, shape.back_links)
        if not any(name in each for each in taken):
            yield _back_reference_field(name, model, results, shape, link)


def _back_reference_field(
    name: str, model: Model, results: Model, shape: ObjectTypeInfo, link: BackLink
) -> StrawberryField:
    target = link.target

    async def resolve(
        source: CurrentDocument,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> AggregateResult:
        context = info.context
        if link.reference.name in shape.guarded:
            context.scope.check_read(shape.type, link.reference)

        async def read(ids: list[Any]) -> Any:
            query = parse_aggregate(
                model,
                results,
                target.entity,
                await context.parse_filter(model, target.entity, where, None),
                AggregateRequest(**request),
                _selection(context.selections(info), info.field_nodes, target),
                context.scope.check_read,
            )
            parents = [equivalent_ids(shape.entity, each) for each in ids]
            return await aggregates_by_parent(
                context.services.current, target.entity, link.by.stored, parents, query
            )

        kind = (shape.name, name, *map(id, info.field_nodes))
        found: AggregateResult = await context.loads.for_document(kind, source.values["_id"], read)
        return found

    return Resolve(
        name,
        f"{aggregate_name(target.name)}!",
        f"Counts, sums and other results over `{link.reference.name}`, in total and in groups.",
        resolve,
        _arguments(results, target),
    )


_AS_OF = Argument("asOf", "TimePoint", "The time point of the documents. Default: now.")


def _arguments(results: Model, shape: ObjectTypeInfo, *more: Argument) -> tuple[Argument, ...]:
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


def _selection(selections: Selections, nodes: Nodes, shape: ObjectTypeInfo) -> AggregateSelection:
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
