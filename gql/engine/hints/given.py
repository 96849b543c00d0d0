"""Values of a request as hints read and write them: literals of a document, JSON of variables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from graphql import (
    EnumValueNode,
    GraphQLError,
    GraphQLInputType,
    GraphQLSchema,
    ListValueNode,
    ObjectValueNode,
    StringValueNode,
    TypeNode,
    ValueNode,
    VariableNode,
    print_ast,
    type_from_ast,
)
from graphql.utilities import validate_input_literal, validate_input_value

__all__ = ["ELLIPSIS", "Given", "JsonValue", "Literal"]

ELLIPSIS = "…"
"""A value that a hint leaves out."""

_LONGEST = 60


class Given(ABC):
    """A value that a request gives, and the notation in which a hint about it is written.

    Attributes:
        fields: of an object; None for other values.
        items: of a list; None for other values.
        word: text, or the name of an enum value; None for other values.
    """

    fields: Mapping[str, Given] | None = None
    items: Sequence[Given] | None = None
    word: str | None = None

    @property
    @abstractmethod
    def text(self) -> str:
        """The value as the request may have it; an ellipsis for a long one."""

    @abstractmethod
    def fits(self, type_: GraphQLInputType) -> bool:
        """Return whether the value is valid for a type."""

    @abstractmethod
    def write_enum(self, name: str) -> str:
        """Write an enum value."""

    @abstractmethod
    def write_object(self, fields: Mapping[str, str]) -> str:
        """Write an object of written values."""

    def write_list(self, items: Sequence[str]) -> str:
        """Write a list of written values."""
        return f"[{', '.join(items)}]"


class Literal(Given):
    """A literal of the document, or a variable in its place.

    Args:
        declared: the type of the variable, as the operation declares it.
    """

    def __init__(
        self, node: ValueNode, schema: GraphQLSchema, declared: TypeNode | None = None
    ) -> None:
        self._node = node
        self._schema = schema
        self._declared = declared
        if isinstance(node, ObjectValueNode):
            self.fields = {each.name.value: Literal(each.value, schema) for each in node.fields}
        elif isinstance(node, ListValueNode):
            self.items = [Literal(each, schema) for each in node.values]
        elif isinstance(node, StringValueNode | EnumValueNode):
            self.word = node.value

    @property
    def text(self) -> str:
        place = self._node.loc
        # Printing a long literal takes long.
        if place is None or place.end - place.start > _LONGEST:
            return ELLIPSIS
        return _short(print_ast(self._node))

    def fits(self, type_: GraphQLInputType) -> bool:
        if isinstance(self._node, VariableNode) and self._declared is not None:
            declared = type_from_ast(self._schema, self._declared)
            # By name: each list type is an object of its own.
            return str(declared).rstrip("!") == str(type_).rstrip("!")
        errors: list[GraphQLError] = []
        validate_input_literal(self._node, type_, lambda error, path: errors.append(error))
        return not errors

    def write_enum(self, name: str) -> str:
        return name

    def write_object(self, fields: Mapping[str, str]) -> str:
        inside = ", ".join(f"{name}: {value}" for name, value in fields.items())
        return f"{{ {inside} }}"


class JsonValue(Given):
    """A value of a variable, or inside of one."""

    def __init__(self, value: Any) -> None:
        self._value = value
        if isinstance(value, Mapping):
            self.fields = {name: JsonValue(each) for name, each in value.items()}
        elif isinstance(value, list):
            self.items = [JsonValue(each) for each in value]
        elif isinstance(value, str):
            self.word = value

    @property
    def text(self) -> str:
        return _short(json.dumps(self._value, ensure_ascii=False, default=str))

    def fits(self, type_: GraphQLInputType) -> bool:
        errors: list[GraphQLError] = []
        validate_input_value(self._value, type_, lambda error, path: errors.append(error))
        return not errors

    def write_enum(self, name: str) -> str:
        return json.dumps(name)

    def write_object(self, fields: Mapping[str, str]) -> str:
        inside = ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields.items())
        return f"{{{inside}}}"


def _short(text: str) -> str:
    # Block strings have several lines.
    return ELLIPSIS if len(text) > _LONGEST or "\n" in text else text
