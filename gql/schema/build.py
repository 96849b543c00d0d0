"""Assembly of the schema of a model."""

from __future__ import annotations

from functools import partial

import strawberry
from strawberry.schema.config import StrawberryConfig

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.gql.engine.execution.document_cache import CheckedDocuments, Documents
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.execution.schema import IdempotencyKey, OneOperation, Schema
from revstream.gql.engine.execution.traced_schema import TracedSchema
from revstream.gql.engine.internals.strawberry import FieldInfo
from revstream.gql.engine.limits.concurrency import ConcurrencyExtension, ConcurrencyLimiter
from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.engine.limits.persisted_documents import AutomaticDocuments, Persisted
from revstream.gql.observability.operation_metrics import Operations, timed
from revstream.gql.schema.aggregates.back_references import (
    back_reference_aggregate_fields,
    past_back_reference_aggregate_fields,
    state_back_reference_aggregate_fields,
)
from revstream.gql.schema.aggregates.field import define_version_aggregates
from revstream.gql.schema.aggregates.inputs import define_time_buckets
from revstream.gql.schema.aggregates.types import define_aggregates
from revstream.gql.schema.common.descriptions import enum_description
from revstream.gql.schema.common.document_inputs import define_inputs
from revstream.gql.schema.common.filter_inputs import define_filters
from revstream.gql.schema.common.id_naming import DEFAULT_NAMING, Naming, check_naming
from revstream.gql.schema.common.order_inputs import define_orders
from revstream.gql.schema.common.points import define_points
from revstream.gql.schema.common.scalars import SCALAR_MAP, SCALARS
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.back_references import (
    back_reference_field,
    past_back_reference_field,
    state_back_reference_field,
)
from revstream.gql.schema.entities.comments import define_comment
from revstream.gql.schema.entities.connections import define_connections
from revstream.gql.schema.entities.documents import define_states
from revstream.gql.schema.entities.drafts import (
    define_draft,
    define_drafts,
    resolve_comment_draft,
    resolve_comment_version,
)
from revstream.gql.schema.entities.interfaces import define_interfaces
from revstream.gql.schema.entities.versions import define_versions, history_fields
from revstream.gql.schema.roots.fenced_mutations import applied_type_name
from revstream.gql.schema.roots.mutation import define_mutation
from revstream.gql.schema.roots.proposal_subscription import (
    define_entity_draft_change,
    define_proposal_changes,
)
from revstream.gql.schema.roots.query import define_query
from revstream.gql.schema.roots.subscription import define_subscription
from revstream.gql.schema.roots.write_result import define_applied, define_refusals, define_written
from revstream.model.definition import Model
from revstream.resolvers.aggregates.measure import result_model
from revstream.streams.core import tracing

__all__ = ["build_schema", "print_sdl"]


def build_schema(
    model: Model,
    limits: Limits | None = None,
    limiter: ConcurrencyLimiter | None = None,
    persisted: Persisted | None = None,
    naming: Naming = DEFAULT_NAMING,
) -> Schema:
    """Build the API of a model.

    Each operation needs a `gql.engine.request.context.RequestContext` as its context.

    Args:
        model: the definition of all types.
        limits: upper bounds for one operation; default: `Limits()`.
        limiter: the bound for operations that run at the same time; default: its own.
        persisted: store of the documents that clients may send as a hash; default: the
            documents that clients have sent before.
        naming: names of the fields that identify objects.

    Raises:
        click.UsageError: a field of the model has a name that `naming` reserves.
    """
    check_naming(model, naming)
    types = Types(SCALARS, naming)
    shapes = build_object_types(model)
    for enum in model.enums:
        values = {each: enum.value_descriptions.get(each) for each in enum.values}
        types.add_enum(enum.name, values, enum_description(enum))
    define_interfaces(types)
    define_points(types, shapes)
    define_filters(types, shapes)
    define_orders(types, shapes)
    define_inputs(types, shapes)
    define_refusals(types, shapes.values())
    define_draft(types)
    define_comment(types, resolve_comment_version, resolve_comment_draft)
    define_proposal_changes(types)
    results = result_model(model)
    define_time_buckets(types)
    define_aggregates(types, results, shapes)
    define_version_aggregates(types)
    for shape in shapes.values():
        if not shape.is_entity:
            define_states(types, shape)
            continue
        for each in (shape, *shape.members.values()):
            back_links = [back_reference_field(model, one) for one in shape.back_links.values()]
            back_links += back_reference_aggregate_fields(model, results, shape)
            past_links = list(
                map(partial(past_back_reference_field, model), shape.back_links.values())
            )
            past_links += past_back_reference_aggregate_fields(model, results, shape)
            state_links = list(map(state_back_reference_field, shape.back_links.values()))
            state_links += state_back_reference_aggregate_fields(results, shape)
            more = [*back_links, *history_fields(model, shape)]
            define_states(types, each, more, past_links, state_links)
        define_versions(types, model, shape)
        define_connections(types, shape)
        define_drafts(types, model, shape)
        define_entity_draft_change(types, shape)
        define_written(types, shape)
        if shape.entity.fence is not None:
            define_applied(types, applied_type_name(shape.entity))
    define_query(types, model, results, shapes)
    define_mutation(types, model, shapes)
    define_subscription(types, model, shapes)
    every = types.finish()
    documents = Documents(limits or Limits(), persisted or AutomaticDocuments())
    limiter = limiter or ConcurrencyLimiter()
    operations = Operations()
    kind = Schema if tracing.installed() is None else TracedSchema
    return kind(
        query=types["Query"],
        mutation=types["Mutation"],
        subscription=types["Subscription"],
        types=every,
        config=StrawberryConfig(info_class=FieldInfo, scalar_map=SCALAR_MAP),
        execution_context_class=Executor,
        extensions=[
            lambda: CheckedDocuments(documents),
            OneOperation,
            IdempotencyKey,
            timed(operations),
            lambda: ConcurrencyExtension(limiter),
        ],
        operations=operations,
        limiter=limiter,
        documents=documents,
    )


def print_sdl(schema: strawberry.Schema) -> str:
    """Return the schema as SDL, descriptions included."""
    return f"{schema.as_str()}\n"
