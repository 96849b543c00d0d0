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

from gql.arguments import Arguments, Given, arguments_of
from gql.context import Context
from gql.executor import Executor
from gql.fields import Resolve
from gql.generated import GIVEN_UP, Make, made_of

__all__ = ["Coerce", "Direct", "coercion_of", "direct_of"]

_DEFINITION = "strawberry-definition"
_INT = 2**31

Coerce: TypeAlias = "Callable[[Mapping[str, Any]], Given | None]"
"""Variables as they were sent -> coerced; None where that takes a closer look."""


@dataclass(slots=True)
class _Info:
    """What our fields' functions look at of graphql-core's GraphQLResolveInfo."""

    context: Context
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
    resolve: Callable[..., Awaitable[Any]]
    path: Path
    arguments: Arguments
    make: Make
    required: bool


class Direct:
    """One query, compiled."""

    def __init__(self, roots: Sequence[_Root]) -> None:
        self._roots = roots

    async def answer(self, context: Context, given: Given) -> dict[str, Any] | None:
        """The data of the response; None where it is for the executor to say, with a context that
        has what was read.

        Args:
            context: a fresh one. given: the variables that the fields' arguments are made of.
        """
        context.trusting = True
        begun = [_begin(root, context, given) for root in self._roots]
        if len(begun) == 1:
            outcomes: Sequence[Any] = [await begun[0]]
        else:
            outcomes = await asyncio.gather(*begun)
        context.trusting = False
        data: dict[str, Any] = {}
        if not context.problems:
            for root, value in zip(self._roots, outcomes, strict=True):
                made = _made(root, value, context)
                if made is GIVEN_UP:
                    break
                data[root.name] = made
            else:
                return data
        context.begun = dict(zip((root.name for root in self._roots), outcomes, strict=True))
        return None


async def _begin(root: _Root, context: Context, given: Given) -> Any:
    """What its function gives, or raises."""
    try:
        info = _Info(context, root.field_name, root.nodes, root.path)
        return await root.resolve(None, info, **root.arguments(given))
    except Exception as exc:
        return exc


def _made(root: _Root, value: Any, context: Context) -> Any:
    if value is None:
        return GIVEN_UP if root.required else None
    return GIVEN_UP if isinstance(value, Exception) else root.make(value, context)


def direct_of(executor: Executor) -> Direct | None:
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
    return Direct(roots)


def _root_of(executor: Executor, name: str, details: Any) -> _Root | None:
    query: Any = executor.schema.query_type
    nodes = [each.node for each in details]
    definition = executor.schema.get_field(query, nodes[0].name.value)
    made = None if definition is None else definition.extensions.get(_DEFINITION)
    if definition is None or not isinstance(made, Resolve):
        return None
    type_ = get_nullable_type(definition.type)
    make = made_of(executor, type_, details) if is_object_type(type_) else None
    if make is None:
        return None
    return _Root(
        name=name,
        field_name=nodes[0].name.value,
        nodes=nodes,
        path=Path(None, name, query.name),
        resolve=made.resolve,
        arguments=arguments_of(definition, nodes[0], made),
        make=make,
        required=is_non_null_type(definition.type),
    )


def coercion_of(operation: OperationDefinitionNode) -> Coerce:
    """Quick for what clients nearly always send: every variable, of a plain type, as it is."""
    wanted: dict[str, Callable[[Any], bool]] = {}
    quick = True
    for each in operation.variable_definitions or ():
        required = isinstance(each.type, NonNullTypeNode)
        type_: Any = each.type.type if required else each.type  # type: ignore[attr-defined]
        test = _USUAL.get(type_.name.value) if hasattr(type_, "name") else None
        quick = quick and test is not None
        if test is not None:
            wanted[each.variable.name.value] = test

    def coerce(variables: Mapping[str, Any]) -> Given | None:
        if not quick or len(variables) != len(wanted):
            return None
        for name, value in variables.items():
            test = wanted.get(name)
            if test is None or not test(value):
                return None
        return variables

    return coerce


def _is_text(value: Any) -> bool:
    # Others may hold half of a surrogate pair.
    return value.__class__ is str and value.isascii()


_USUAL: Mapping[str, Callable[[Any], bool]] = {
    "ID": _is_text,
    "String": _is_text,
    "Boolean": lambda value: value.__class__ is bool,
    "Int": lambda value: value.__class__ is int and -_INT <= value < _INT,
}
