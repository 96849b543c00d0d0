"""Fields of the API that not everyone may read: refused before anything of them is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo

__all__ = ["guarded_member", "shown_to_readers"]


def guarded_member(shape: ObjectTypeInfo, field: StrawberryField) -> StrawberryField:
    """A field of a document, as the model says who may read it."""
    member = shape.guarded.get(field.graphql_name or "")
    if member is None:
        return field
    return _guarded(field, lambda info: info.context.scope.check_read(shape.type, member))


def shown_to_readers(shape: ObjectTypeInfo, field: StrawberryField) -> StrawberryField:
    """What a write answers with: for whoever may read the entity, too."""
    access = shape.type.access
    if access is None or access.read is None:
        return field
    return _guarded(field, lambda info: info.context.scope.check_shown(shape.entity))


def _guarded(field: StrawberryField, check: Callable[[ResolveInfo], None]) -> Resolve:
    assert isinstance(field, Read | Resolve)
    assert field.graphql_name is not None

    def resolve(source: Any, info: ResolveInfo, **given: Any) -> Any:
        check(info)
        if isinstance(field, Read):
            return field.read(source)
        return field.resolve(source, info, **given)

    arguments = field.declared if isinstance(field, Resolve) else ()
    return Resolve(field.graphql_name, field.type_text, field.description, resolve, arguments)
