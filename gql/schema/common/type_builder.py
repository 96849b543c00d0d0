"""Make Strawberry types at run time, written down as GraphQL writes them: `"[ProductOrder!]"`.

A type may name others that are made later; names are looked up when the schema is put together.
Strawberry's decorators read classes and annotations, which a model read at run time has none of;
its definitions, which the decorators make, are made here directly, as Strawberry's own integrations
do.
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
    """All types of one schema, by name."""

    def __init__(self, scalars: Mapping[str, object], naming: Naming = DEFAULT_NAMING) -> None:
        """Args:
        scalars: by GraphQL name, what Strawberry knows them as.
        naming: of the fields that identify objects.
        """
        self.naming = naming
        self._types: dict[str, Any] = dict(scalars)
        self._interfaces: list[tuple[StrawberryObjectDefinition, Sequence[str]]] = []

    def add_enum(
        self, name: str, values: Mapping[str, str | None], description: str | None
    ) -> None:
        """Args:
        values: each with its description. A value is plain text, inside as in the API.
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
        """What is returned for it has an attribute `type_name`, the name of its object type."""
        self._define(name, fields, description, interfaces, is_interface=True)

    def add_object(
        self,
        name: str,
        fields: Iterable[StrawberryField],
        description: str | None,
        interfaces: Sequence[str] = (),
    ) -> None:
        self._define(name, fields, description, interfaces)

    def add_input(
        self,
        name: str,
        fields: Iterable[InputField],
        description: str | None,
        *,
        one_of: bool = False,
    ) -> None:
        """Functions are given a dict by API names, with what was given and nothing else."""
        typed = [
            self._typed(
                StrawberryField(
                    python_name=each.name, graphql_name=each.name, description=each.description
                ),
                each.type,
            )
            for each in fields
        ]
        self._define(name, typed, description, (), is_input=True, one_of=one_of)

    def add_union(self, name: str, members: Sequence[str], description: str | None) -> None:
        """What is returned for it has an attribute `type_name`, the name of one of its members."""
        annotations = tuple(_NamedType(self, f"{each}!") for each in members)
        self._add(name, _Union(name=name, type_annotations=annotations, description=description))

    def finish(self) -> list[Any]:
        """Every type, once all are made, for the schema."""
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
        """What Strawberry calls the type that GraphQL writes so.

        Raises:
            KeyError: a name that no type has.
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
            # Every source is made for the type that it is returned for, so there is nothing to find
            # out.
            is_type_of=None if is_interface or is_input else _always,
            resolve_type=_type_name if is_interface else None,
            fields=[],
            from_input=_same_value if is_input else None,
        )
        # Not above: the definition looks at the types of its fields, which may be made later than
        # this one.
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
            raise ValueError(f"two types of the API would be named {name}")
        self._types[name] = type_


class _NamedType(StrawberryAnnotation):
    """A type by its text, looked up when it is first asked for."""

    __slots__ = ("_types",)

    def __init__(self, types: Types, text: str) -> None:
        super().__init__(text)
        self._types = types

    def evaluate(self) -> Any:
        return self._types.type(str(self.raw_annotation))


class _Union(StrawberryUnion):
    """Told apart by what is returned, not by its Python class."""

    def get_type_resolver(self, type_map: Any) -> Any:
        return _type_name


class _PlainText:
    """Stands for the Python enum that Strawberry would make input values members of: they stay
    text."""

    def __new__(cls, value: str) -> Any:
        return value


# Scalars that graphql-core adds by itself.
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
