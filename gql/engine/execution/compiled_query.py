"""Queries answered without an executor: where all that is selected can be generated, what is left
of a query is to call its root fields and to make the response of what they give.

Anything unusual (an error, a value that does not fit, what has to be waited for below the root) is
the executor's: it goes on with what the root fields have given, so that nothing is read twice, and
the answer is the same on both ways.

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
from graphql.pyutils import Path

from revstream.gql.engine.definitions.arguments import Arguments, Given, arguments_of
from revstream.gql.engine.definitions.field import CompiledRootField, Resolve, field_of
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.execution.worker_thread import has_read_much, off_loop
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.observability.fallback_metrics import Fallbacks
from revstream.streams.core.operation import OPERATION

__all__ = ["Coerce", "CompiledQuery", "coercion_of", "compile_query"]

_INT = 2**31

Coerce: TypeAlias = "Callable[[Mapping[str, Any]], Given | None]"
"""Variables as they were sent -> coerced; None where that takes a closer look."""


@dataclass(slots=True)
class _Info:
    """What our fields' functions look at of graphql-core's GraphQLResolveInfo."""

    context: RequestContext
    field_name: str
    field_nodes: Sequence[Any]
    path: Path


@dataclass(frozen=True, slots=True)
class _Root:
    """A root field.

    Attributes:
        arguments: variables -> what its function is called with.
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
class _Resolved:
    """A field that has no shorter way than its own function and a generated one."""

    resolve: Callable[..., Awaitable[Any]]
    made: Make
    growth: None = None

    async def read(self, info: Any, **arguments: Any) -> Any:
        return await self.resolve(None, info, **arguments)

    def record(self, found: Any, info: Any) -> Any:
        return found


class CompiledQuery:
    """One query, compiled."""

    def __init__(self, roots: Sequence[_Root]) -> None:
        self._roots = roots
        growths = [each.prepared.growth for each in roots]
        self._growth = None if None in growths else max(each or 0 for each in growths)

    def is_short(self, most_bytes: int) -> bool:
        """Return whether the response cannot have more bytes, by what was read for it: to look
        through it would take a fifth of the time of a long page."""
        operation = OPERATION.get()
        if operation is None or self._growth is None:
            return False
        return 0 < self._growth * operation.read_bytes <= most_bytes

    async def answer(
        self, context: RequestContext, given: Given, fallbacks: Fallbacks
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
        context.trusting = True
        context.given = given
        begun = [_begin(root, context, given) for root in self._roots]
        if len(begun) == 1:
            outcomes = [await begun[0]]
        else:
            outcomes = await asyncio.gather(*begun)
        context.trusting = False
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
        context.begun = {
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
                await off_loop(_made, root, value, context) if much else _made(root, value, context)
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


async def _begin(root: _Root, context: RequestContext, given: Given) -> Any:
    """What was read for it, or the error."""
    try:
        return await root.prepared.read(root.info(context), **root.arguments(given))
    except Exception as exc:
        return exc


def _made(root: _Root, found: Any, context: RequestContext) -> Any:
    if found is None:
        return FALLBACK if root.required else None
    return root.prepared.made(found, context)


def _record(root: _Root, found: Any, context: RequestContext) -> Any:
    """For the executor: what its function would have given, or raised."""
    if found is None or isinstance(found, Exception):
        return found
    return root.prepared.record(found, root.info(context))


def compile_query(executor: PlannedExecution) -> CompiledQuery | None:
    """Of a query that was executed once; None where it cannot be had."""
    plan, operation = executor.plan, executor.operation
    # What it selects is known from the first time.
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
    made = field_of(definition)
    if definition is None or not isinstance(made, Resolve):
        return None
    prepared = None if made.prepare is None else made.prepare(executor, details)
    if prepared is None:
        type_ = get_nullable_type(definition.type)
        make = compile_object(executor, type_, details) if is_object_type(type_) else None
        if make is None:
            return None
        prepared = _Resolved(made.resolve, make)
    return _Root(
        name=name,
        field_name=nodes[0].name.value,
        nodes=nodes,
        path=Path(None, name, query.name),
        arguments=arguments_of(definition, nodes[0], made),
        prepared=prepared,
        required=is_non_null_type(definition.type),
    )


def coercion_of(operation: OperationDefinitionNode) -> Coerce:
    """Quick for what clients nearly always send: every variable, of a plain type, as it is."""
    wanted: dict[str, _Quick] = {}
    quick = True
    for each in operation.variable_definitions or ():
        required = isinstance(each.type, NonNullTypeNode)
        type_: Any = each.type.type if required else each.type  # type: ignore[attr-defined]
        made = _QUICK.get(type_.name.value) if hasattr(type_, "name") else None
        quick = quick and made is not None
        if made is not None:
            wanted[each.variable.name.value] = made

    def coerce(variables: Mapping[str, Any]) -> Given | None:
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
"""A value as it was sent -> coerced; None where that takes a closer look."""


def _text(value: Any) -> str | None:
    # Others may hold half of a surrogate pair.
    return value if value.__class__ is str and value.isascii() else None


def _id(value: Any) -> str | None:
    # Whoever has numbers for ids may send them as such.
    return str(value) if value.__class__ is int else _text(value)


def _token(value: Any) -> str | None:
    return _text(value) or None


def _moment(value: Any) -> Any:
    """By a token; times are more than text."""
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
