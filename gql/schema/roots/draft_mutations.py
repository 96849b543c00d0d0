"""Mutations of drafts and comments: propose, publish, reject, comment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.common.document_inputs import has_input
from revstream.gql.schema.entities.comments import CommentRecord
from revstream.gql.schema.entities.drafts import DraftWrittenRecord
from revstream.gql.schema.roots.node import run_with_id
from revstream.gql.schema.roots.write_field import COMMENT, ID, document_argument, write_field
from revstream.gql.schema.roots.write_result import RefusedRecord
from revstream.model.definition import Model
from revstream.resolvers.current.stored_ids import RecordKind
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.document_input import new_id, parse_change, parse_document
from revstream.resolvers.mutations.result import Author, WriteRefused, Written

__all__ = ["draft_mutation_fields"]

Propose = Callable[[ResolveInfo, Author, Mapping[str, Any]], Awaitable[Draft]]

_DRAFT_NUMBER = Argument("draft", "Int!", "The number of the draft.")


def draft_mutation_fields(model: Model, shape: ObjectTypeInfo) -> list[StrawberryField]:
    """Return the mutations of an entity's drafts and comments."""
    proposing = (
        [_propose_field(model, shape), _propose_new_field(model, shape)] if has_input(shape) else []
    )
    return [*proposing, _publish_field(shape), _reject_field(shape), _comment_field(shape)]


def _propose_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def propose(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Draft:
        if arguments.get("based_on") is not None and arguments.get("based_on_draft") is not None:
            raise BadUserInput("arguments basedOn and basedOnDraft: got both, expected at most one")
        info.context.scope.check_content(shape.entity, arguments["patch"], merges=True)
        change = parse_change(model, shape.entity, arguments["patch"])
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: info.context.services.editing.drafts.propose(
                shape.entity,
                key,
                change,
                author,
                based_on=arguments.get("based_on"),
                based_on_draft=arguments.get("based_on_draft"),
            ),
            "drafts",
        )

    return _draft_writing_field(
        f"propose{shape.name}",
        shape,
        "Propose a change: create a draft, which becomes a version when it is published.",
        propose,
        ID,
        Argument(
            "basedOn",
            "Int",
            "The number of the version on which the draft is based. "
            "Default: the current version, if `basedOnDraft` is not set either.",
        ),
        Argument("basedOnDraft", "Int", "The number of the draft on which the new one is based."),
        Argument("patch", f"{shape.name}Patch!", "The proposed changes."),
    )


def _propose_new_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def propose(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Draft:
        entity = shape.entity
        info.context.scope.check_content(entity, arguments.get("document"))
        document = parse_document(model, entity, arguments.get("document") or {})
        key = new_id(entity, arguments.get("id"))
        return await info.context.services.editing.drafts.propose_new(
            entity, {"_id": key, **document}, author
        )

    return _draft_writing_field(
        f"proposeNew{shape.name}",
        shape,
        "Propose a new document: create a draft, which is inserted when it is published.",
        propose,
        Argument("id", "ID", "The id of the new document; default: a generated id."),
        *document_argument(shape),
    )


def _reject_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def reject(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Draft:
        drafts = info.context.services.editing.drafts
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: drafts.reject(shape.entity, key, arguments["draft"], author),
            "drafts",
        )

    return _draft_writing_field(
        f"reject{shape.name}", shape, "Reject a draft.", reject, ID, _DRAFT_NUMBER
    )


def _comment_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo, id: str, **arguments: Any) -> CommentRecord:
        author = info.context.author_of(info, {"id": id, **arguments})
        comments = info.context.services.editing.comments
        comment = await run_with_id(
            info,
            shape,
            id,
            lambda key: comments.add(shape.entity, key, author=author, **arguments),
            _subject_kind(arguments),
            missing=BadUserInput,
        )
        info.context.clear_loaded()
        return CommentRecord(shape, comment)

    return Resolve(
        f"commentOn{shape.name}",
        "Comment!",
        "Comment on a version or a draft, without creating a version.",
        resolve,
        (
            ID,
            Argument("version", "Int", "The number of the version that the comment is about."),
            Argument("draft", "Int", "The number of the draft that the comment is about."),
            Argument(
                "replyTo",
                "ID",
                "The id of the comment to reply to; the reply is about the same version or draft.",
            ),
            Argument("text", "String!", "The text of the comment."),
        ),
    )


def _subject_kind(arguments: Mapping[str, Any]) -> RecordKind:
    """Return the kind of record that a new comment refers to."""
    if arguments.get("reply_to") is not None:
        return "comments"
    return "versions" if arguments.get("draft") is None else "drafts"


def _publish_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        publishing = info.context.services.editing.publishing
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: publishing.publish(shape.entity, key, arguments["draft"], author),
            "drafts",
        )

    return write_field(
        f"publish{shape.name}",
        shape,
        "Publish a draft as the next version, together with the drafts on which it is based. "
        "Returns a conflict if the same fields were changed in the meantime.",
        write,
        ID,
        _DRAFT_NUMBER,
    )


def _draft_writing_field(
    name: str, shape: ObjectTypeInfo, description: str, propose: Propose, *definitions: Argument
) -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo, **arguments: Any) -> Any:
        author = info.context.author_of(info, arguments)
        try:
            return DraftWrittenRecord(shape, await propose(info, author, arguments))
        except WriteRefused as exc:
            return RefusedRecord(shape, exc)
        finally:
            info.context.clear_loaded()

    return Resolve(name, f"{shape.name}Proposal!", description, resolve, (*definitions, COMMENT))
