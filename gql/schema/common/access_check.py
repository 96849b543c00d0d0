"""Access checks of fields that require a role: they run before the field is resolved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo

__all__ = ["check_field_access", "require_read_access"]


def check_field_access(shape: ObjectTypeInfo, field: StrawberryField) -> StrawberryField:
    """Return the field of a document, with a check if the model restricts who may read it."""
    member = shape.guarded.get(field.graphql_name or "")
    if member is None:
        return field
    return _with_check(field, lambda info: info.context.scope.check_read(shape.type, member))


def require_read_access(shape: ObjectTypeInfo, field: StrawberryField) -> StrawberryField:
    """Return a field of a mutation's result that only callers with read access can select.

    A caller may have the right to write an entity without the right to read it.
    """
    access = shape.type.access
    if access is None or access.read is None:
        return field
    return _with_check(field, lambda info: info.context.scope.check_shown(shape.entity))


def _with_check(field: StrawberryField, check: Callable[[ResolveInfo], None]) -> Resolve:
    assert isinstance(field, Read | Resolve)
    assert field.graphql_name is not None

    def resolve(source: Any, info: ResolveInfo, **arguments: Any) -> Any:
        check(info)
        if isinstance(field, Read):
            return field.read(source)
        return field.resolve(source, info, **arguments)

    declared = field.declared if isinstance(field, Resolve) else ()
    return Resolve(field.graphql_name, field.type_text, field.description, resolve, declared)
