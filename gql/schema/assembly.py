"""Put a model's schema together."""

from __future__ import annotations

import strawberry
from strawberry.schema.config import StrawberryConfig

from gql.documents import CheckedDocuments, Documents
from gql.engine.limits.concurrency import ConcurrencyExtension, ConcurrencyLimiter
from gql.execution import IdempotencyKey, OneOperation, Schema
from gql.executor import Executor
from gql.fields import FieldInfo
from gql.limits import Limits
from gql.operations import Operations, timed
from gql.persisted import AutomaticDocuments, Persisted
from gql.schema.applying import applied_name
from gql.schema.back_links import back_link_field
from gql.schema.building import Types
from gql.schema.connections import define_connections
from gql.schema.descriptions import enum_description
from gql.schema.discussions import define_comment
from gql.schema.filters import define_filters
from gql.schema.inputs import define_inputs
from gql.schema.interfaces import define_interfaces
from gql.schema.mutations import define_mutation
from gql.schema.naming import DEFAULT_NAMING, Naming, check_naming
from gql.schema.proposal_changes import define_draft_change, define_proposal_changes
from gql.schema.proposals import (
    define_draft,
    define_drafts,
    draft_of_comment,
    version_of_comment,
)
from gql.schema.queries import define_query
from gql.schema.results import define_applied, define_refusals, define_written
from gql.schema.scalars import SCALAR_MAP, SCALARS
from gql.schema.states import define_states
from gql.schema.subscriptions import define_subscription
from gql.schema.versions import define_versions, history_fields
from gql.shapes import shapes_of
from model.entities import Model

__all__ = ["build_schema", "print_sdl"]


def build_schema(
    model: Model,
    limits: Limits | None = None,
    limiter: ConcurrencyLimiter | None = None,
    persisted: Persisted | None = None,
    naming: Naming = DEFAULT_NAMING,
) -> Schema:
    """The API of a model. Each operation is given a `gql.context.Context`.

    Args:
        limits, limiter: how much each may ask for, and how many may run; the defaults where they
            are left out.
        persisted: the documents that clients may name; those that they have sent, where it is left
            out.
        naming: of the fields that identify objects.

    Raises:
        click.UsageError: the naming takes names that the model has.
    """
    check_naming(model, naming)
    types = Types(SCALARS, naming)
    shapes = shapes_of(model)
    for enum in model.enums:
        values = {each: enum.value_descriptions.get(each) for each in enum.values}
        types.add_enum(enum.name, values, enum_description(enum))
    define_interfaces(types)
    define_filters(types, shapes)
    define_inputs(types, shapes)
    define_refusals(types, shapes.values())
    define_draft(types)
    define_comment(types, version_of_comment, draft_of_comment)
    define_proposal_changes(types)
    for shape in shapes.values():
        if not shape.is_entity:
            define_states(types, shape)
            continue
        back_links = [back_link_field(model, each) for each in shape.back_links.values()]
        define_states(types, shape, [*back_links, *history_fields(model, shape)])
        define_versions(types, model, shape)
        define_connections(types, shape)
        define_drafts(types, model, shape)
        define_draft_change(types, shape)
        define_written(types, shape)
        if shape.entity.fence is not None:
            define_applied(types, applied_name(shape.entity))
    define_query(types, model, shapes)
    define_mutation(types, model, shapes)
    define_subscription(types, model, shapes)
    every = types.finish()
    documents = Documents(limits or Limits(), persisted or AutomaticDocuments())
    limiter = limiter or ConcurrencyLimiter()
    operations = Operations()
    return Schema(
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
    """The schema in GraphQL's own language, descriptions included."""
    return f"{schema.as_str()}\n"
