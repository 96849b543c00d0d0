"""Type `Mutation`: all writes of each entity, and saved cursors."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.common.document_inputs import has_counters, has_input
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.roots.draft_mutations import draft_mutation_fields
from revstream.gql.schema.roots.fenced_mutations import fenced_mutation_fields
from revstream.gql.schema.roots.node import run_with_id
from revstream.gql.schema.roots.write_field import EXPECTED, ID, document_argument, write_field
from revstream.model.definition import Model
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.document_input import new_id, parse_change, parse_document
from revstream.resolvers.mutations.result import Author, Written
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate

__all__ = ["define_mutation"]


def define_mutation(types: Types, model: Model, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the type `Mutation`."""
    fields: list[StrawberryField] = []
    for entity in model.entities:
        shape = shapes[entity.name]
        fields.append(_create_field(model, shape))
        if has_input(shape):
            fields += [_update_field(model, shape), _replace_field(model, shape)]
        fields += [_delete_field(shape), _restore_field(shape)]
        fields += draft_mutation_fields(model, shape)
        fields += fenced_mutation_fields(model, shape)
    types.add_object(
        "Mutation",
        [*fields, _save_cursor_field(), _remove_cursor_field()],
        "All writes. A request with the header `Idempotency-Key`, or with `idempotencyKey` in its "
        "`extensions`, can be sent again without being executed again.",
    )


def _create_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        entity, id_ = shape.entity, arguments.get("id")
        key = new_id(entity, id_)
        info.context.scope.check_content(entity, arguments.get("document"))
        document = parse_document(model, entity, arguments.get("document") or {})
        return await info.context.services.editing.writes.create(
            entity, key, document, author, fresh=id_ is None
        )

    return write_field(
        f"create{shape.name}",
        shape,
        "Insert a document.",
        write,
        Argument("id", "ID", "The id of the new document; default: a generated id."),
        *document_argument(shape),
    )


def _update_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        scope = info.context.scope
        scope.check_content(shape.entity, arguments.get("patch"), merges=True)
        scope.check_increment(shape.entity, arguments.get("increment"))
        change = parse_change(
            model, shape.entity, arguments.get("patch"), arguments.get("increment")
        )
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: info.context.services.editing.writes.alter(
                shape.entity,
                key,
                DocumentUpdate.update(change),
                arguments.get("expected_version"),
                author,
            ),
        )

    increment = Argument("increment", f"{shape.name}Increment", "Numbers to add, atomically.")
    return write_field(
        f"update{shape.name}",
        shape,
        "Change some fields of a document.",
        write,
        ID,
        EXPECTED,
        Argument("patch", f"{shape.name}Patch", "The changes."),
        *([increment] if has_counters(shape) else []),
    )


def _replace_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        scope = info.context.scope
        scope.check_content(shape.entity, arguments["document"])
        document = parse_document(model, shape.entity, arguments["document"])
        writable = scope.writable(shape.entity)
        # A field that stays could be one of the other type, which more callers may read.
        same_type = len(writable.member_fields) < len(shape.entity.member_fields)
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: info.context.services.editing.writes.alter(
                shape.entity,
                key,
                DocumentUpdate.replacement(writable, document, same_type=same_type),
                arguments.get("expected_version"),
                author,
            ),
        )

    return write_field(
        f"replace{shape.name}",
        shape,
        "Replace the content of a document. Fields that the model does not have stay.",
        write,
        ID,
        EXPECTED,
        *document_argument(shape),
    )


def _delete_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        expected, writes = arguments.get("expected_version"), info.context.services.editing.writes
        return await run_with_id(
            info,
            shape,
            arguments["id"],
            lambda key: writes.delete(shape.entity, key, expected, author),
        )

    return write_field(
        f"delete{shape.name}",
        shape,
        "Delete a document. Its history stays, and it can be restored.",
        write,
        ID,
        EXPECTED,
    )


def _restore_field(shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        editing = info.context.services.editing
        version, draft = arguments.get("version"), arguments.get("draft")
        if (version is None) == (draft is None):
            got = "neither" if version is None else "both"
            raise BadUserInput(f"arguments version and draft: got {got}, expected exactly one")
        entity, expected = shape.entity, arguments.get("expected_version")

        def restored(key: Any) -> Awaitable[Written]:
            if draft is not None:
                return editing.publishing.restore(entity, key, draft, expected, author)
            assert version is not None
            return editing.restoring.restore(entity, key, version, expected, author)

        return await run_with_id(
            info, shape, arguments["id"], restored, "versions" if draft is None else "drafts"
        )

    return write_field(
        f"restore{shape.name}",
        shape,
        "Create a version with the content of an old version, or of a draft that was rejected or "
        "overtaken. It restores deleted documents, too.",
        write,
        ID,
        Argument("version", "Int", "The number of the old version."),
        Argument("draft", "Int", "The number of the draft; it requires a role that may publish."),
        EXPECTED,
    )


def _save_cursor_field() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo, name: str, token: str) -> str:
        context = info.context
        await context.services.editing.cursors.save(context.owner, name, context.token_in(token))
        return token

    return Resolve(
        "saveCursor",
        "ResumeToken!",
        "Store a resume token on the server, under a name of the caller. A subscription with "
        "`cursor` resumes after it. It is deleted when it was not used for a year.",
        resolve,
        (
            Argument("name", "String!", "The name: 1 to 255 characters."),
            Argument(
                "token", "ResumeToken!", "The resume token of the last event that was handled."
            ),
        ),
    )


def _remove_cursor_field() -> StrawberryField:
    async def resolve(_root: None, info: ResolveInfo, name: str) -> bool:
        there: bool = await info.context.services.editing.cursors.remove(info.context.owner, name)
        return there

    return Resolve(
        "removeCursor",
        "Boolean!",
        "Remove a saved cursor of the caller; false if it did not exist.",
        resolve,
        (Argument("name", "String!", "The name of the cursor."),),
    )
