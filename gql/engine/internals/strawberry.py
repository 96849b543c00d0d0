"""Undocumented members of Strawberry, behind plain names.

Two modules extend classes of Strawberry as a whole, and own their members:
`gql.schema.common.type_builder` defines types at run time, `gql.endpoint.websocket` handles
sockets. `gql.endpoint.http` has one hook of the view.
Source: docs/contributing/private-interfaces.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from graphql import (
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLResolveInfo,
    GraphQLSchema,
)
from strawberry.http.websocket_origin import normalize_allowed_origins
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.schema.validation_rules.maybe_null import MaybeNullValidationRule
from strawberry.schema.validation_rules.one_of import OneOfInputValidationRule
from strawberry.types.field import StrawberryField
from strawberry.types.info import Info

__all__ = [
    "VALIDATION_RULES",
    "FieldInfo",
    "FunctionField",
    "StrawberryExecutor",
    "definition_of_field",
    "graphql_schema",
    "is_one_of",
    "normalize_allowed_origins",
    "requested_operation",
    "strawberry_schema",
]

VALIDATION_RULES = (MaybeNullValidationRule, OneOfInputValidationRule)
"""The rules that Strawberry adds to those of graphql-core."""

StrawberryExecutor = StrawberryGraphQLCoreExecutionContext
"""Strawberry's subclass of graphql-core's executor."""


class FieldInfo(Info[Any, Any]):
    """Strawberry's Info with graphql-core's info, which has the syntax tree."""

    @property
    def graphql(self) -> GraphQLResolveInfo[Any]:
        return self._raw_info


class FunctionField(StrawberryField, ABC):
    """Field whose value a method returns.

    Attributes:
        takes_info: False for a value that is in the source: the method gets no info and no
            arguments.
    """

    takes_info = True

    @abstractmethod
    def value(self, source: Any, info: FieldInfo | None, arguments: Mapping[str, Any]) -> Any:
        """Return the field's value, or an awaitable of it."""

    @property
    def is_basic_field(self) -> bool:
        return not self.takes_info

    def get_result(self, source: Any, info: Any, args: Any, kwargs: Any) -> Any:
        return self.value(source, info, kwargs)


def graphql_schema(schema: Any) -> GraphQLSchema:
    """Return graphql-core's schema of a Strawberry schema."""
    found: GraphQLSchema = schema._schema
    return found


def strawberry_schema(schema: Any) -> Any:
    """Return the Strawberry schema of a graphql-core schema."""
    return schema._strawberry_schema


def definition_of_field(field: GraphQLField | GraphQLInputField) -> Any:
    """Return the `StrawberryField` of a graphql-core field; None for fields of introspection."""
    return field.extensions.get("strawberry-definition")


def is_one_of(type_: GraphQLInputObjectType) -> bool:
    """Return whether an input takes exactly one of its fields; graphql-core does not know it."""
    definition = type_.extensions.get("strawberry-definition")
    return definition is not None and definition.is_one_of


def requested_operation(context: Any) -> str | None:
    """Return the operation name of a request, before Strawberry has chosen an operation."""
    name: str | None = context._provided_operation_name
    return name
