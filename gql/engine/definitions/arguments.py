"""Compiled arguments of a field.

graphql-core visits every field of an input type for each request; here this is done once. Cases
that are not covered, as a variable without a value, are left to graphql-core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from graphql import (
    GraphQLField,
    GraphQLInputObjectType,
    ListValueNode,
    NullValueNode,
    ObjectValueNode,
    Undefined,
    ValueNode,
    VariableNode,
    get_nullable_type,
    is_input_object_type,
    is_list_type,
    is_non_null_type,
)
from graphql.utilities import coerce_input_literal

from revstream.gql.engine.definitions.field import Resolve
from revstream.gql.engine.internals.graphql_core import coerce_arguments

__all__ = ["Arguments", "CoercedVariables", "compile_arguments"]

CoercedVariables: TypeAlias = "Mapping[str, Any]"
"""Coerced variables by name."""
Arguments: TypeAlias = "Callable[[CoercedVariables], dict[str, Any]]"
"""Coerced variables -> keyword arguments of a field's function."""
_Value: TypeAlias = "Callable[[CoercedVariables], Any]"


class _LookCloser(Exception):
    """Signal that graphql-core has to coerce the arguments."""


def compile_arguments(definition: GraphQLField, node: Any, made: Resolve) -> Arguments:
    """Compile the arguments of one selection of a field.

    Args:
        node: the selection of the field.
        made: its definition.
    """
    names = {each.graphql_name: each.python_name for each in made.arguments}

    def looked_at(given: CoercedVariables) -> dict[str, Any]:
        found = coerce_arguments(definition, node, given)
        return {names[each]: value for each, value in found.items()}

    given_nodes = {each.name.value: each.value for each in node.arguments or ()}
    values: dict[str, _Value] = {}
    for name, argument in definition.args.items():
        written = given_nodes.get(name)
        if written is None:
            default = _plain_default(argument)
            if default is not Undefined:
                values[names[name]] = _constant(default)
            elif _has_default(argument):
                return looked_at
            continue
        try:
            values[names[name]] = _value(written, argument.type)
        except _LookCloser:
            return looked_at

    def quick(given: CoercedVariables) -> dict[str, Any]:
        try:
            return {name: value(given) for name, value in values.items()}
        except (KeyError, _LookCloser):
            return looked_at(given)

    return quick


def _has_default(declared: Any) -> bool:
    return declared.default is not None or declared.default_value is not Undefined


def _plain_default(declared: Any) -> Any:
    """Return a default that needs neither coercion nor copying; Undefined otherwise."""
    value = declared.default_value
    return value if declared.default is None and isinstance(value, bool | int) else Undefined


def _constant(value: Any) -> _Value:
    return lambda given: value


def _value(node: ValueNode, type_: Any) -> _Value:
    """Compile one argument value.

    Raises:
        _LookCloser: graphql-core has to coerce it.
    """
    if isinstance(node, VariableNode):
        return _variable(node.name.value, is_non_null_type(type_))
    bare = get_nullable_type(type_)
    if isinstance(node, ObjectValueNode) and is_input_object_type(bare):
        return _object(node, bare)
    if isinstance(node, ListValueNode) and is_list_type(bare):
        items = [_value(each, bare.of_type) for each in node.values]
        return lambda given: [each(given) for each in items]
    if isinstance(node, ObjectValueNode | ListValueNode | NullValueNode) or is_list_type(bare):
        raise _LookCloser
    constant = coerce_input_literal(node, type_)
    if constant is Undefined:
        raise _LookCloser
    return _constant(constant)


def _variable(name: str, required: bool) -> _Value:
    def value(given: CoercedVariables) -> Any:
        found = given[name]
        if found is None and required:
            raise _LookCloser
        return found

    return value


def _object(node: ObjectValueNode, type_: GraphQLInputObjectType) -> _Value:
    if type_.is_one_of or type_.out_type is not GraphQLInputObjectType.out_type:
        raise _LookCloser
    written = {each.name.value: each.value for each in node.fields}
    values: dict[str, _Value] = {}
    for name, field in type_.fields.items():
        if name in written:
            values[field.out_name or name] = _value(written[name], field.type)
        elif _has_default(field):
            raise _LookCloser
    return lambda given: {name: value(given) for name, value in values.items()}
