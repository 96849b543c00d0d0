"""Fields that return aggregates: their arguments, and the results that a request selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.aggregates.selection import aggregate_arguments, aggregate_selection
from revstream.gql.schema.aggregates.types import aggregate_name, define_aggregates
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.connections import search_arguments
from revstream.model.definition import Model
from revstream.resolvers.aggregates.measure import (
    result_model,
)
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import (
    AggregateRequest,
    parse_aggregate,
)
from revstream.resolvers.current.aggregates import aggregate
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.aggregates import aggregate_as_of, aggregate_versions
from revstream.resolvers.history.version_filter import (
    OPERATION,
    VERSION_RECORD,
    parse_version_where,
)

__all__ = [
    "aggregate_field",
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
            aggregate_selection(context.selections(info), info.field_nodes, _VERSION_SHAPE),
            # Facts of versions have no access rules of their own.
            lambda kind, member: None,
        )
        matching = parse_version_where(model, entity, where, context.scope)
        readable = context.scope.readable(entity, model)
        return await aggregate_versions(context.services.history, entity, matching, query, readable)

    return Resolve(
        f"{entity.singular}VersionsAggregate",
        f"{aggregate_name(VERSION_RECORD.name)}!",
        "Counts and other results over the versions of all documents (the audit trail), in total "
        "and in groups.",
        resolve,
        aggregate_arguments(_VERSION_RESULTS, _VERSION_SHAPE),
    )


_AS_OF = Argument("asOf", "TimePoint", "The time point of the documents. Default: now.")


def aggregate_field(model: Model, results: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of an entity's aggregates."""
    entity = shape.entity

    async def resolve(
        _root: None,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        as_of: Mapping[str, Any] | None = None,
        search: str | None = None,
        **request: Any,
    ) -> AggregateResult:
        context, moment = info.context, None
        if as_of is not None and search is not None:
            raise BadUserInput(
                "search: together with asOf, expected one of them; the text index has current "
                "documents only",
                argument="search",
            )
        if as_of is not None:
            moment = await context.loads.moment(entity, as_of.get("time"), as_of.get("token"))
        at = None if moment is None else moment.at
        found = await context.parse_filter(model, entity, where, at)
        query = parse_aggregate(
            model,
            results,
            entity,
            context.searched(model, entity, search, found),
            AggregateRequest(**request),
            aggregate_selection(context.selections(info), info.field_nodes, shape),
            context.scope.check_read,
        )
        if moment is None:
            return await aggregate(context.services.current, entity, query)
        for target in query.targets:
            await context.services.moments.reached(target, moment)
        return await aggregate_as_of(context.services.history, entity, moment.at, query)

    return Resolve(
        f"{entity.plural}Aggregate",
        f"{aggregate_name(shape.name)}!",
        f"Counts, sums and other results over the documents of `{entity.collection}`, now or at "
        "a time point, in total and in groups.",
        resolve,
        aggregate_arguments(results, shape, _AS_OF, *search_arguments(shape)),
    )
