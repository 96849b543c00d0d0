"""Drafts and comments: `ProductDraft`, `Comment`, and the fields that lead there."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from gql.context import ResolveInfo
from gql.fields import Argument, Read, Resolve
from gql.records import CurrentDocument, SnapshotDocument, VersionRecord
from gql.schema.building import Types
from gql.schema.descriptions import with_article
from gql.schema.guards import shown_to_readers
from gql.shapes import Shape
from model.entities import Model
from resolvers.changes import FieldChange, field_changes
from resolvers.comments import Comment
from resolvers.drafts import Draft

__all__ = [
    "DraftRecord",
    "ProposalRecord",
    "comments_of_version",
    "define_comment",
    "define_drafts",
    "draft_of_version",
    "drafts_field",
]


class DraftRecord:
    """A draft as the API shows it."""

    __slots__ = ("draft", "shape")

    def __init__(self, shape: Shape, draft: Draft) -> None:
        self.shape = shape
        self.draft = draft

    @property
    def snapshot(self) -> SnapshotDocument:
        """What it makes of the document: an object of its own to caches."""
        draft = self.draft
        name = f"draft-{draft.number}"
        return SnapshotDocument(self.shape, draft.full, name, draft.moment)


class ProposalRecord:
    """A draft that was made or decided about."""

    __slots__ = ("draft", "shape")

    def __init__(self, shape: Shape, draft: Draft) -> None:
        self.shape = shape
        self.draft = DraftRecord(shape, draft)

    @property
    def type_name(self) -> str:
        return f"{self.shape.name}Drafted"


def define_comment(types: Types) -> None:
    types.add_object(
        "Comment",
        [
            Read("id", "ID!", "Its id: reply to it with `replyTo`.", attrgetter("id")),
            Read("version", "Int", "The version that it is about.", attrgetter("version")),
            Read("draft", "Int", "The draft that it is about.", attrgetter("draft")),
            Read("author", "String", "Who wrote it.", attrgetter("by")),
            Read("at", "DateTime!", "When it was written.", attrgetter("at")),
            Read("text", "String!", "What it says.", attrgetter("text")),
            Read("replyTo", "ID", "The comment that it answers.", attrgetter("reply_to")),
        ],
        "What somebody said about a version or a draft.",
    )


def define_drafts(types: Types, model: Model, shape: Shape) -> None:
    """Define `<Entity>Draft`, and what proposing and rejecting answer."""
    entity = shape.entity

    def diff(source: DraftRecord, info: ResolveInfo) -> Sequence[FieldChange]:
        compared = info.context.scope.readable(entity, model)
        return field_changes(*compared, source.draft.base, source.draft.full)

    async def comments(source: DraftRecord, info: ResolveInfo) -> list[Comment]:
        draft = source.draft
        return await info.context.loads.comments(entity, (draft.document, "draft", draft.number))

    types.add_object(
        f"{shape.name}Draft",
        [
            Read("number", "Int!", "Of the document's drafts, from 1.", attrgetter("draft.number")),
            Read("status", "DraftStatus!", "What has become of it.", attrgetter("draft.status")),
            Read(
                "basedOn",
                "Int!",
                "The number of the version that it goes on from.",
                attrgetter("draft.based_on"),
            ),
            Read(
                "basedOnDraft",
                "Int",
                "The draft that it goes on from, if any.",
                attrgetter("draft.based_on_draft"),
            ),
            Read("author", "String", "Who proposed it.", attrgetter("draft.by")),
            Read("comment", "String", "Why it was proposed.", attrgetter("draft.why")),
            Read("at", "DateTime!", "When it was proposed.", attrgetter("draft.at")),
            Read(
                "document",
                f"{shape.snapshot}!",
                "What it makes of the document.",
                attrgetter("snapshot"),
            ),
            Resolve("diff", "[FieldChange!]!", "What it changes.", diff),
            Resolve("comments", "[Comment!]!", "What was said about it.", comments),
            Read(
                "publishedAs",
                "Int",
                "The number of the version that it has become.",
                attrgetter("draft.published_as"),
            ),
            Read(
                "decidedBy",
                "String",
                "Who published or rejected it.",
                attrgetter("draft.decided_by"),
            ),
            Read(
                "decidedAt",
                "DateTime",
                "When it was published or rejected.",
                attrgetter("draft.decided_at"),
            ),
            Read(
                "decidedComment",
                "String",
                "Why it was published or rejected.",
                attrgetter("draft.decided_why"),
            ),
        ],
        f"A proposed change of {with_article(shape.name)}: "
        "not published until someone approves it.",
    )
    types.add_object(
        f"{shape.name}Drafted",
        [
            shown_to_readers(
                shape, Read("draft", f"{shape.name}Draft!", "The draft.", attrgetter("draft"))
            )
        ],
        "The draft was made, or decided about.",
    )
    types.add_union(
        f"{shape.name}Proposal",
        [f"{shape.name}Drafted", "VersionConflict", "DocumentNotFound", "InvalidDocument"],
        f"What became of a draft of {with_article(shape.name)}.",
    )


def drafts_field(shape: Shape) -> StrawberryField:
    """The drafts of a current document."""

    async def drafts(
        source: CurrentDocument, info: ResolveInfo, status: str | None = None
    ) -> list[DraftRecord]:
        context = info.context

        async def read(ids: list[Any]) -> Any:
            return await context.editing.drafts.of(shape.entity, ids, status=status)

        kind = ("drafts", shape.name, status)
        found = await context.loads.together(kind, source.values["_id"], read)
        return [DraftRecord(shape, each) for each in found]

    return Resolve(
        "drafts",
        f"[{shape.name}Draft!]!",
        "Its proposed changes, the newest first.",
        drafts,
        (Argument("status", "DraftStatus", "Only those of which this has become."),),
    )


def draft_of_version(shape: Shape) -> StrawberryField:
    """The draft that was published as a version."""

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


def comments_of_version(source: VersionRecord, info: ResolveInfo) -> Any:
    version = source.version
    subject = (version.document, "version", version.number)
    return info.context.loads.comments(source.shape.entity, subject)
