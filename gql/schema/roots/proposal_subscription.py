"""Subscriptions to proposals (drafts and comments), and the types of their events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.limits.concurrency import SubscriptionOperation
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.source import id_text
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.comments import COMMENT_WHERE, CommentRecord
from revstream.gql.schema.entities.drafts import DRAFT_WHERE, DraftRecord
from revstream.gql.schema.entities.interfaces import change_fields
from revstream.gql.schema.roots.node import stored_id
from revstream.gql.schema.roots.resumption import RESUMABLE_ERRORS, Resumption
from revstream.gql.schema.roots.tracked_subscription import TrackedSubscription
from revstream.model.definition import Entity, Model
from revstream.model.naming import with_article
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.drafts.comments import Comment
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.drafts.pages import RecordFilter, draft_condition
from revstream.resolvers.drafts.watch import ProposalChange, ProposalKind, ProposalRequest
from revstream.resolvers.filters.pattern import refuse_patterns
from revstream.resolvers.values.output import ValueLocation
from revstream.streams.core.operation import OPERATION

__all__ = [
    "all_proposal_change_fields",
    "define_entity_draft_change",
    "define_proposal_changes",
    "proposal_change_fields",
]

Shapes = Mapping[str, ObjectTypeInfo]

_COMMON_FIELDS = {"kind", "operation", "transition", "documentId", "at", "replayed", "resumeToken"}
_FILTER_TYPES: Mapping[ProposalKind, RecordFilter] = {
    "drafts": "DraftWhere",
    "comments": "CommentWhere",
}
_AFTER = Argument("after", "ResumeToken", "Resume after this token; default: only new events.")
_DOCUMENT_ID = Argument("documentId", "ID", "Only for the document with this id.")


class ProposalChangeRecord:
    """Source of `DraftChange`, `<Entity>DraftChange` and `CommentChange`.

    Attributes:
        shape: the object type of the document; None in a checkpoint event.
        change: the event.
    """

    __slots__ = ("change", "shape")

    def __init__(self, shape: ObjectTypeInfo | None, change: ProposalChange) -> None:
        self.shape = shape
        self.change = change

    @property
    def place(self) -> ValueLocation:
        assert self.shape is not None
        return ValueLocation(self.shape.entity.collection, self.change.document)

    @property
    def document_id(self) -> str | None:
        if self.shape is None or self.change.document is None:
            return None
        return id_text(self.shape, self.change.document, self)

    @property
    def type(self) -> str | None:
        return None if self.shape is None else self.shape.name

    @property
    def draft(self) -> DraftRecord | None:
        draft = self.change.record
        if self.shape is None or not isinstance(draft, Draft):
            return None
        return DraftRecord(self.shape, draft)

    @property
    def comment(self) -> CommentRecord | None:
        comment = self.change.record
        if self.shape is None or not isinstance(comment, Comment):
            return None
        return CommentRecord(self.shape, comment)


def define_proposal_changes(types: Types) -> None:
    """Define the events of drafts of all types, and of comments."""
    types.add_object(
        "DraftChange",
        _draft_fields("Draft"),
        "A change of a draft of any type, or a checkpoint event.",
    )
    types.add_object(
        "CommentChange",
        [
            *_common_fields(),
            Read("commentId", "ID", "The id of the comment.", attrgetter("change.key")),
            Read(
                "comment",
                "Comment",
                "The comment after this change; null if it was removed.",
                attrgetter("comment"),
            ),
        ],
        "A change of a comment, or a checkpoint event.",
    )


def define_entity_draft_change(types: Types, shape: ObjectTypeInfo) -> None:
    """Define the events of an entity's drafts."""
    types.add_object(
        f"{shape.name}DraftChange",
        _draft_fields(f"{shape.name}Draft"),
        f"A change of a draft of {with_article(shape.name)}, or a checkpoint event.",
    )


def _draft_fields(draft: str) -> list[StrawberryField]:
    description = "The draft after this change; null if it was removed."
    return [
        *_common_fields(),
        Read("number", "Int", "The number of the draft.", attrgetter("change.key")),
        Read("draft", draft, description, attrgetter("draft")),
    ]


def _common_fields() -> list[StrawberryField]:
    def resume_token(source: ProposalChangeRecord, info: ResolveInfo) -> str:
        token: str = info.context.token_out(source.change.token)
        return token

    changes = change_fields(
        kind=attrgetter("change.kind"),
        operation=attrgetter("change.operation"),
        transition=attrgetter("change.transition"),
        document_id=attrgetter("document_id"),
        at=attrgetter("change.at"),
        replayed=attrgetter("change.replayed"),
        resume_token=resume_token,
    )
    return [
        *(each for each in changes if each.graphql_name in _COMMON_FIELDS),
        Read("type", "String", "The name of the document's type.", attrgetter("type")),
    ]


def proposal_change_fields(model: Model, shape: ObjectTypeInfo) -> list[StrawberryField]:
    """Return the subscriptions to the drafts and the comments of an entity."""
    return [
        _changes_field(
            model,
            {shape.name: shape},
            "drafts",
            f"{shape.entity.singular}DraftChanges",
            f"{shape.name}DraftChange!",
            f"All proposals of {with_article(shape.name)} and all decisions about them, in order, "
            "each exactly once.",
            _DOCUMENT_ID,
            DRAFT_WHERE,
        ),
        _changes_field(
            model,
            {shape.name: shape},
            "comments",
            f"{shape.entity.singular}CommentChanges",
            "CommentChange!",
            f"All comments on a version or a draft of {with_article(shape.name)}, in order, each "
            "exactly once.",
            _DOCUMENT_ID,
            COMMENT_WHERE,
        ),
    ]


def all_proposal_change_fields(model: Model, shapes: Shapes) -> list[StrawberryField]:
    """Return the subscriptions to the drafts and the comments of all entities, for moderators."""
    of_entities = {each.name: shapes[each.name] for each in model.entities}
    return [
        _changes_field(
            model,
            of_entities,
            "drafts",
            "allDraftChanges",
            "DraftChange!",
            "All proposals and all decisions about them, of all types that the caller may read, in "
            "order, each exactly once.",
            DRAFT_WHERE,
        ),
        _changes_field(
            model,
            of_entities,
            "comments",
            "allCommentChanges",
            "CommentChange!",
            "All comments on documents of all types that the caller may read, in order, each "
            "exactly once.",
            COMMENT_WHERE,
        ),
    ]


def _changes_field(
    model: Model,
    shapes: Shapes,
    kind: ProposalKind,
    name: str,
    type_: str,
    description: str,
    *arguments: Argument,
) -> StrawberryField:
    def resolve(
        _root: None,
        info: ResolveInfo,
        document_id: str | None = None,
        where: Mapping[str, Any] | None = None,
        after: str | None = None,
    ) -> AsyncGenerator[ProposalChangeRecord]:
        context = info.context
        if context.position is not None and context.position.after is not None:
            # The client resumes: its original starting point is before this token.
            after = context.position.after
        documents: Sequence[Any] = ()
        if document_id is not None:
            (shape,) = shapes.values()
            documents = ids_shown_as(shape.entity, stored_id(shape, document_id))
        request = ProposalRequest(
            kind=kind,
            entities=_readable_entities(info, shapes, check=_DOCUMENT_ID in arguments),
            documents=documents,
            where=draft_condition(model, _FILTER_TYPES[kind], where) if where else None,
            after=None if after is None else context.token_in(after),
            caller=context.owner,
        )
        if request.where is not None:
            refuse_patterns(request.where)
        context.subscription_filters.check(context.owner, where)
        # Not a generator itself, so that invalid arguments raise before the stream starts.
        return _stream_changes(shapes, info, request, where)

    return Resolve(name, type_, description, resolve, (*arguments, _AFTER), stream=True)


def _readable_entities(info: ResolveInfo, shapes: Shapes, *, check: bool) -> Sequence[Entity]:
    """Return the entities that the caller may read.

    Args:
        info: graphql-core's info of the field.
        shapes: object types of the entities of the subscription, by name.
        check: raise an error for an entity that the caller may not read.
    """
    scope = info.context.scope
    entities = [each.entity for each in shapes.values()]
    for each in entities if check else ():
        scope.check_shown(each)
    return [each for each in entities if scope.may_read_entity(each)]


async def _stream_changes(
    shapes: Shapes,
    info: ResolveInfo,
    request: ProposalRequest,
    where: Mapping[str, Any] | None,
) -> AsyncGenerator[ProposalChangeRecord]:
    context = info.context
    OPERATION.set(SubscriptionOperation(context.owner))
    resumption = Resumption(context, None)
    filters = context.subscription_filters.hold(context.owner, where)
    with filters, TrackedSubscription(context, info.field_name) as tracked:
        changes = context.services.proposals.changes(
            request, shutdown=tracked.shutdown, begun=resumption.begin
        )
        try:
            async with aclosing(changes) as opened:
                async for change in opened:
                    resumption.reach(change.token)
                    shape = None if change.entity is None else shapes[change.entity.name]
                    yield ProposalChangeRecord(shape, change)
        except RESUMABLE_ERRORS as exc:
            end, last = resumption.end(exc), resumption.token
            if end.resubscribe and last:
                yield ProposalChangeRecord(None, ProposalChange(kind="CHECKPOINT", token=last))
            raise end from exc
