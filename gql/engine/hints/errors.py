"""Errors about a document or its variables, with hints: what to write instead.

Hints are computed only after a request has failed, and from the schema that introspection shows to
every caller. Without introspection there are none, and `remove_guesses` removes graphql-core's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    ListValueNode,
    Node,
    ObjectFieldNode,
    OperationDefinitionNode,
    TypeInfo,
    TypeInfoVisitor,
    ValueNode,
    VariableDefinitionNode,
    VariableNode,
    Visitor,
    get_named_type,
    get_nullable_type,
    is_input_object_type,
    is_list_type,
    type_from_ast,
    visit,
)

from revstream.gql.engine.hints.fields import hint_for_field
from revstream.gql.engine.hints.given import JsonValue, Literal
from revstream.gql.engine.hints.inputs import hint_for_unknown_field, hint_for_value
from revstream.gql.engine.internals.strawberry import is_one_of

__all__ = ["hint_in_document", "hint_in_variables", "remove_guesses"]

# graphql-core's suggestions, which reveal names of the schema.
_GUESS = re.compile(r" Did you mean [^?]*\?")

# graphql-core reports 50 errors of variables, in the order of the mistakes.
_MOST_MISTAKES = 200

_Path: TypeAlias = "tuple[str | int, ...]"


def remove_guesses(errors: Sequence[GraphQLError]) -> None:
    """Remove graphql-core's suggestions from errors, in place."""
    for error in errors:
        error.message = _GUESS.sub("", error.message)


def hint_in_document(
    schema: GraphQLSchema, document: DocumentNode, errors: Sequence[GraphQLError]
) -> None:
    """Add hints to the errors of validation, in place."""
    finder = _Finder(schema, TypeInfo(schema), {_place(each): each for each in errors})
    visit(document, TypeInfoVisitor(finder.types, finder))
    for error in errors:
        hint = finder.hints.get(_place(error))
        if hint is not None:
            error.message = _with_hint(error.message, hint)


def hint_in_variables(
    schema: GraphQLSchema,
    operation: OperationDefinitionNode | None,
    variables: Mapping[str, Any],
    errors: list[GraphQLError],
    *,
    suggests: bool,
) -> None:
    """Add hints to the errors of variables, in place, and names to those without a place.

    Args:
        operation: None if the request names none of the document's.
        suggests: False for names only.
    """
    definitions = (operation and operation.variable_definitions) or ()
    every = chain.from_iterable(_mistakes_of(schema, each, variables) for each in definitions)
    mistakes = list(islice(every, _MOST_MISTAKES))
    for index, error in enumerate(errors):
        found = next((each for each in mistakes if each.is_meant_by(error)), None)
        if found is not None:
            message = error.message if error.nodes else found.start + error.message
            if found.hint is not None and suggests:
                message = _with_hint(message, found.hint)
            errors[index] = GraphQLError(message, found.definition, original_error=error)


def _place(error: GraphQLError) -> int:
    """Return the id of the node that an error is about; 0 if it is about several."""
    match error.nodes:
        case [node] | [VariableDefinitionNode(), VariableNode() as node]:
            return id(node)
    return 0


class _Finder(Visitor):
    """Visitor of a document that finds the hints of erroneous nodes.

    Args:
        places: errors by their `_place`.
    """

    def __init__(
        self, schema: GraphQLSchema, types: TypeInfo, places: Mapping[int, GraphQLError]
    ) -> None:
        super().__init__()
        self.types = types
        self.hints: dict[int, str | None] = {}
        self._schema = schema
        self._places = places

    def enter(self, node: Node, *_args: Any) -> None:
        error = self._places.get(id(node))
        if error is None:
            return
        if isinstance(node, FieldNode):
            if self.types.get_field_def() is None:
                self.hints[id(node)] = hint_for_field(self.types.get_parent_type(), node)
        elif isinstance(node, ObjectFieldNode):
            self.hints[id(node)] = self._of_unknown_field(node)
        elif isinstance(node, ValueNode):
            self.hints[id(node)] = self._of_value(node, error)

    def _of_unknown_field(self, node: ObjectFieldNode) -> str | None:
        parent = get_named_type(self.types.get_parent_input_type())
        if not is_input_object_type(parent) or node.name.value in parent.fields:
            return None
        return hint_for_unknown_field(parent, node.name.value, Literal(node.value, self._schema))

    def _of_value(self, node: ValueNode, error: GraphQLError) -> str | None:
        type_, parent = self.types.get_input_type(), self.types.get_parent_input_type()
        if isinstance(node, ListValueNode):
            # Inside of it already.
            type_, parent = parent, None
        named = get_named_type(type_)
        if not is_input_object_type(named):
            return None
        declared = None
        if isinstance(node, VariableNode):
            definition = next(iter(error.nodes or ()), None)
            if not isinstance(definition, VariableDefinitionNode):
                return None
            declared = definition.type
            if get_named_type(type_from_ast(self._schema, declared)) is named:
                # Only whether null is allowed is different.
                return None
        in_list = is_list_type(get_nullable_type(type_)) or is_list_type(get_nullable_type(parent))
        return hint_for_value(named, Literal(node, self._schema, declared), in_list=in_list)


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A mistake in a variable.

    Attributes:
        start: the beginning of graphql-core's message, up to its text about the value.
        mark: a part of that text which tells the mistake from others at the same path.
    """

    definition: VariableDefinitionNode
    start: str
    mark: str
    hint: str | None

    def is_meant_by(self, error: GraphQLError) -> bool:
        """Return whether an error is about the mistake; Strawberry's errors have no place."""
        if error.nodes:
            return error.message.startswith(self.start + self.mark)
        return error.message.startswith(self.mark)


def _mistakes_of(
    schema: GraphQLSchema, definition: VariableDefinitionNode, variables: Mapping[str, Any]
) -> Iterator[_Mistake]:
    name = definition.variable.name.value
    type_ = type_from_ast(schema, definition.type)
    for path, mark, hint in _mistakes(type_, variables.get(name), (), in_list=False):
        written = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
        at = f" at {written}" if written else ""
        yield _Mistake(definition, f"Variable '${name}' has invalid value{at}: ", mark, hint)


def _mistakes(
    type_: Any, value: Any, path: _Path, *, in_list: bool
) -> Iterator[tuple[_Path, str, str | None]]:
    """Yield the path, the mark and the hint of each mistake, in the order of coercion."""
    bare = get_nullable_type(type_)
    if value is None:
        return
    if is_list_type(bare):
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _mistakes(bare.of_type, each, (*path, index), in_list=True)
        if not isinstance(value, list):
            yield from _mistakes(bare.of_type, value, path, in_list=True)
        return
    if not is_input_object_type(bare):
        return
    if not isinstance(value, dict):
        hint = hint_for_value(bare, JsonValue(value), in_list=in_list)
        yield path, f"Expected value of type '{bare}' to be an object", hint
        return
    for name, field in bare.fields.items():
        yield from _mistakes(field.type, value.get(name), (*path, name), in_list=False)
    for name, each in value.items():
        if name not in bare.fields:
            mark = f"Expected value of type '{bare}' not to include unknown field '{name}'"
            yield path, mark, hint_for_unknown_field(bare, name, JsonValue(each))
    if is_one_of(bare) and len(value) != 1:
        hint = hint_for_value(bare, JsonValue(value), in_list=in_list)
        yield path, f"OneOf Input Object '{bare}' must", hint
    elif is_one_of(bare) and None in value.values():
        yield path, f"Value for member field '{next(iter(value))}' must", None


def _with_hint(message: str, hint: str) -> str:
    # The hint is exact; graphql-core's suggestion goes by how similar names are.
    return f"{_GUESS.sub('', message)} {hint}"
