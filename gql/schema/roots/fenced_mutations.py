"""Mutations of entities with a fence field: apply one event, or a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.roots.node import stored_id
from revstream.gql.schema.roots.write_field import ID, document_argument, write_field
from revstream.gql.schema.roots.write_result import AppliedRecord
from revstream.model.definition import Entity, Model
from revstream.model.naming import upper_first
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.fenced_upsert import parse_event
from revstream.resolvers.mutations.result import Author, InvalidDocument, Written

__all__ = ["applied_type_name", "fenced_mutation_fields"]

_MAX_EVENTS = 10_000


def applied_type_name(entity: Entity) -> str:
    """Return the name of the result type of a batch, for instance `ProductsApplied`."""
    return f"{upper_first(entity.plural)}Applied"


def fenced_mutation_fields(model: Model, shape: ObjectTypeInfo) -> list[StrawberryField]:
    """Return the mutations that apply events; an entity without a fence field has none."""
    if shape.entity.fence is None:
        return []
    return [_apply_field(model, shape), _apply_batch_field(model, shape)]


def _apply_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    async def write(info: ResolveInfo, author: Author, arguments: Mapping[str, Any]) -> Written:
        info.context.scope.check_content(shape.entity, arguments["document"])
        document = parse_event(model, shape.entity, arguments["document"])
        key = stored_id(shape, arguments["id"])
        return await info.context.services.editing.fences.apply(shape.entity, key, document, author)

    fence = shape.entity.fence
    assert fence is not None
    return write_field(
        f"apply{shape.name}",
        shape,
        f"Set the state of the document, if its `{fence.name}` is higher than the one already "
        "applied. Events may arrive in any order and may be repeated.",
        write,
        ID,
        *document_argument(shape),
    )


def _apply_batch_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    entity = shape.entity
    name = f"apply{upper_first(entity.plural)}"

    async def resolve(
        _root: None, info: ResolveInfo, events: Sequence[Mapping[str, Any]]
    ) -> AppliedRecord:
        if len(events) > _MAX_EVENTS:
            raise BadUserInput(
                f"events: {len(events):,}, maximum is {_MAX_EVENTS:,}; send several batches",
                argument="events",
            )
        author = info.context.author_of(info, {"events": events})
        parsed = []
        for place, event in enumerate(events):
            info.context.scope.check_content(entity, event["document"])
            try:
                document = parse_event(model, entity, event["document"])
            except InvalidDocument as exc:
                raise BadUserInput(
                    f"events.{place}.document.{exc.path}: {exc.message}", argument="events"
                ) from exc
            parsed.append((stored_id(shape, event["id"]), document))
        applied = await info.context.services.editing.fences.apply_each(entity, parsed, author)
        info.context.clear_loaded()
        return AppliedRecord(applied)

    return Resolve(
        name,
        f"{applied_type_name(entity)}!",
        "Apply many events with one command, in any order. Of several events of one document, only "
        "the newest is applied.",
        resolve,
        (Argument("events", f"[{shape.name}Event!]!", "The events."),),
    )
