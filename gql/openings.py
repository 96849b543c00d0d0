"""Subscriptions that begin the short way: what graphql-core finds out for each, once per plan.

Thousands that come back after an outage ask for the same with other tokens. What is wrong with one
of them is left to graphql-core, which says it as ever.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from graphql import GraphQLField, GraphQLObjectType
from graphql.execution.collect_fields import collect_fields
from graphql.pyutils import Path

from gql.arguments import Arguments, Given, arguments_of
from gql.context import Context
from gql.executor import Executor
from gql.fields import Resolve, field_of

__all__ = ["Opening", "opening_of"]


class Opening:
    """Of all subscriptions of one plan.

    Args:
        made: an executor of the plan.
        arguments: variables -> what the field's function is called with.
    """

    def __init__(
        self,
        made: Executor,
        definition: GraphQLField,
        nodes: Sequence[Any],
        path: Path,
        resolve: Callable[..., AsyncGenerator[Any]],
        arguments: Arguments,
    ) -> None:
        self._made = made.bare()
        self._definition = definition
        self._nodes = list(nodes)
        self._path = path
        self._resolve = resolve
        self._arguments = arguments

    def open(self, context: Context, given: Given) -> tuple[Executor, AsyncGenerator[Any]]:
        """An executor for its events, and their source.

        Args:
            given: the variables, coerced.

        Raises:
            Exception: it cannot be opened; graphql-core says how that is told.
        """
        executor = self._made.anew(context, given)
        root: Any = executor.schema.subscription_type
        info = executor.build_resolve_info(self._definition, self._nodes, root, self._path)
        return executor, self._resolve(None, info, **self._arguments(given))


def opening_of(executor: Executor) -> Opening | None:
    """Of a subscription; None where it has to be opened by graphql-core."""
    root: GraphQLObjectType | None = executor.schema.subscription_type
    if root is None or executor.context_value is None:
        return None
    found = collect_fields(
        executor.schema,
        executor.fragments,
        executor.variable_values,
        root,
        executor.operation,
        executor.hide_suggestions,
    ).grouped_field_set
    name, details = next(iter(found.items()))
    nodes = [each.node for each in details]
    definition = executor.schema.get_field(root, nodes[0].name.value)
    made = field_of(definition)
    if definition is None or not isinstance(made, Resolve):
        return None
    arguments = arguments_of(definition, nodes[0], made)
    path = Path(None, name, root.name)
    return Opening(executor, definition, nodes, path, made.resolve, arguments)
