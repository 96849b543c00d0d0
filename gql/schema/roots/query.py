"""`Query`: the present, the past and the whereabouts, for every entity of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument, VersionRecord
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.compiled_pages import Readings, prepared_page
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    allowed_order,
    connection_name,
    current_page,
    edge_name,
    filter_arguments,
)
from revstream.gql.schema.entities.history_field import VERSION_WHERE
from revstream.gql.schema.entities.version_pages import (
    FoundVersions,
    VersionReading,
    prepare_versions,
    resolve_versions,
)
from revstream.gql.schema.entities.versions import STATE_ARGUMENTS, version_asked_for
from revstream.gql.schema.roots.node import (
    current_document,
    node_field,
    prepared_document,
    stored_id,
)
from revstream.gql.schema.roots.proposal_queries import (
    all_comments,
    all_drafts,
    comment_list,
    draft_list,
)
from revstream.model.definition import Model
from revstream.resolvers.history.version_filter import parse_version_where
from revstream.resolvers.pagination.page import page_request
from revstream.streams.core import resume_tokens
from revstream.streams.core.lru_cache import LruCache

__all__ = ["define_query"]

# Of one field: about 1 KB each, beside the text of their arguments.
_READINGS = 1000
_READINGS_BYTES = 500_000

_ID = Argument("id", "ID!", "Its id.")


def define_query(types: Types, model: Model, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the type Query."""
    root = [node_field(shapes, types.naming.node), _resume_token(), _streams()]
    fields = [*root, _saved_cursors()]
    for entity in model.entities:
        shape = shapes[entity.name]
        fields += [
            _one(shape),
            _many(model, shape),
            _version(shape),
            _many_as_of(model, shape),
            _trail(model, shape),
            draft_list(model, shape),
            comment_list(model, shape),
        ]
    fields += [all_drafts(model, shapes), all_comments(model, shapes)]
    types.add_object(
        "Query",
        fields,
        "What can be asked: the present, any document's past, and the whole as of a moment.",
    )


def _one(shape: ObjectTypeInfo) -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo, id: str) -> CurrentDocument | None:
        return await current_document(info, shape, stored_id(shape, id))

    return Resolve(
        shape.entity.singular,
        shape.name,
        f"One {shape.name} as it is now; null where there is none.",
        resolve,
        (_ID,),
        prepare=lambda executor, details: prepared_document(executor, shape, details),
    )


def _many(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    readings: Readings = LruCache(most=_READINGS, most_size=_READINGS_BYTES)

    async def resolve(
        _root: None,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> PageRecord:
        context = info.context
        selections = context.selections(info)
        selected = selections.connection(
            info.field_nodes, connection_name(shape.name), edge_name(shape.name)
        )
        found = await context.current.page(
            shape.entity,
            where=await context.parse_filter(model, shape.entity, where),
            order=allowed_order(context, shape, order_by),
            page=page_request(**page),
            fields=selections.stored(selected.items, shape, shape.name),
            total=selected.total,
            token=selected.token,
            # Nothing is compared with what it was where it is all generated.
            shown=context.trusting,
        )
        return await current_page(info, shape, found, selected.items)

    return Resolve(
        shape.entity.plural,
        f"{connection_name(shape.name)}!",
        f"The collection `{shape.entity.collection}` as it is now: filtered, sorted and paged.",
        resolve,
        (*filter_arguments(shape), *PAGE_ARGUMENTS),
        prepare=lambda executor, details: prepared_page(executor, model, shape, details, readings),
    )


def _version(shape: ObjectTypeInfo) -> StrawberryField:
    async def resolve(
        _root: None,
        info: ResolveInfo,
        id: str,
        version: int | None = None,
        as_of: Mapping[str, Any] | None = None,
    ) -> VersionRecord | None:
        id_ = stored_id(shape, id)
        return await version_asked_for(info, shape, id_, info.field_nodes, version, as_of)

    return Resolve(
        f"{shape.entity.singular}Version",
        shape.version,
        "One version of a document, by number or as of a moment; give one of the two. "
        "Null where the document did not exist; HISTORY_LOST where it may have been dropped.",
        resolve,
        (_ID, *STATE_ARGUMENTS),
    )


def _many_as_of(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def read(
        context: RequestContext,
        reading: VersionReading,
        as_of: Mapping[str, Any],
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> FoundVersions:
        moment = await context.loads.moment(shape.entity, as_of.get("time"), as_of.get("token"))
        found = await context.history.collection_as_of(
            shape.entity,
            moment,
            where=await context.parse_filter(model, shape.entity, where),
            order=allowed_order(context, shape, order_by),
            page=page_request(**page),
            **reading,
        )
        return found, moment.at

    return Resolve(
        f"{shape.entity.plural}AsOf",
        f"{connection_name(shape.version)}!",
        "The whole collection as it was at a moment: "
        f"filtered, sorted and paged like `{shape.entity.plural}`.",
        resolve_versions(shape, read),
        (Argument("asOf", "TimePoint!", "The moment."), *filter_arguments(shape), *PAGE_ARGUMENTS),
        prepare=prepare_versions(shape, read),
    )


def _trail(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def read(
        context: RequestContext,
        reading: VersionReading,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> FoundVersions:
        found = await context.history.trail(
            shape.entity,
            where=parse_version_where(model, shape.entity, where, context.scope),
            page=page_request(**page),
            **reading,
        )
        return found, None

    return Resolve(
        f"{shape.entity.singular}Versions",
        f"{connection_name(shape.version)}!",
        "The audit trail over all documents, the newest version first.",
        resolve_versions(shape, read),
        (VERSION_WHERE, *PAGE_ARGUMENTS),
        prepare=prepare_versions(shape, read),
    )


def _resume_token() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> str:
        context = info.context
        moment = await context.moments.now()
        return context.token_out(resume_tokens.moment(moment.at))

    return Resolve(
        "resumeToken", "ResumeToken!", "Now, as a token: read it, then subscribe after it.", resolve
    )


def _streams() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> Any:
        return await info.context.status.statuses()

    return Resolve(
        "streams",
        "[StreamStatus!]!",
        "How the listeners of this deployment are doing, whichever process has them.",
        resolve,
    )


def _saved_cursors() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo) -> Any:
        return await info.context.editing.cursors.of(info.context.owner)

    return Resolve(
        "savedCursors",
        "[SavedCursor!]!",
        "The places that the caller has kept with `saveCursor`, by name.",
        resolve,
    )
