"""Compiled selection sets: one function per selected field, compiled once per document.

For each field of each object, graphql-core looks up the field's definition, its arguments, its
resolver behind Strawberry's wrapper, and the completion of its type. Here a selection set becomes a
list of steps, each with a function for its field. The semantics are graphql-core's, in the same
order: nulls, errors and their paths, cancellation. Introspection fields are left to graphql-core.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import CoroutineType
from typing import Any, TypeAlias

from graphql import (
    GraphQLField,
    GraphQLObjectType,
    GraphQLOutputType,
    get_nullable_type,
    is_abstract_type,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
)

from revstream.gql.engine.definitions.field import Read, Resolve, strawberry_field
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.internals.graphql_core import Details, Path, gather_with_cancel
from revstream.gql.engine.request.plan import Step
from revstream.resolvers.errors import NumberMisfit

__all__ = ["compile_steps", "gather_values"]

Run: TypeAlias = "Callable[[PlannedExecution, Any, Path | None], Any]"
"""(executor, source, path of the source) -> the field's completed value, or a coroutine of it."""
Complete: TypeAlias = "Callable[[PlannedExecution, Any, Path], Any]"
"""(executor, value, path of the value) -> its part of the response, or a coroutine of it."""

_INT = 2**31


def compile_steps(
    executor: PlannedExecution, parent: GraphQLObjectType, fields: Mapping[str, Details]
) -> list[Step]:
    """Compile the fields of a selection set.

    Args:
        fields: the collected fields of `parent`, by response name.
    """
    made = []
    for name, details in fields.items():
        definition = executor.schema.get_field(parent, details[0].node.name.value)
        if definition is not None:
            made.append(Step(name, _run(parent, name, details, definition)))
    return made


def _run(parent: GraphQLObjectType, name: str, details: Details, definition: GraphQLField) -> Run:
    if details[0].node.name.value == "__typename":
        type_name = parent.name
        return lambda executor, source, path: type_name
    made_of = strawberry_field(definition)
    if isinstance(made_of, Read):
        leaf = is_leaf_type(get_nullable_type(definition.type))
        reading = _reading_leaf if leaf else _reading
        return reading(parent, name, details, definition.type, made_of.read)
    if isinstance(made_of, Resolve) and not made_of.is_subscription:
        return _resolving(parent, name, details, definition, made_of)
    if isinstance(made_of, Resolve):
        # The root value of a subscription's event is the event itself.
        return _reading(parent, name, details, definition.type, lambda source: source)
    # A field of introspection.
    return lambda executor, source, path: executor.complete_field(
        parent, source, details, Path(path, name, parent.name)
    )


def _reading_leaf(
    parent: GraphQLObjectType,
    name: str,
    details: Details,
    type_: GraphQLOutputType,
    read: Callable[[Any], Any],
) -> Run:
    nulls, coerce = _refused_null(type_, parent, details), _coercion(get_nullable_type(type_))
    parent_name = parent.name

    def run(executor: PlannedExecution, source: Any, path: Path | None) -> Any:
        try:
            value = read(source)
            if value is not None:
                return coerce(value)
            if nulls is None:
                return None
            raise TypeError(nulls)
        except Exception as exc:
            executor.report_field_error(exc, type_, details, Path(path, name, parent_name))
            return None

    return run


def _reading(
    parent: GraphQLObjectType,
    name: str,
    details: Details,
    type_: GraphQLOutputType,
    read: Callable[[Any], Any],
) -> Run:
    complete, parent_name = _completion(type_, parent, details), parent.name

    def run(executor: PlannedExecution, source: Any, path: Path | None) -> Any:
        here = Path(path, name, parent_name)
        try:
            completed = complete(executor, read(source), here)
        except Exception as exc:
            executor.report_field_error(exc, type_, details, here)
            return None
        if completed.__class__ is CoroutineType:
            return _guarded(executor, completed, type_, details, here)
        return completed

    return run


def _resolving(
    parent: GraphQLObjectType,
    name: str,
    details: Details,
    definition: GraphQLField,
    made_of: Resolve,
) -> Run:
    resolve, type_, parent_name = made_of.resolve, definition.type, parent.name
    complete = _completion(type_, parent, details)
    node, nodes = details[0].node, [each.node for each in details]
    names = {each.graphql_name: each.python_name for each in made_of.arguments}

    def arguments(executor: PlannedExecution) -> dict[str, Any]:
        given = executor.coerce_arguments(definition, node)
        return {names[each]: value for each, value in given.items()}

    async def awaited(executor: PlannedExecution, value: Awaitable[Any], path: Path) -> Any:
        try:
            completed = complete(executor, await value, path)
            if completed.__class__ is CoroutineType:
                completed = await completed
        except Exception as exc:
            executor.report_field_error(exc, type_, details, path)
            return None
        return completed

    def run(executor: PlannedExecution, source: Any, path: Path | None) -> Any:
        here = Path(path, name, parent_name)
        try:
            info = executor.resolve_info(definition, nodes, parent, here)
            begun = executor.context_value.root_results if path is None else None
            if begun is not None and name in begun:
                value = _gone_on(begun.pop(name))
            else:
                value = resolve(source, info, **(arguments(executor) if names else {}))
            if value.__class__ is CoroutineType or isinstance(value, Awaitable):
                return awaited(executor, value, here)
            completed = complete(executor, value, here)
        except Exception as exc:
            executor.report_field_error(exc, type_, details, here)
            return None
        if completed.__class__ is CoroutineType:
            return _guarded(executor, completed, type_, details, here)
        return completed

    return run


async def _gone_on(begun: Any) -> Any:
    """Return the result of a root field that ran before the executor, or raise its error."""
    if isinstance(begun, Exception):
        raise begun
    checked = getattr(begun, "checked", None)
    return begun if checked is None else await checked()


async def _guarded(
    executor: PlannedExecution,
    completed: Awaitable[Any],
    type_: GraphQLOutputType,
    details: Details,
    path: Path,
) -> Any:
    try:
        return await completed
    except Exception as exc:
        executor.report_field_error(exc, type_, details, path)
        return None


def _completion(type_: GraphQLOutputType, parent: GraphQLObjectType, details: Details) -> Complete:
    nulls, bare = _refused_null(type_, parent, details), get_nullable_type(type_)
    complete: Complete
    if is_leaf_type(bare):
        coerce = _coercion(bare)

        def complete(executor: PlannedExecution, value: Any, path: Path) -> Any:
            return coerce(value)

    elif is_list_type(bare):
        complete = _completed_list(bare.of_type, parent, details)
    elif is_abstract_type(bare):
        by_type: dict[str, Complete] = {}

        def complete(executor: PlannedExecution, value: Any, path: Path) -> Any:
            of_type = by_type.get(value.type_name)
            if of_type is None:
                found = executor.schema.type_map[value.type_name]
                of_type = by_type[value.type_name] = _completed_object(found, details)
            return of_type(executor, value, path)

    else:
        complete = _completed_object(bare, details)

    def completed(executor: PlannedExecution, value: Any, path: Path) -> Any:
        if value is not None:
            return complete(executor, value, path)
        if nulls is None:
            return None
        raise TypeError(nulls)

    return completed


def _completed_object(type_: Any, details: Details) -> Complete:
    """Render an object by a generated function, or field by field if something is awaited."""
    known = False
    make: Make | None = None

    def complete(executor: PlannedExecution, value: Any, path: Path) -> Any:
        nonlocal known, make
        if not known:
            known, make = True, compile_object(executor, type_, details)
        if make is not None:
            try:
                made = make(value, executor.context_value)
            except Exception as exc:
                executor.fallbacks.count_exception("object", exc)
                made = FALLBACK
            else:
                if made is not FALLBACK:
                    return made
                executor.fallbacks.count("object", "value")
        return executor.complete_object(type_, details, path, value)

    return complete


def _completed_list(
    item: GraphQLOutputType, parent: GraphQLObjectType, details: Details
) -> Complete:
    complete = _completion(item, parent, details)

    def complete_list(executor: PlannedExecution, values: Any, path: Path) -> Any:
        done: list[Any] = []
        waiting: list[int] = []
        try:
            for index, value in enumerate(values):
                here = Path(path, index, None)
                try:
                    completed = complete(executor, value, here)
                    if completed.__class__ is CoroutineType:
                        completed = _guarded(executor, completed, item, details, here)
                        waiting.append(index)
                except Exception as exc:
                    executor.report_field_error(exc, item, details, here)
                    completed = None
                done.append(completed)
        except Exception:
            executor.discard_pending([done[index] for index in waiting])
            raise
        return gather_values(done, waiting) if waiting else done

    return complete_list


async def gather_values(values: Any, waiting: Sequence[Any]) -> Any:
    """Await the pending values of an object's fields, or of a list's items, at the same time.

    Args:
        values: a dict or a list.
        waiting: the keys, or indices, of its coroutines.
    """
    if len(waiting) == 1:
        values[waiting[0]] = await values[waiting[0]]
        return values
    found = await gather_with_cancel(*(values[each] for each in waiting))
    for each, value in zip(waiting, found, strict=True):
        values[each] = value
    return values


def _refused_null(
    type_: GraphQLOutputType, parent: GraphQLObjectType, details: Details
) -> str | None:
    """Return the error message for a null of a non-null type; None for a nullable type."""
    if not is_non_null_type(type_):
        return None
    where = f"{parent.name}.{details[0].node.name.value}"
    return f"Cannot return null for non-nullable field {where}."


def _coercion(type_: Any) -> Callable[[Any], Any]:
    """Return graphql-core's output coercion, with a short cut for values of the usual class."""
    coerce: Callable[[Any], Any] = type_.coerce_output_value
    usual = {"ID": str, "String": str, "Boolean": bool}.get(type_.name)
    if type_.name == "Int":

        def coerce_int(value: Any) -> Any:
            if value.__class__ is not int:
                return coerce(value)
            if -_INT <= value < _INT:
                return value
            raise NumberMisfit(
                f"number: {value}, expected -{_INT} to {_INT - 1} (Int); declare the field as Long"
            )

        return coerce_int
    if usual is None:
        return coerce
    return lambda value: value if value.__class__ is usual else coerce(value)
