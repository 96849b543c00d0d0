"""Number of conditions in the filters of an operation, counted before the filters are parsed.

A condition is one operator with its operand. An `in` list is one condition, whatever its length:
the limits of lists apply to it. Nothing recurses, and the contents of a variable are counted once,
however many arguments use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLInputType,
    GraphQLSchema,
    ListTypeNode,
    ListValueNode,
    NonNullTypeNode,
    ObjectValueNode,
    OperationDefinitionNode,
    TypeNode,
    ValueNode,
    VariableNode,
    get_named_type,
    is_input_object_type,
)

from revstream.gql.engine.definitions.field import follows_reference

__all__ = ["FilterConditions", "count_conditions"]

_SETS = frozenset({"in", "notIn", "hasSome"})
"""Operators with a list that is one condition: MongoDB looks it up as a set."""

_PATTERN, _PATTERN_WEIGHT = "matches", 10
"""Operator with a regular expression, and the conditions as which it counts."""


def count_conditions(value: object, *, values_each: int = 0) -> int:
    """Return the number of conditions in a filter in its JSON form.

    Args:
        values_each: the number of list values that count as one more condition; 0: none.
    """
    count = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            for name, inner in each.items():
                if name == _PATTERN and isinstance(inner, str):
                    count += _PATTERN_WEIGHT - 1
                if name in _SETS and isinstance(inner, list):
                    count += 1 + (len(inner) // values_each if values_each else 0)
                else:
                    waiting.append(inner)
        elif isinstance(each, list):
            waiting += each
        # An object without fields takes time as well.
        if not each or not isinstance(each, Mapping | list):
            count += 1
    return count


class FilterConditions:
    """Condition counts of one operation's filters, with its variables.

    Attributes:
        varied: a variable was counted that may have another content in the next request.
    """

    def __init__(
        self, schema: GraphQLSchema, document: DocumentNode, variables: Mapping[str, Any]
    ) -> None:
        self.varied = False
        self._variables = variables
        self._counts: dict[str, int] = {}
        self._defaults: dict[str, list[ValueNode]] = {}
        # A variable of one scalar is one condition, whatever its value.
        self._plain: set[str] = set()
        for definition in document.definitions:
            if not isinstance(definition, OperationDefinitionNode):
                continue
            for each in definition.variable_definitions or ():
                name = each.variable.name.value
                if each.default_value is not None:
                    self._defaults.setdefault(name, []).append(each.default_value)
                if _is_plain(schema, each.type):
                    self._plain.add(name)

    def references(self, type_: GraphQLInputType, value: ValueNode) -> int:
        """Return the number of references in a filter: each reads documents of another type.

        Args:
            type_: the type of the argument.
        """
        count = 0
        waiting: list[tuple[Any, Any]] = [(get_named_type(type_), value)]
        while waiting:
            kind, each = waiting.pop()
            if isinstance(each, VariableNode):
                name = each.name.value
                waiting += [(kind, default) for default in self._defaults.get(name, ())]
                each = self._variables.get(name)
            pairs: Iterable[tuple[str, Any]] = ()
            if isinstance(each, ObjectValueNode):
                pairs = [(field.name.value, field.value) for field in each.fields]
            elif isinstance(each, Mapping):
                pairs = each.items()
            elif isinstance(each, ListValueNode):
                waiting += [(kind, item) for item in each.values]
            elif isinstance(each, list):
                waiting += [(kind, item) for item in each]
            for name, inner in pairs:
                field = getattr(kind, "fields", {}).get(name)
                if field is not None and is_input_object_type(get_named_type(field.type)):
                    count += follows_reference(field)
                    waiting.append((get_named_type(field.type), inner))
        return count

    def count(self, value: ValueNode) -> int:
        """Return the number of conditions in a filter in its document form."""
        count = 0
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, VariableNode):
                count += self._in_variable(each.name.value)
            elif isinstance(each, ObjectValueNode) and each.fields:
                for field in each.fields:
                    # A field with the operator's name has an object.
                    if field.name.value == _PATTERN and not isinstance(
                        field.value, ObjectValueNode
                    ):
                        count += _PATTERN_WEIGHT - 1
                    if field.name.value in _SETS:
                        count += 1
                    else:
                        waiting.append(field.value)
            elif isinstance(each, ListValueNode) and each.values:
                waiting += each.values
            else:
                count += 1
        return count

    def _in_variable(self, name: str) -> int:
        if name in self._plain:
            return 1
        self.varied = True
        found = self._counts.get(name)
        if found is None:
            # A default that names a variable is refused by validation.
            self._counts[name] = found = 1
            if name in self._variables:
                found = count_conditions(self._variables[name])
            elif name in self._defaults:
                found = max(map(self.count, self._defaults[name]))
            self._counts[name] = found
        return found


def _is_plain(schema: GraphQLSchema, type_: TypeNode) -> bool:
    if isinstance(type_, NonNullTypeNode):
        type_ = type_.type
    if isinstance(type_, ListTypeNode):
        return False
    return not is_input_object_type(schema.type_map.get(type_.name.value))  # type: ignore[attr-defined]
