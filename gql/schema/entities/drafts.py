"""Drafts: the interface `Draft`, `ProductDraft`, its connection, and fields that return drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, InputField, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.execution.worker_thread import counted, has_read_much, off_loop
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.source import (
    CurrentDocument,
    SnapshotDocument,
    VersionRecord,
    id_text,
)
from revstream.gql.schema.common.access_check import require_read_access
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.comments import CommentRecord, comments_field, read_comment_page
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    connection_name,
    define_connection,
    edge_name,
)
from revstream.gql.schema.entities.interfaces import raise_unresolved
from revstream.model.definition import Entity, Model
from revstream.model.naming import with_article
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.drafts.pages import draft_query
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.values.field_diff import FieldChange, FieldDiff
from revstream.resolvers.values.output import ValueLocation

__all__ = [
    "DRAFT_WHERE",
    "DraftRecord",
    "DraftWrittenRecord",
    "define_draft",
    "define_drafts",
    "draft_page_record",
    "drafts_field",
    "resolve_comment_draft",
    "resolve_comment_version",
    "selected_drafts",
    "version_draft_field",
]


class DraftRecord:
    """Source of the object type `<Entity>Draft`."""

    __slots__ = ("draft", "shape")

    def __init__(self, shape: ObjectTypeInfo, draft: Draft) -> None:
        self.shape = shape
        self.draft = draft

    @property
    def type_name(self) -> str:
        return f"{self.shape.name}Draft"

    @property
    def place(self) -> ValueLocation:
        return ValueLocation(self.shape.entity.collection, self.draft.document)

    @property
    def document_id(self) -> str:
        return id_text(self.shape, self.draft.document, self)

    @property
    def snapshot(self) -> SnapshotDocument:
        """Return the document with the draft's content.

        Its id contains the draft's number, so that clients' caches keep it as a separate object.
        """
        draft = self.draft
        name = f"draft-{draft.number}"
        return SnapshotDocument(self.shape, draft.full, name, draft.moment)


class DraftWrittenRecord:
    """Source of `<Entity>Drafted`: the result of a mutation that writes a draft."""

    __slots__ = ("draft", "shape")

    def __init__(self, shape: ObjectTypeInfo, draft: Draft) -> None:
        self.shape = shape
        self.draft = DraftRecord(shape, draft)

    @property
    def type_name(self) -> str:
        return f"{self.shape.name}Drafted"


def define_draft(types: Types) -> None:
    """Define the interface of all drafts, its connection and its filter."""
    types.add_interface("Draft", _draft_fields(), "A proposed change of a document, of any type.")
    define_connection(types, "Draft", "Drafts of several types: one page of them.")
    types.add_input(
        "DraftStatusFilter",
        [
            InputField("eq", "DraftStatus", "This one."),
            InputField("ne", "DraftStatus", "Any other."),
            InputField("in", "[DraftStatus!]", "One of these."),
            InputField("notIn", "[DraftStatus!]", "None of these."),
            InputField("exists", "Boolean", "True: it has one, as all drafts do."),
        ],
        "By the status of a draft.",
    )
    types.add_input(
        "DraftWhere",
        [
            InputField("status", "DraftStatusFilter", "By the status."),
            InputField("author", "StringFilter", "By the author of the proposal."),
            InputField("at", "DateTimeFilter", "By the time of the proposal."),
        ],
        "Which drafts match: those that match everything that is given.",
    )


def _draft_fields(**resolvers: Callable[..., Any]) -> list[StrawberryField]:
    """Return the fields of the interface Draft.

    Args:
        resolvers: an object type's resolvers of `diff` and `comments`.
    """

    def fact(name: str, type_: str, description: str) -> Read:
        stored = {"basedOn": "based_on", "basedOnDraft": "based_on_draft", "author": "by"}
        stored |= {"comment": "why", "publishedAs": "published_as", "decidedBy": "decided_by"}
        stored |= {"decidedAt": "decided_at", "decidedComment": "decided_why"}
        return Read(name, type_, description, attrgetter(f"draft.{stored.get(name, name)}"))

    return [
        fact("number", "Int!", "Its number among the document's drafts, from 1."),
        Read("documentId", "ID!", "The id of the document.", attrgetter("document_id")),
        fact("status", "DraftStatus!", "Whether it was published or rejected."),
        fact(
            "basedOn",
            "Int!",
            "The number of the version that it goes on from; 0 where it proposes a new document.",
        ),
        fact("basedOnDraft", "Int", "The draft that it goes on from, if any."),
        fact("author", "String", "The author of the proposal."),
        fact("comment", "String", "The reason for the proposal."),
        fact("at", "DateTime!", "The time of the proposal."),
        Resolve("diff", "[FieldChange!]!", "Its changes.", resolvers.get("diff", raise_unresolved)),
        comments_field("The comments on it.", resolvers.get("comments", raise_unresolved)),
        fact("publishedAs", "Int", "The number of the version that it has become."),
        fact("decidedBy", "String", "The name of the caller that published or rejected it."),
        fact("decidedAt", "DateTime", "The time of that decision."),
        fact("decidedComment", "String", "The reason for that decision."),
    ]


def define_drafts(types: Types, model: Model, shape: ObjectTypeInfo) -> None:
    """Define `<Entity>Draft`, its connection, and the result of proposing or rejecting one."""

    def diff(source: DraftRecord, info: ResolveInfo) -> Any:
        comparison = info.context.scope.compared(shape.comparison)
        return diff_off_loop(source, comparison) if has_read_much() else changes(source, comparison)

    async def diff_off_loop(source: DraftRecord, comparison: FieldDiff) -> Sequence[FieldChange]:
        return await off_loop(changes, source, comparison)

    def changes(source: DraftRecord, comparison: FieldDiff) -> Sequence[FieldChange]:
        return counted(comparison.changes(source.draft.base, source.draft.full))

    def comments(source: DraftRecord, info: ResolveInfo, **page: Any) -> Any:
        draft = source.draft
        return read_comment_page(info, shape, (draft.document, "draft", draft.number), page)

    document = Read(
        "document", f"{shape.snapshot}!", "The document as it would be.", attrgetter("snapshot")
    )
    types.add_object(
        f"{shape.name}Draft",
        [*_draft_fields(diff=diff, comments=comments), document],
        f"A proposed change of {with_article(shape.name)}: "
        "not published until someone approves it.",
        ["Draft"],
    )
    define_connection(types, f"{shape.name}Draft", f"Drafts of {shape.name}: one page of them.")
    types.add_object(
        f"{shape.name}Drafted",
        [
            require_read_access(
                shape, Read("draft", f"{shape.name}Draft!", "The draft.", attrgetter("draft"))
            )
        ],
        "The draft was made, or decided about.",
    )
    types.add_union(
        f"{shape.name}Proposal",
        [
            f"{shape.name}Drafted",
            "VersionConflict",
            "DocumentNotFound",
            "AlreadyExists",
            "InvalidDocument",
        ],
        f"What became of a draft of {with_article(shape.name)}.",
    )


DRAFT_WHERE = Argument("where", "DraftWhere", "Only drafts that match.")


def drafts_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the field `drafts` of a current document."""

    async def drafts(
        source: CurrentDocument,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> PageRecord:
        context = info.context
        query, request = draft_query(model, "DraftWhere", where), page_request(**page)
        whole, total = selected_drafts(info, f"{shape.name}Draft", [shape])

        async def read(ids: list[Any]) -> Any:
            return await asyncio.gather(
                *(
                    context.editing.drafts.page(
                        [shape.entity],
                        {"$and": [{"doc": {"$eq": each}}, query]},
                        request,
                        whole=whole,
                        total=total,
                    )
                    for each in ids
                )
            )

        kind = ("drafts", shape.name, *map(id, info.field_nodes))
        found = await context.loads.together(kind, source.values["_id"], read)
        return draft_page_record({shape.name: shape}, found)

    return Resolve(
        "drafts",
        f"{connection_name(f'{shape.name}Draft')}!",
        "Its proposed changes, the newest first.",
        drafts,
        (DRAFT_WHERE, *PAGE_ARGUMENTS),
    )


def selected_drafts(
    info: ResolveInfo, item: str, shapes: Sequence[ObjectTypeInfo]
) -> tuple[bool, bool]:
    """Return whether contents of drafts are selected, and whether `totalCount` is."""
    selections = info.context.selections(info)
    found = selections.connection(info.field_nodes, connection_name(item), edge_name(item))
    fields = {
        name for shape in shapes for name in selections.under(found.items, f"{shape.name}Draft")
    }
    return not fields.isdisjoint({"document", "diff"}), found.total


def draft_page_record(
    shapes: Mapping[str, ObjectTypeInfo], page: Page[tuple[Entity, Draft]]
) -> PageRecord:
    """Return the source of a connection of drafts.

    Args:
        shapes: the object types of all entities in the page, by name.
        page: drafts with their entities.
    """
    items = [DraftRecord(shapes[entity.name], draft) for entity, draft in page.items]
    return PageRecord(items, None, page)


def version_draft_field(shape: ObjectTypeInfo) -> StrawberryField:
    """Return the field `draft` of a version: the draft that was published as this version."""

    async def draft(source: VersionRecord, info: ResolveInfo) -> DraftRecord | None:
        version = source.version
        if version.draft is None:
            return None
        found = await info.context.loads.draft(shape.entity, version.document, version.draft)
        return None if found is None else DraftRecord(shape, found)

    return Resolve(
        "draft",
        f"{shape.name}Draft",
        "The draft that was published as this version, with who proposed it.",
        draft,
    )


async def resolve_comment_draft(source: CommentRecord, info: ResolveInfo) -> DraftRecord | None:
    """Resolve the draft that a comment is about."""
    comment = source.comment
    if comment.draft is None:
        return None
    entity = source.shape.entity
    found = await info.context.loads.draft(entity, comment.document, comment.draft)
    return None if found is None else DraftRecord(source.shape, found)


async def resolve_comment_version(source: CommentRecord, info: ResolveInfo) -> VersionRecord | None:
    """Resolve the version that a comment is about."""
    comment, shape, context = source.comment, source.shape, info.context
    if comment.version is None:
        return None
    fields = context.selections(info).version(info.field_nodes, shape).fields
    found = await context.loads.version_numbered(
        shape.entity, comment.document, comment.version, fields
    )
    return None if found is None else VersionRecord(shape, found)
