"""Drafts: the interface `Draft`, `ProductDraft`, its connection, and fields that return drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, InputField, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.execution.worker_thread import count_items, has_read_much, run_in_thread
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
    types.add_interface("Draft", _draft_fields(), "A proposed change of a document of any type.")
    define_connection(types, "Draft", "A page of drafts of several types.")
    types.add_input(
        "DraftStatusFilter",
        [
            InputField("eq", "DraftStatus", "Equal to this status."),
            InputField("ne", "DraftStatus", "Not equal to this status."),
            InputField("in", "[DraftStatus!]", "Equal to one of these statuses."),
            InputField("notIn", "[DraftStatus!]", "Equal to none of these statuses."),
            InputField("exists", "Boolean", "True: has a status, as all drafts have."),
        ],
        "Conditions for the status of a draft. All of them must match.",
    )
    types.add_input(
        "DraftWhere",
        [
            InputField("status", "DraftStatusFilter", "Conditions for the status."),
            InputField("author", "StringFilter", "Conditions for the author of the proposal."),
            InputField("at", "DateTimeFilter", "Conditions for the time of the proposal."),
        ],
        "Filter for drafts. A draft must match all conditions.",
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
        fact("number", "Int!", "The number of the draft among the document's drafts, from 1."),
        Read("documentId", "ID!", "The id of the document.", attrgetter("document_id")),
        fact("status", "DraftStatus!", "The status of the draft."),
        fact(
            "basedOn",
            "Int!",
            "The number of the version on which the draft is based; 0 for a new document.",
        ),
        fact("basedOnDraft", "Int", "The number of the draft on which this one is based, if any."),
        fact("author", "String", "The author of the proposal."),
        fact("comment", "String", "The reason for the proposal."),
        fact("at", "DateTime!", "The time of the proposal."),
        Resolve(
            "diff",
            "[FieldChange!]!",
            "The proposed changes.",
            resolvers.get("diff", raise_unresolved),
        ),
        comments_field("The comments on the draft.", resolvers.get("comments", raise_unresolved)),
        fact(
            "publishedAs",
            "Int",
            "The number of the version that the draft became, if it was published.",
        ),
        fact("decidedBy", "String", "The name of the caller that published or rejected it."),
        fact("decidedAt", "DateTime", "The time of the decision."),
        fact("decidedComment", "String", "The reason for the decision."),
    ]


def define_drafts(types: Types, model: Model, shape: ObjectTypeInfo) -> None:
    """Define `<Entity>Draft`, its connection, and the result of proposing or rejecting one."""

    def diff(source: DraftRecord, info: ResolveInfo) -> Any:
        comparison = info.context.scope.compared(shape.comparison)
        return diff_off_loop(source, comparison) if has_read_much() else changes(source, comparison)

    async def diff_off_loop(source: DraftRecord, comparison: FieldDiff) -> Sequence[FieldChange]:
        return await run_in_thread(changes, source, comparison)

    def changes(source: DraftRecord, comparison: FieldDiff) -> Sequence[FieldChange]:
        return count_items(comparison.changes(source.draft.base, source.draft.full))

    def comments(source: DraftRecord, info: ResolveInfo, **page: Any) -> Any:
        draft = source.draft
        return read_comment_page(info, shape, (draft.document, "draft", draft.number), page)

    document = Read(
        "document",
        f"{shape.snapshot}!",
        "The document with the proposed changes.",
        attrgetter("snapshot"),
    )
    types.add_object(
        f"{shape.name}Draft",
        [*_draft_fields(diff=diff, comments=comments), document],
        f"A proposed change of {with_article(shape.name)}. "
        "It becomes a version when it is published.",
        ["Draft"],
    )
    define_connection(types, f"{shape.name}Draft", f"A page of drafts of {shape.name}.")
    types.add_object(
        f"{shape.name}Drafted",
        [
            require_read_access(
                shape, Read("draft", f"{shape.name}Draft!", "The draft.", attrgetter("draft"))
            )
        ],
        "Success: the draft was created or rejected.",
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
        f"The result of a mutation of a draft of {with_article(shape.name)}.",
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
                    context.services.editing.drafts.page(
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
        found = await context.loads.for_document(kind, source.values["_id"], read)
        return draft_page_record({shape.name: shape}, found)

    return Resolve(
        "drafts",
        f"{connection_name(f'{shape.name}Draft')}!",
        "The drafts of the document, newest first.",
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
        "The draft that was published as this version, with its author.",
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
