"""Builder of Strawberry types at run time; field types are GraphQL text: `"[ProductOrder!]"`.

A type may refer to types that are defined later: names are resolved when the schema is built.
Strawberry's decorators read Python classes and annotations, which do not exist for a model that
is loaded at run time. This module creates the definitions that the decorators create, as
Strawberry's own integrations do.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphql import ListTypeNode, NamedTypeNode, NonNullTypeNode, TypeNode
from graphql import parse_type as parse_type_text
from strawberry.annotation import StrawberryAnnotation
from strawberry.schema_directives import OneOf
from strawberry.types.arguments import StrawberryArgument
from strawberry.types.base import StrawberryList, StrawberryObjectDefinition, StrawberryOptional
from strawberry.types.enum import EnumValue, StrawberryEnumDefinition
from strawberry.types.field import StrawberryField
from strawberry.types.union import StrawberryUnion

from revstream.gql.engine.definitions.field import InputField, Read, Resolve
from revstream.gql.schema.common.id_naming import DEFAULT_NAMING, Naming

__all__ = ["Types"]


class Types:
    """Registry of all types of one schema, by name."""

    def __init__(self, scalars: Mapping[str, object], naming: Naming = DEFAULT_NAMING) -> None:
        """Start with the scalars.

        Args:
            scalars: Strawberry's annotation of each scalar, by GraphQL name.
            naming: names of the fields that identify objects.
        """
        self.naming = naming
        self._types: dict[str, Any] = dict(scalars)
        self._interfaces: list[tuple[StrawberryObjectDefinition, Sequence[str]]] = []

    def add_enum(
        self, name: str, values: Mapping[str, str | None], description: str | None
    ) -> None:
        """Define an enum.

        Args:
            name: the GraphQL name.
            values: the description of each value. In Python a value is its name, as a string.
            description: of the enum.
        """
        self._add(
            name,
            StrawberryEnumDefinition(
                wrapped_cls=_PlainText,  # type: ignore[arg-type]
                name=name,
                values=[
                    EnumValue(value, value, description=description_)
                    for value, description_ in values.items()
                ],
                description=description,
            ),
        )

    def add_interface(
        self,
        name: str,
        fields: Iterable[StrawberryField],
        description: str | None,
        interfaces: Sequence[str] = (),
    ) -> None:
        """Define an interface.

        A resolver returns an object with an attribute `type_name`, the name of its object type.
        """
        self._define(name, fields, description, interfaces, is_interface=True)

    def add_object(
        self,
        name: str,
        fields: Iterable[StrawberryField],
        description: str | None,
        interfaces: Sequence[str] = (),
    ) -> None:
        """Define an object type that implements these interfaces."""
        self._define(name, fields, description, interfaces)

    def add_input(
        self,
        name: str,
        fields: Iterable[InputField],
        description: str | None,
        *,
        one_of: bool = False,
    ) -> None:
        """Define an input type.

        A resolver receives a dict by API names that has only the fields of the request.
        """
        typed = [
            self._typed(
                StrawberryField(
                    python_name=each.name,
                    graphql_name=each.name,
                    description=each.description,
                    metadata={"follows": each.follows},
                ),
                each.type,
            )
            for each in fields
        ]
        self._define(name, typed, description, (), is_input=True, one_of=one_of)

    def add_union(self, name: str, members: Sequence[str], description: str | None) -> None:
        """Define a union.

        A resolver returns an object with an attribute `type_name`, the name of a member.
        """
        annotations = tuple(_NamedType(self, f"{each}!") for each in members)
        self._add(name, _Union(name=name, type_annotations=annotations, description=description))

    def finish(self) -> list[Any]:
        """Resolve the interfaces and return all types, after the last one is defined."""
        for definition, names in self._interfaces:
            definition.interfaces.extend(
                self._types[name].__strawberry_definition__ for name in names
            )
        return [
            each
            for name, each in self._types.items()
            if name not in _BUILT_IN and not isinstance(each, _Union)
        ]

    def type(self, text: str) -> Any:
        """Return Strawberry's type for a type in GraphQL text.

        Raises:
            KeyError: no type has this name.
        """
        return self._type_of(parse_type_text(text))

    def __getitem__(self, name: str) -> Any:
        return self._types[name]

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def _type_of(self, node: TypeNode) -> Any:
        if isinstance(node, NonNullTypeNode):
            return self._bare(node.type)
        return StrawberryOptional(self._bare(node))

    def _bare(self, node: TypeNode) -> Any:
        if isinstance(node, ListTypeNode):
            return StrawberryList(self._type_of(node.type))
        assert isinstance(node, NamedTypeNode)
        return self._types[node.name.value]

    def _define(
        self,
        name: str,
        fields: Iterable[StrawberryField],
        description: str | None,
        interfaces: Sequence[str],
        *,
        is_interface: bool = False,
        is_input: bool = False,
        one_of: bool = False,
    ) -> None:
        shell: Any = type(name, (), {})
        shell.__strawberry_definition__ = definition = StrawberryObjectDefinition(
            name=name,
            is_input=is_input,
            is_interface=is_interface,
            origin=shell,
            description=description,
            interfaces=[],
            extend=False,
            directives=(OneOf(),) if one_of else (),
            # A resolver returns a source of the right type, so no check is needed.
            is_type_of=None if is_interface or is_input else _always,
            resolve_type=_type_name if is_interface else None,
            fields=[],
            from_input=_same_value if is_input else None,
        )
        # After the constructor: it reads the types of its fields, which may be defined later.
        definition.fields = [self._with_types(each) for each in fields]
        self._interfaces.append((definition, interfaces))
        self._add(name, shell)

    def _with_types(self, field: StrawberryField) -> StrawberryField:
        if isinstance(field, Read | Resolve):
            self._typed(field, field.type_text)
        if isinstance(field, Resolve):
            field.arguments = [
                StrawberryArgument(
                    python_name=_snake_case(each.name),
                    graphql_name=each.name,
                    type_annotation=_NamedType(self, each.type),
                    description=each.description,
                    default=each.default,
                )
                for each in field.declared
            ]
        return field

    def _typed(self, field: StrawberryField, text: str) -> StrawberryField:
        field.type_annotation = _NamedType(self, text)
        return field

    def _add(self, name: str, type_: object) -> None:
        if name in self._types:
            raise ValueError(f"type {name}: defined twice; rename a type of the model")
        self._types[name] = type_


class _NamedType(StrawberryAnnotation):
    """Annotation with the text of a type, resolved when Strawberry evaluates it."""

    __slots__ = ("_types",)

    def __init__(self, types: Types, text: str) -> None:
        super().__init__(text)
        self._types = types

    def evaluate(self) -> Any:
        return self._types.type(str(self.raw_annotation))


class _Union(StrawberryUnion):
    """Union whose member is chosen by `type_name` of the result, not by its Python class."""

    def get_type_resolver(self, type_map: Any) -> Any:
        return _type_name


class _PlainText:
    """Replacement for a Python enum: Strawberry calls it with an input value, which stays text."""

    def __new__(cls, value: str) -> Any:
        return value


# Scalars that graphql-core adds to each schema.
_BUILT_IN = frozenset({"ID", "String", "Int", "Float", "Boolean"})


def _always(_source: object, _info: object) -> bool:
    return True


def _type_name(source: Any, _info: object, _abstract: object) -> str:
    name: str = source.type_name
    return name


def _same_value(_type: type, value: Mapping[str, Any], _context: object) -> Mapping[str, Any]:
    return value


def _snake_case(name: str) -> str:
    snake = re.sub("([A-Z])", r"_\1", name).lower()
    return snake + "_" if keyword.iskeyword(snake) else snake
