"""Objects of a response rendered by one generated function, if nothing has to be awaited.

The function renders an object from its source, or returns FALLBACK: for a value that is not the
usual one, a document that does not fit the model, a reference that is not loaded. The caller then
executes the object field by field (`gql.engine.execution.field_steps`), which reports the error, or
awaits. So both ways give the same response, and unusual cases are implemented once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphql import (
    GraphQLInterfaceType,
    GraphQLObjectType,
    get_nullable_type,
    is_enum_type,
    is_interface_type,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
)

from revstream.gql.engine.definitions.code_generator import CodeGenerator
from revstream.gql.engine.definitions.field import CompleteValue, Read, Resolve, strawberry_field
from revstream.gql.engine.definitions.value_tests import FALLBACK, NAMES, TEXTS, usual_value_code
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext
from revstream.model.definition import Scalar

__all__ = ["Make", "compile_object", "give_up"]

Make: TypeAlias = "Callable[[Any, RequestContext], Any]"
"""(source, context) -> the object's part of the response, or FALLBACK."""

# Classes of values that graphql-core does not convert.
_CLASS = {"ID": "str", "String": "str", "Boolean": "bool"}
_DEPTH = 12


def give_up(_source: Any, _context: RequestContext) -> Any:
    """Return FALLBACK: the `Make` of a selection that cannot be compiled."""
    return FALLBACK


def compile_object(
    executor: PlannedExecution,
    type_: GraphQLObjectType,
    details: Any,
    depth: int = 0,
    *,
    ready: GraphQLObjectType | None = None,
) -> Make | None:
    """Compile the selection of an object type.

    Args:
        details: the collected selections of the object.
        ready: a type whose objects are already rendered.

    Returns:
        None if a field has to be awaited, or has arguments.
    """
    if depth > _DEPTH:
        return None
    fields = executor.selected_fields(type_, details)
    code = _ObjectCode(executor, depth, ready)
    for number, (name, found) in enumerate(fields.items()):
        if not code.add(f"a{number}", name, type_, found):
            return None
    return code.function()


class _ObjectCode(CodeGenerator):
    """Generator of the function that renders one object."""

    def __init__(
        self, executor: PlannedExecution, depth: int, ready: GraphQLObjectType | None
    ) -> None:
        super().__init__({**NAMES, "each_of": _each_of})
        self._executor = executor
        self._depth = depth
        self._ready = ready
        self._stored = False

    def add(self, var: str, name: str, parent: GraphQLObjectType, details: Any) -> bool:
        """Add a field, and return whether it can be compiled."""
        field_name = details[0].node.name.value
        if field_name == "__typename":
            self.item(name, repr(parent.name))
            return True
        definition = self._executor.schema.get_field(parent, field_name)
        made = strawberry_field(definition)
        if definition is None or not isinstance(made, Read | Resolve):
            return False
        self.item(name, var)
        type_: Any = get_nullable_type(definition.type)
        required = is_non_null_type(definition.type)
        if isinstance(made, Read):
            return self._add_read(var, made, type_, required, details)
        return self._add_ready(var, made, type_, required, details)

    def _add_read(self, var: str, made: Read, type_: Any, required: bool, details: Any) -> bool:
        usual = None if made.stored is None else usual_value_code(made.stored)
        self.names[f"r{var}"] = made.read
        if usual is None:
            self.line(f"{var} = r{var}(source)")
            return self._complete(var, type_, required, details)
        (test, shown), stored = usual, made.stored.stored  # type: ignore[union-attr]
        self._stored = True
        self.line(f"{var} = get({stored!r})")
        self.line(f"if {test.format(var)}: {var} = {shown.format(var)}")
        self.line("else:")
        with self.indented():
            self.line(f"{var} = r{var}(source)")
            return self._complete(var, type_, required, details)

    def _add_ready(self, var: str, made: Resolve, type_: Any, required: bool, details: Any) -> bool:
        if made.ready is None:
            return False
        ready = made.ready(self._executor, details)
        whole = isinstance(ready, CompleteValue)
        self.names[f"r{var}"] = ready.make if isinstance(ready, CompleteValue) else ready
        self.line(f"{var} = r{var}(source, context)")
        self.line(f"if {var} is FALLBACK: {_GIVE_UP}")
        return whole or self._complete(var, type_, required, details)

    def _complete(self, var: str, type_: Any, required: bool, details: Any) -> bool:
        """Render the value in a variable; its type may be nullable."""
        if required:
            self.line(f"if {var} is None: {_GIVE_UP}")
            return self._complete_there(var, type_, details)
        self.line(f"if {var} is not None:")
        with self.indented():
            return self._complete_there(var, type_, details)

    def _complete_there(self, var: str, type_: Any, details: Any) -> bool:
        if is_leaf_type(type_):
            self.line(self._leaf(var, type_))
            return True
        item: Any = get_nullable_type(type_.of_type) if is_list_type(type_) else type_
        if is_list_type(type_) and is_leaf_type(item):
            self.line(f"if not ({TEXTS.format(var)}): {_GIVE_UP}")
            return item.name in {"String", "ID"}
        if self._ready is not None and item is self._ready:
            return True
        make = None
        if is_object_type(item):
            make = compile_object(self._executor, item, details, self._depth + 1, ready=self._ready)
        elif is_interface_type(item):
            make = self._make_by_type(item, details)
        if make is None:
            return False
        self.names[f"m{var}"] = make
        call = "each_of({0}, m{0}, context)" if item is not type_ else "m{0}({0}, context)"
        self.line(f"{var} = {call.format(var)}")
        self.line(f"if {var} is FALLBACK: {_GIVE_UP}")
        return True

    def _make_by_type(self, type_: GraphQLInterfaceType, details: Any) -> Make | None:
        """Compile the selection for each type that implements an interface."""
        makes: dict[str, Make] = {}
        for each in self._executor.schema.get_possible_types(type_):
            make = compile_object(self._executor, each, details, self._depth + 1, ready=self._ready)
            if make is None:
                return None
            makes[each.name] = make
        return lambda source, context: makes[source.type_name](source, context)

    def _leaf(self, var: str, type_: Any) -> str:
        kind = _CLASS.get(type_.name)
        if kind is not None:
            return f"if {var}.__class__ is not {kind}: {_GIVE_UP}"
        if type_.name == "Int":
            return (
                f"if {var}.__class__ is not int or not -2147483648 <= {var} <= 2147483647: "
                f"{_GIVE_UP}"
            )
        if type_.name == Scalar.JSON.value:
            # The value is rendered already.
            return "pass"
        self.names[f"c{var}"] = type_.coerce_output_value
        if type_.name == Scalar.DATETIME.value:
            return f"{var} = date_text({var}) if {var}.__class__ is datetime else c{var}({var})"
        if is_enum_type(type_):
            self.names[f"e{var}"] = {
                name for name, each in type_.values.items() if each.value == name
            }
            return f"if {var}.__class__ is not str or {var} not in e{var}: {var} = c{var}({var})"
        return f"{var} = c{var}({var})"

    def function(self) -> Make:
        if self._stored:
            self._lines.insert(0, "get = source.values.get")
        make: Make = self.compile("source, context")
        return make


_GIVE_UP = "return FALLBACK"


def _each_of(values: Sequence[Any], make: Make, context: RequestContext) -> Any:
    done = []
    for value in values:
        made = FALLBACK if value is None else make(value, context)
        if made is FALLBACK:
            return FALLBACK
        done.append(made)
    return done
