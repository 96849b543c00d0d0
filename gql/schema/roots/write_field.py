"""Fields of `Mutation` that write one document.

The author of a write comes from the request, its reason from the argument `comment`. A refused
write is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.schema.common.document_inputs import has_input
from revstream.gql.schema.roots.write_result import RefusedRecord, WrittenRecord
from revstream.resolvers.mutations.result import Author, WriteRefused, Written
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.driver.codecs import decode

__all__ = ["COMMENT", "EXPECTED", "ID", "Write", "document_argument", "write_field"]

ID = Argument("id", "ID!", "The id of the document.")
COMMENT = Argument("comment", "String", "The reason for the write; stored with the version.")
EXPECTED = Argument(
    "expectedVersion",
    "Int",
    "Write only if the document has this version number; default: any version.",
)

Write = Callable[[ResolveInfo, Author, Mapping[str, Any]], Awaitable[Written]]


def write_field(
    name: str, shape: ObjectTypeInfo, description: str, write: Write, *definitions: Argument
) -> StrawberryField:
    """Return a mutation that writes one document and returns `<Entity>Write`."""

    async def resolve(
        _root: None, info: ResolveInfo, **arguments: Any
    ) -> WrittenRecord | RefusedRecord:
        author = info.context.author_of(info, arguments)
        try:
            written = await write(info, author, arguments)
        except WriteRefused as exc:
            return RefusedRecord(shape, exc)
        finally:
            # Data that was read before this write may be out of date.
            info.context.clear_loaded()
        return await _written_record(info, shape, written)

    return Resolve(name, f"{shape.name}Write!", description, resolve, (*definitions, COMMENT))


async def _written_record(
    info: ResolveInfo, shape: ObjectTypeInfo, written: Written
) -> WrittenRecord:
    number = None
    if _is_number_selected(info, shape):
        number = await info.context.services.editing.writes.made.number(shape.entity, written)
    document = None
    if written.document is not None:
        values = decode(written.document.raw)
        document = CurrentDocument(shape, values, number)
    return WrittenRecord(shape, document, number, resume_tokens.token_from_time(written.at))


def _is_number_selected(info: ResolveInfo, shape: ObjectTypeInfo) -> bool:
    selections = info.context.selections(info)
    selected = selections.under(info.field_nodes, f"{shape.name}Written")
    document = selected.get(shape.entity.singular, ())
    return "version" in selected or selections.selects(document, shape, "version")


def document_argument(shape: ObjectTypeInfo) -> list[Argument]:
    """Return the argument `document`; nothing for an entity that has no input type."""
    if not has_input(shape):
        return []
    return [Argument("document", f"{shape.name}Input!", "The content of the document.")]
