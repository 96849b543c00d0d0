"""Root fields that list drafts and comments, of one entity or of all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.entities.comments import (
    COMMENT_WHERE,
    comment_page_record,
    is_total_selected,
)
from revstream.gql.schema.entities.connections import PAGE_ARGUMENTS, PageRecord, connection_name
from revstream.gql.schema.entities.drafts import DRAFT_WHERE, draft_page_record, selected_drafts
from revstream.gql.schema.roots.node import stored_id
from revstream.model.definition import Model
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.drafts.pages import RecordFilter, draft_query
from revstream.resolvers.pagination.page import PageRequest, page_request

__all__ = ["all_comments_field", "all_drafts_field", "comment_list_field", "draft_list_field"]


_PageReader: TypeAlias = Callable[
    [ResolveInfo, Mapping[str, ObjectTypeInfo], Mapping[str, Any], PageRequest],
    Awaitable[PageRecord],
]
"""Reader of a page of drafts or comments, by a query over records."""

_DOCUMENT_ID = Argument("documentId", "ID", "Only for the document with this id.")


def draft_list_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of an entity's drafts."""
    item = f"{shape.name}Draft"
    return Resolve(
        f"{shape.entity.singular}Drafts",
        f"{connection_name(item)}!",
        f"The drafts of all documents of {shape.name}, and of new documents, newest first.",
        _entity_resolver(model, shape, "DraftWhere", _draft_page_reader(item)),
        (_DOCUMENT_ID, DRAFT_WHERE, *PAGE_ARGUMENTS),
    )


def all_drafts_field(model: Model, shapes: Mapping[str, ObjectTypeInfo]) -> StrawberryField:
    """Return the root field of the drafts of all entities, for moderators."""
    return Resolve(
        "allDrafts",
        f"{connection_name('Draft')}!",
        "The drafts of all types that the caller may read, newest first.",
        _all_entities_resolver(model, shapes, "DraftWhere", _draft_page_reader("Draft")),
        (DRAFT_WHERE, *PAGE_ARGUMENTS),
    )


def comment_list_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of the comments on an entity's documents."""
    return Resolve(
        f"{shape.entity.singular}Comments",
        f"{connection_name('Comment')}!",
        f"The comments on versions and drafts of {shape.name}, newest first.",
        _entity_resolver(model, shape, "CommentWhere", _read_comments),
        (_DOCUMENT_ID, COMMENT_WHERE, *PAGE_ARGUMENTS),
    )


def all_comments_field(model: Model, shapes: Mapping[str, ObjectTypeInfo]) -> StrawberryField:
    """Return the root field of the comments on all entities' documents, for moderators."""
    return Resolve(
        "allComments",
        f"{connection_name('Comment')}!",
        "The comments on documents of all types that the caller may read, newest first.",
        _all_entities_resolver(model, shapes, "CommentWhere", _read_comments),
        (COMMENT_WHERE, *PAGE_ARGUMENTS),
    )


def _draft_page_reader(item: str) -> _PageReader:
    """Return the reader of drafts for a connection whose items have this type."""

    async def read(
        info: ResolveInfo,
        shapes: Mapping[str, ObjectTypeInfo],
        query: Mapping[str, Any],
        page: PageRequest,
    ) -> PageRecord:
        whole, total = selected_drafts(info, item, list(shapes.values()))
        entities = [each.entity for each in shapes.values()]
        found = await info.context.services.editing.drafts.page(
            entities, query, page, whole=whole, total=total
        )
        return draft_page_record(shapes, found)

    return read


async def _read_comments(
    info: ResolveInfo,
    shapes: Mapping[str, ObjectTypeInfo],
    query: Mapping[str, Any],
    page: PageRequest,
) -> PageRecord:
    entities = [each.entity for each in shapes.values()]
    found = await info.context.services.editing.comments.page(
        entities, query, page, total=is_total_selected(info)
    )
    return comment_page_record(shapes, found)


def _entity_resolver(
    model: Model, shape: ObjectTypeInfo, filter_: RecordFilter, read: _PageReader
) -> Callable[..., Awaitable[PageRecord]]:
    async def resolve(
        _root: None,
        info: ResolveInfo,
        document_id: str | None = None,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> PageRecord:
        query = draft_query(model, filter_, where)
        if document_id is not None:
            ids = ids_shown_as(shape.entity, stored_id(shape, document_id))
            query = {"$and": [{"doc": {"$in": list(ids)}}, query]}
        return await read(info, {shape.name: shape}, query, page_request(**page))

    return resolve


def _all_entities_resolver(
    model: Model, shapes: Mapping[str, ObjectTypeInfo], filter_: RecordFilter, read: _PageReader
) -> Callable[..., Awaitable[PageRecord]]:
    async def resolve(
        _root: None, info: ResolveInfo, where: Mapping[str, Any] | None = None, **page: Any
    ) -> PageRecord:
        scope = info.context.scope
        readable = {
            each.name: shapes[each.name] for each in model.entities if scope.may_read_entity(each)
        }
        return await read(info, readable, draft_query(model, filter_, where), page_request(**page))

    return resolve
