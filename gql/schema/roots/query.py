"""Type `Query`: current documents, versions, drafts and comments of each entity, and status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.execution.compiled_object import compile_object, give_up
from revstream.gql.engine.execution.compiled_query import ResolvedField
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, VersionRecord
from revstream.gql.schema.aggregates.field import aggregate_field, version_aggregate_field
from revstream.gql.schema.common.filter_inputs import unique_fields
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    connection_name,
    filter_arguments,
    search_arguments,
)
from revstream.gql.schema.entities.document_pages import (
    compile_page,
    page_read_cache,
    page_resolver,
)
from revstream.gql.schema.entities.history_field import VERSION_WHERE
from revstream.gql.schema.entities.state_pages import (
    STATE_AS_OF,
    CompiledStates,
    state_list_field,
)
from revstream.gql.schema.entities.version_pages import (
    VersionPage,
    VersionReadOptions,
    as_of_reader,
    version_field_compiler,
    version_field_resolver,
)
from revstream.gql.schema.entities.versions import STATE_ARGUMENTS, read_version
from revstream.gql.schema.roots.node import (
    compile_document,
    node_field,
    read_document,
    stored_id,
)
from revstream.gql.schema.roots.proposal_queries import (
    all_comments_field,
    all_drafts_field,
    comment_list_field,
    draft_list_field,
)
from revstream.model.definition import Model
from revstream.resolvers.history.version_filter import parse_version_where
from revstream.resolvers.pagination.page import page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.core import resume_tokens

__all__ = ["define_query"]

_ID = Argument("id", "ID!", "The id of the document.")


def define_query(
    types: Types, model: Model, results: Model, shapes: Mapping[str, ObjectTypeInfo]
) -> None:
    """Define the type `Query`.

    Args:
        results: the types of the results of aggregates.
    """
    root = [node_field(shapes, types.naming.node), _resume_token_field(), _streams_field()]
    fields = [*root, _saved_cursors_field()]
    for entity in model.entities:
        shape = shapes[entity.name]
        fields += [
            _document_field(model, shape),
            _list_field(model, shape),
            _state_field(model, shape),
            state_list_field(model, shape),
            aggregate_field(model, results, shape),
            _version_field(shape),
            _as_of_field(model, shape),
            _audit_trail_field(model, shape),
            version_aggregate_field(model, shape),
            draft_list_field(model, shape),
            comment_list_field(model, shape),
        ]
    fields += [all_drafts_field(model, shapes), all_comments_field(model, shapes)]
    types.add_object(
        "Query",
        fields,
        "All reads: current documents, the history of a document, and collections at a time point.",
    )


def _document_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def resolve(
        _root: None,
        info: ResolveInfo,
        id: str | None = None,
        by: Mapping[str, Any] | None = None,
    ) -> CurrentDocument | None:
        return await read_document(info, model, shape, id, by)

    arguments: tuple[Argument, ...] = (_ID,)
    given = "with this id"
    if unique_fields(shape):
        given = "with this id, or with this value of a unique field"
        arguments = (
            Argument("id", "ID", "The id of the document."),
            Argument("by", f"{shape.name}By", "A unique field, instead of the id."),
        )
    return Resolve(
        shape.entity.singular,
        shape.name,
        f"The current {shape.name} {given}; null if it does not exist.",
        resolve,
        arguments,
        prepare=lambda executor, details: compile_document(executor, model, shape, details),
    )


def _list_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    cache = page_read_cache()
    return Resolve(
        shape.entity.plural,
        f"{connection_name(shape.name)}!",
        f"The current documents of `{shape.entity.collection}`, filtered, sorted and paged.",
        page_resolver(model, shape),
        (*filter_arguments(shape), *search_arguments(shape), *PAGE_ARGUMENTS),
        prepare=lambda executor, details: compile_page(executor, model, shape, details, cache),
    )


def _state_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def past(
        _root: None, info: ResolveInfo, id: str, as_of: Mapping[str, Any]
    ) -> SnapshotDocument | None:
        context, id_ = info.context, stored_id(shape, id)
        moment = await context.loads.moment(shape.entity, as_of.get("time"), as_of.get("token"))
        fields = context.selections(info).stored(info.field_nodes, shape, shape.snapshot)
        found = await context.loads.version_at(shape.entity, id_, moment.at, fields)
        return None if found is None else VersionRecord(shape, found, moment.at).snapshot

    async def resolve(
        root: None, info: ResolveInfo, id: str, as_of: Mapping[str, Any] | None = None
    ) -> CurrentDocument | SnapshotDocument | None:
        if as_of is None:
            return await read_document(info, model, shape, id)
        return await past(root, info, id, as_of)

    def prepare(executor: Any, details: Any) -> CompiledStates | None:
        current = compile_document(executor, model, shape, details)
        if current is None:
            return None
        type_: Any = executor.schema.type_map[shape.snapshot]
        make = compile_object(executor, type_, details)
        return CompiledStates(current, ResolvedField(past, make or give_up))

    return Resolve(
        f"{shape.entity.singular}State",
        shape.state,
        f"The {shape.name} with this id now, or at a time point; null if it does not exist, or "
        "did not exist then.",
        resolve,
        (_ID, STATE_AS_OF),
        prepare=prepare,
    )


def _version_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def resolve(
        _root: None,
        info: ResolveInfo,
        id: str,
        version: int | None = None,
        as_of: Mapping[str, Any] | None = None,
    ) -> VersionRecord | None:
        id_ = stored_id(shape, id)
        return await read_version(info, shape, id_, info.field_nodes, version, as_of)

    return Resolve(
        f"{shape.entity.singular}Version",
        shape.version,
        "One version of a document, by number or at a time point; pass exactly one of the two. "
        "Null if the document did not exist; HISTORY_LOST if the version may have been deleted.",
        resolve,
        (_ID, *STATE_ARGUMENTS),
    )


def _as_of_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    read = as_of_reader(model, shape)
    return Resolve(
        f"{shape.entity.plural}AsOf",
        f"{connection_name(shape.version)}!",
        "The documents of the collection at a time point, "
        f"filtered, sorted and paged like `{shape.entity.plural}`.",
        version_field_resolver(shape, read),
        (
            Argument("asOf", "TimePoint!", "The time point."),
            *filter_arguments(shape),
            *PAGE_ARGUMENTS,
        ),
        prepare=version_field_compiler(shape, read, as_of=True),
    )


def _audit_trail_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def read(
        context: RequestContext,
        reading: VersionReadOptions,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> VersionPage:
        query = PageQuery(
            where=parse_version_where(model, shape.entity, where, context.scope),
            page=page_request(**page),
            **reading,
        )
        return await context.services.history.trail(shape.entity, query), None

    return Resolve(
        f"{shape.entity.singular}Versions",
        f"{connection_name(shape.version)}!",
        "The versions of all documents (the audit trail), newest first.",
        version_field_resolver(shape, read),
        (VERSION_WHERE, *PAGE_ARGUMENTS),
        prepare=version_field_compiler(shape, read),
    )


def _resume_token_field() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> str:
        context = info.context
        moment = await context.services.moments.now()
        return context.token_out(resume_tokens.token_from_time(moment.at))

    return Resolve(
        "resumeToken",
        "ResumeToken!",
        "The current position in the change stream: read it, then subscribe after it.",
        resolve,
    )


def _streams_field() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> Any:
        return await info.context.services.status.statuses()

    return Resolve(
        "streams",
        "[StreamStatus!]!",
        "The status of the recorders and listeners of this deployment, in all processes.",
        resolve,
    )


def _saved_cursors_field() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> Any:
        return await info.context.services.editing.cursors.list_for(info.context.owner)

    return Resolve(
        "savedCursors",
        "[SavedCursor!]!",
        "The cursors that the caller stored with `saveCursor`, by name.",
        resolve,
    )
