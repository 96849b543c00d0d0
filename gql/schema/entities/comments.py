"""Comments: the type `Comment`, its connection and filter, and the fields that return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from revstream.gql.engine.definitions.field import Argument, InputField, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.source import VersionRecord, id_text
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    connection_name,
    define_connection,
    edge_name,
)
from revstream.model.definition import Entity
from revstream.resolvers.drafts.comments import Comment, Subject
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.values.output import ValueLocation

__all__ = [
    "COMMENT_WHERE",
    "CommentRecord",
    "comment_page_record",
    "comments_field",
    "define_comment",
    "is_total_selected",
    "read_comment_page",
    "resolve_version_comments",
]

SubjectFinder = Callable[["CommentRecord", ResolveInfo], Any]


class CommentRecord:
    """Source of the object type `Comment`."""

    __slots__ = ("comment", "shape")

    def __init__(self, shape: ObjectTypeInfo, comment: Comment) -> None:
        self.shape = shape
        self.comment = comment

    @property
    def place(self) -> ValueLocation:
        return ValueLocation(self.shape.entity.collection, self.comment.document)

    @property
    def document_id(self) -> str:
        return id_text(self.shape, self.comment.document, self)


def define_comment(types: Types, find_version: SubjectFinder, find_draft: SubjectFinder) -> None:
    """Define the type Comment, its connection and its filter.

    Args:
        types: the registry of the schema.
        find_version: resolver of the version that a comment is about; None for another subject.
        find_draft: resolver of the draft that a comment is about; None for another subject.
    """
    types.add_object(
        "Comment",
        [
            Read(
                "id",
                "ID!",
                "The id of the comment; pass it as `replyTo` to reply.",
                attrgetter("comment.id"),
            ),
            Read("documentId", "ID!", "The id of the document.", attrgetter("document_id")),
            Read(
                "version",
                "Int",
                "The number of the version that it is about.",
                attrgetter("comment.version"),
            ),
            Read(
                "draft",
                "Int",
                "The number of the draft that it is about.",
                attrgetter("comment.draft"),
            ),
            Resolve("aboutVersion", "Version", "The version that it is about.", find_version),
            Resolve("aboutDraft", "Draft", "The draft that it is about.", find_draft),
            Read("author", "String", "The author of the comment.", attrgetter("comment.by")),
            Read("at", "DateTime!", "The time of the comment.", attrgetter("comment.at")),
            Read("text", "String!", "The text of the comment.", attrgetter("comment.text")),
            Read(
                "replyTo",
                "ID",
                "The id of the comment that it replies to.",
                attrgetter("comment.reply_to"),
            ),
        ],
        "A comment on a version or a draft.",
    )
    define_connection(types, "Comment", "A page of comments.")
    types.add_input(
        "CommentWhere",
        [
            InputField("author", "StringFilter", "Conditions for the author."),
            InputField("at", "DateTimeFilter", "Conditions for the time."),
        ],
        "Filter for comments. A comment must match all conditions.",
    )


COMMENT_WHERE = Argument("where", "CommentWhere", "Only comments that match.")


def comments_field(description: str, resolve: Callable[..., Any]) -> Resolve:
    """Return the field `comments` of a version or a draft."""
    return Resolve(
        "comments",
        f"{connection_name('Comment')}!",
        f"{description} Oldest first.",
        resolve,
        PAGE_ARGUMENTS,
    )


def resolve_version_comments(source: VersionRecord, info: ResolveInfo, **page: Any) -> Any:
    """Resolve the field `comments` of a version."""
    version = source.version
    return read_comment_page(
        info, source.shape, (version.document, "version", version.number), page
    )


async def read_comment_page(
    info: ResolveInfo, shape: ObjectTypeInfo, subject: Subject, page: Mapping[str, Any]
) -> PageRecord:
    """Read a page of the comments on one version or draft.

    The pages of all versions or drafts of a list are read with one command.
    """
    request, total = page_request(**page), is_total_selected(info)

    async def read(subjects: list[Subject]) -> Any:
        return await info.context.services.editing.comments.on(
            shape.entity, subjects, request, total=total
        )

    kind = ("comments", shape.name, *map(id, info.field_nodes))
    found = await info.context.loads.for_subject(kind, subject, read)
    return comment_page_record({shape.name: shape}, found)


def is_total_selected(info: ResolveInfo) -> bool:
    """Return whether the field selects `totalCount` of a connection of comments."""
    selections = info.context.selections(info)
    return bool(
        selections.connection(
            info.field_nodes, connection_name("Comment"), edge_name("Comment")
        ).total
    )


def comment_page_record(
    shapes: Mapping[str, ObjectTypeInfo], page: Page[tuple[Entity, Comment]]
) -> PageRecord:
    """Return the source of a connection of comments.

    Args:
        shapes: the object types of all entities in the page, by name.
        page: comments with their entities.
    """
    items = [CommentRecord(shapes[entity.name], comment) for entity, comment in page.items]
    return PageRecord(items, None, page)
