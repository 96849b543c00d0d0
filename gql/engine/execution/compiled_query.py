"""Queries that run without graphql-core's executor, if their whole selection can be compiled.

Such a query calls its root fields and renders their data by generated functions. Unusual cases (an
error, a value that does not fit, a value to await below the root) fall back to the executor, which
continues with the data of the root fields: nothing is read twice, and the response is the same.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphql import (
    NonNullTypeNode,
    OperationDefinitionNode,
    get_nullable_type,
    is_non_null_type,
    is_object_type,
)

from revstream.gql.engine.definitions.arguments import (
    Arguments,
    CoercedVariables,
    compile_arguments,
)
from revstream.gql.engine.definitions.field import CompiledRootField, Resolve, strawberry_field
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.execution.worker_thread import has_read_much, run_in_thread
from revstream.gql.engine.internals.graphql_core import Path
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.observability.fallback_metrics import FallbackCounter
from revstream.streams.core.operation import OPERATION

__all__ = [
    "Coerce",
    "CompiledQuery",
    "ResolvedField",
    "compile_coercion",
    "compile_query",
]

_INT = 2**31

Coerce: TypeAlias = "Callable[[Mapping[str, Any]], CoercedVariables | None]"
"""Raw variables -> coerced variables; None if graphql-core has to coerce them."""


@dataclass(slots=True)
class _Info:
    """The part of graphql-core's GraphQLResolveInfo that the project's fields use."""

    context: RequestContext
    field_name: str
    field_nodes: Sequence[Any]
    path: Path


@dataclass(frozen=True, slots=True)
class _Root:
    """Root field of a compiled query.

    Attributes:
        arguments: coerced variables -> keyword arguments of the field.
    """

    name: str
    field_name: str
    nodes: Sequence[Any]
    path: Path
    arguments: Arguments
    prepared: CompiledRootField
    required: bool

    def info(self, context: RequestContext) -> _Info:
        return _Info(context, self.field_name, self.nodes, self.path)


@dataclass(frozen=True, slots=True)
class ResolvedField:
    """Root field that is compiled from its function and a generated rendering."""

    resolve: Callable[..., Awaitable[Any]]
    render: Make
    growth: None = None

    async def read(self, info: Any, **arguments: Any) -> Any:
        return await self.resolve(None, info, **arguments)

    def record(self, found: Any, info: Any) -> Any:
        return found


class CompiledQuery:
    """One compiled query."""

    def __init__(self, roots: Sequence[_Root]) -> None:
        self._roots = roots
        growths = [each.prepared.growth for each in roots]
        self._growth = None if None in growths else max(each or 0 for each in growths)

    def is_short(self, most_bytes: int) -> bool:
        """Return whether the response is surely within a size, by the bytes that were read for it.

        Measuring a long page takes a fifth of its time.
        """
        operation = OPERATION.get()
        if operation is None or self._growth is None:
            return False
        return 0 < self._growth * operation.read_bytes <= most_bytes

    async def answer(
        self, context: RequestContext, given: CoercedVariables, fallbacks: FallbackCounter
    ) -> dict[str, Any] | None:
        """Execute the query.

        Args:
            context: a fresh one.
            given: the coerced variables.
            fallbacks: counts each time that the query is left to the executor.

        Returns:
            The data of the response; None where the executor has to finish it, with this context,
            which then has what was read.
        """
        context.assumes_valid = True
        context.variables = given
        begun = [_begin(root, context, given) for root in self._roots]
        if len(begun) == 1:
            outcomes = [await begun[0]]
        else:
            outcomes = await asyncio.gather(*begun)
        context.assumes_valid = False
        if context.problems or _has_failed(outcomes):
            fallbacks.count("query", "error")
        else:
            try:
                data = await self._data(outcomes, context)
            except Exception as exc:
                fallbacks.count_exception("query", exc)
            else:
                if data is not None:
                    return data
                fallbacks.count("query", "value")
        context.root_results = {
            root.name: _record(root, value, context)
            for root, value in zip(self._roots, outcomes, strict=True)
        }
        return None

    async def _data(
        self, outcomes: Sequence[Any], context: RequestContext
    ) -> dict[str, Any] | None:
        much = has_read_much()
        data: dict[str, Any] = {}
        for root, value in zip(self._roots, outcomes, strict=True):
            made = (
                await run_in_thread(_render_root, root, value, context)
                if much
                else _render_root(root, value, context)
            )
            if made is FALLBACK:
                return None
            data[root.name] = made
        return data


def _has_failed(outcomes: Sequence[Any]) -> bool:
    for each in outcomes:  # noqa: SIM110 (a generator takes twice as long)
        if isinstance(each, Exception):
            return True
    return False


async def _begin(root: _Root, context: RequestContext, given: CoercedVariables) -> Any:
    """Return the data of a root field, or the error."""
    try:
        return await root.prepared.read(root.info(context), **root.arguments(given))
    except Exception as exc:
        return exc


def _render_root(root: _Root, found: Any, context: RequestContext) -> Any:
    if found is None:
        return FALLBACK if root.required else None
    return root.prepared.render(found, context)


def _record(root: _Root, found: Any, context: RequestContext) -> Any:
    """Return the value for the executor that the field's function would return, or the error."""
    if found is None or isinstance(found, Exception):
        return found
    try:
        return root.prepared.record(found, root.info(context))
    except Exception as exc:
        return exc


def compile_query(executor: PlannedExecution) -> CompiledQuery | None:
    """Compile a query that was executed once; None if it cannot be compiled."""
    plan, operation = executor.plan, executor.operation
    # The first execution has stored the selections.
    if plan.root is None or plan.selections is None or operation.operation.value != "query":
        return None
    roots = []
    for name, details in plan.root.items():
        root = _root_of(executor, name, details)
        if root is None:
            return None
        roots.append(root)
    return CompiledQuery(roots)


def _root_of(executor: PlannedExecution, name: str, details: Any) -> _Root | None:
    query: Any = executor.schema.query_type
    nodes = [each.node for each in details]
    definition = executor.schema.get_field(query, nodes[0].name.value)
    made = strawberry_field(definition)
    if definition is None or not isinstance(made, Resolve):
        return None
    prepared = None if made.prepare is None else made.prepare(executor, details)
    if prepared is None:
        type_ = get_nullable_type(definition.type)
        make = compile_object(executor, type_, details) if is_object_type(type_) else None
        if make is None:
            return None
        prepared = ResolvedField(made.resolve, make)
    return _Root(
        name=name,
        field_name=nodes[0].name.value,
        nodes=nodes,
        path=Path(None, name, query.name),
        arguments=compile_arguments(definition, nodes[0], made),
        prepared=prepared,
        required=is_non_null_type(definition.type),
    )


def compile_coercion(operation: OperationDefinitionNode) -> Coerce:
    """Compile a fast coercion of variables, for plain types without omitted values."""
    wanted: dict[str, _Quick] = {}
    quick = True
    for each in operation.variable_definitions or ():
        required = isinstance(each.type, NonNullTypeNode)
        type_: Any = each.type.type if required else each.type  # type: ignore[attr-defined]
        made = _QUICK.get(type_.name.value) if hasattr(type_, "name") else None
        quick = quick and made is not None
        if made is not None:
            wanted[each.variable.name.value] = made

    def coerce(variables: Mapping[str, Any]) -> CoercedVariables | None:
        if not quick or len(variables) != len(wanted):
            return None
        given: dict[str, Any] = {}
        for name, value in variables.items():
            made = wanted.get(name)
            if made is None:
                return None
            found = given[name] = made(value)
            if found is None:
                return None
        return given

    return coerce


_Quick: TypeAlias = "Callable[[Any], Any]"
"""Raw value -> coerced value; None if graphql-core has to coerce it."""


def _text(value: Any) -> str | None:
    # Other text may have half of a surrogate pair.
    return value if value.__class__ is str and value.isascii() else None


def _id(value: Any) -> str | None:
    # The type ID accepts integers.
    return str(value) if value.__class__ is int else _text(value)


def _token(value: Any) -> str | None:
    return _text(value) or None


def _moment(value: Any) -> Any:
    """Accept a time point with a token; times have to be parsed."""
    by_token = value.__class__ is dict and len(value) == 1 and _token(value.get("token"))
    return value if by_token else None


_QUICK: Mapping[str, _Quick] = {
    "ID": _id,
    "String": _text,
    "ResumeToken": _token,
    "TimePoint": _moment,
    "Boolean": lambda value: value if value.__class__ is bool else None,
    "Int": lambda value: value if value.__class__ is int and -_INT <= value < _INT else None,
}
