"""Root fields that list drafts and comments: of one type, and of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from gql.context import ResolveInfo
from gql.fields import Argument, Resolve
from gql.schema.connections import PAGE_ARGUMENTS, PageRecord, connection_name
from gql.schema.discussions import COMMENT_WHERE, shown_comments, total_selected
from gql.schema.nodes import stored_id
from gql.schema.proposals import DRAFT_WHERE, draft_page, selected_drafts
from gql.shapes import Shape
from model.entities import Model
from resolvers.drafts.pages import draft_query
from resolvers.pages import page_request
from resolvers.stored_ids import ids_shown_as

__all__ = ["all_comments", "all_drafts", "comment_list", "draft_list"]


def _of_document(shape: Shape, id_: str) -> Mapping[str, Any]:
    ids = ids_shown_as(shape.entity, stored_id(shape, id_))
    return {"doc": {"$in": list(ids)}}


def draft_list(model: Model, shape: Shape) -> StrawberryField:
    """The root field of an entity's drafts."""

    async def resolve(
        _root: None,
        info: ResolveInfo,
        document_id: str | None = None,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> PageRecord:
        query = draft_query(model, "DraftWhere", where)
        if document_id is not None:
            query = {"$and": [_of_document(shape, document_id), query]}
        whole, total = selected_drafts(info, f"{shape.name}Draft", [shape])
        found = await info.context.editing.drafts.page(
            [shape.entity], query, page_request(**page), whole=whole, total=total
        )
        return draft_page({shape.name: shape}, found)

    return Resolve(
        f"{shape.entity.singular}Drafts",
        f"{connection_name(f'{shape.name}Draft')}!",
        f"The proposed changes of all documents of {shape.name}, and proposed new ones, the newest "
        "first.",
        resolve,
        (Argument("documentId", "ID", "Only those of one document."), DRAFT_WHERE, *PAGE_ARGUMENTS),
    )


def all_drafts(model: Model, shapes: Mapping[str, Shape]) -> StrawberryField:
    """The root field of the drafts of all entities, for moderators."""

    async def resolve(
        _root: None, info: ResolveInfo, where: Mapping[str, Any] | None = None, **page: Any
    ) -> PageRecord:
        context = info.context
        readable = [each for each in model.entities if context.scope.may_read_entity(each)]
        of_entities = {each.name: shapes[each.name] for each in readable}
        whole, total = selected_drafts(info, "Draft", list(of_entities.values()))
        query = draft_query(model, "DraftWhere", where)
        found = await context.editing.drafts.page(
            readable, query, page_request(**page), whole=whole, total=total
        )
        return draft_page(of_entities, found)

    return Resolve(
        "allDrafts",
        f"{connection_name('Draft')}!",
        "The proposed changes of all types that the caller may read, the newest first.",
        resolve,
        (DRAFT_WHERE, *PAGE_ARGUMENTS),
    )


def comment_list(model: Model, shape: Shape) -> StrawberryField:
    """The root field of the comments on an entity's documents."""

    async def resolve(
        _root: None,
        info: ResolveInfo,
        document_id: str | None = None,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> PageRecord:
        query = draft_query(model, "CommentWhere", where)
        if document_id is not None:
            query = {"$and": [_of_document(shape, document_id), query]}
        found = await info.context.editing.comments.page(
            [shape.entity], query, page_request(**page), total=total_selected(info)
        )
        return shown_comments({shape.name: shape}, found)

    return Resolve(
        f"{shape.entity.singular}Comments",
        f"{connection_name('Comment')}!",
        f"The comments on versions and drafts of {shape.name}, the newest first.",
        resolve,
        (
            Argument("documentId", "ID", "Only those of one document."),
            COMMENT_WHERE,
            *PAGE_ARGUMENTS,
        ),
    )


def all_comments(model: Model, shapes: Mapping[str, Shape]) -> StrawberryField:
    """The root field of the comments on all entities' documents, for moderators."""

    async def resolve(
        _root: None, info: ResolveInfo, where: Mapping[str, Any] | None = None, **page: Any
    ) -> PageRecord:
        context = info.context
        readable = [each for each in model.entities if context.scope.may_read_entity(each)]
        query = draft_query(model, "CommentWhere", where)
        found = await context.editing.comments.page(
            readable, query, page_request(**page), total=total_selected(info)
        )
        return shown_comments(shapes, found)

    return Resolve(
        "allComments",
        f"{connection_name('Comment')}!",
        "The comments on documents of all types that the caller may read, the newest first.",
        resolve,
        (COMMENT_WHERE, *PAGE_ARGUMENTS),
    )
