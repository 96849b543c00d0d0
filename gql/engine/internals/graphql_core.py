"""Undocumented members of graphql-core, behind plain names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from weakref import ref

from graphql import ExecutionResult, GraphQLError, GraphQLField, GraphQLObjectType
from graphql.execution.collect_fields import FieldDetails
from graphql.execution.execute import create_source_event_stream, map_source_to_response_event
from graphql.execution.values import VariableValues, get_argument_values, get_variable_values
from graphql.pyutils import Path, gather_with_cancel
from graphql.type.definition import GraphQLResolveInfoHelpers
from graphql.utilities.sort_value_node import sort_value_node

from revstream.gql.engine.internals.strawberry import StrawberryExecutor

__all__ = [
    "CoreExecutor",
    "Details",
    "Path",
    "coerce_arguments",
    "coerce_variables",
    "gather_with_cancel",
    "sort_value_node",
    "start_subscription",
]

Details: TypeAlias = list[FieldDetails]
"""Field nodes that are merged into one field of the response."""


class CoreExecutor(StrawberryExecutor):
    """graphql-core's executor, with plain names for its members, and hooks for subclasses.

    Attributes:
        context_value: the context of the request.
        operation: the syntax tree of the operation.
        schema: graphql-core's schema.
    """

    # Class attributes with the usual values: an object with more than 30 attributes of its own
    # takes 1 KB more.
    abort_signal = hooks = middleware_manager = async_work_finished_hook_task = None

    # (definition of the field, field nodes, parent type, path) -> info
    resolve_info = StrawberryExecutor.build_resolve_info
    # (error, type of the field, details, path); raises it where the type allows no null
    report_field_error = StrawberryExecutor.handle_field_error
    # (awaitables): cancels and awaits them
    discard_pending = StrawberryExecutor.settle_in_background

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.async_helpers = _helpers_of(self)

    # for calls

    @property
    def coerced_variables(self) -> Mapping[str, Any]:
        """The variables of the operation by name."""
        return self.variable_values.coerced

    def share_collected_fields(self, cache: dict[Any, Any]) -> None:
        """Use a cache of collected fields that other executions of the operation use too."""
        self._relevant_sub_fields = cache

    def selected_fields(self, type_: GraphQLObjectType, details: Any) -> Mapping[str, Details]:
        """Return the fields that a selection set selects of an object type, by response name."""
        return self.collect_subfields(type_, details).grouped_field_set

    def coerce_arguments(self, definition: GraphQLField, node: Any) -> dict[str, Any]:
        """Return the arguments of a selection of a field."""
        return get_argument_values(
            definition, node, self.variable_values, None, self.hide_suggestions
        )

    def complete_object(
        self, type_: GraphQLObjectType, details: Details, path: Path, source: Any
    ) -> Any:
        """Return an object's part of the response, or an awaitable of it."""
        return self.collect_and_execute_subfields(type_, details, path, source, None)

    def complete_field(
        self, parent: GraphQLObjectType, source: Any, details: Details, path: Path
    ) -> Any:
        """Return a field's part of the response, or an awaitable of it."""
        return self.execute_field(parent, source, details, path, None)

    async def execute_whole(self) -> ExecutionResult:
        """Execute a query or mutation."""
        return await _awaited(self.execute_operation())

    async def execute_event(self, event: Any) -> ExecutionResult:
        """Return the response to one event of a subscription."""
        return await _awaited(self.build_per_event_executor(event).execute_operation(False))

    # hooks

    def root_fields(self, fields: dict[str, Details]) -> dict[str, Details]:
        """Return the fields of the operation's root, given those that were collected."""
        return fields

    def resolve_fields(
        self,
        parent: GraphQLObjectType,
        source: Any,
        path: Path | None,
        fields: dict[str, Details],
    ) -> Any:
        """Return the response to the fields of an object, or an awaitable of it."""
        return super().execute_fields(parent, source, path, fields, None)

    def event_context(self) -> Any:
        """Return the context of one event of a subscription."""
        return self.context_value

    def finish_operation(self) -> Sequence[GraphQLError]:
        """End the operation; return errors that the response has beside those of fields."""
        return ()

    # overridden

    def execute_root_grouped_field_set(
        self,
        root_type: GraphQLObjectType,
        root_value: Any,
        grouped_field_set: Any,
        *args: Any,
    ) -> Any:
        fields = self.root_fields(grouped_field_set)
        return super().execute_root_grouped_field_set(root_type, root_value, fields, *args)

    def execute_fields(
        self,
        parent_type: GraphQLObjectType,
        source_value: Any,
        path: Path | None,
        grouped_field_set: dict[str, Any],
        position_context: Any,
    ) -> Any:
        if self.middleware_manager is not None and self.middleware_manager.middlewares:
            # Middleware must be called for each field.
            return super().execute_fields(
                parent_type, source_value, path, grouped_field_set, position_context
            )
        return self.resolve_fields(parent_type, source_value, path, grouped_field_set)

    def build_per_event_executor(self, payload: Any) -> Any:
        executor = super().build_per_event_executor(payload)
        executor.context_value = self.event_context()
        return executor

    def build_response(self, data: dict[str, Any] | None) -> Any:
        self.collected_errors.errors.extend(self.finish_operation())
        return super().build_response(data)


async def _awaited(made: Any) -> ExecutionResult:
    result: Any = made if isinstance(made, ExecutionResult) else await made
    found: ExecutionResult = result
    return found


def _helpers_of(executor: CoreExecutor) -> GraphQLResolveInfoHelpers:
    """Return graphql-core's helpers without a reference cycle.

    Its own ones refer to the executor, which would then live until the garbage collector runs.
    """
    weak = ref(executor)

    def gather(values: Sequence[Any]) -> Any:
        return _alive(weak).gather_async_work(values)

    def track(values: Sequence[Any]) -> None:
        _alive(weak).track_async_work(values)

    return GraphQLResolveInfoHelpers(gather=gather, track=track)


def _alive(weak: ref[CoreExecutor]) -> CoreExecutor:
    executor = weak()
    # The running operation refers to its executor.
    assert executor is not None
    return executor


def coerce_arguments(
    definition: GraphQLField, node: Any, variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a selection of a field, given coerced variables."""
    return get_argument_values(definition, node, VariableValues({}, dict(variables)))


def coerce_variables(
    schema: Any, definitions: Sequence[Any], variables: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return coerced variables by name; None if one is invalid."""
    found = get_variable_values(schema, definitions, dict(variables))
    return None if isinstance(found, list) else found.coerced


def start_subscription(executor: CoreExecutor) -> Any:
    """Return an async generator of the responses to events, or the errors that prevent it."""
    source: Any = create_source_event_stream(executor)
    if isinstance(source, ExecutionResult):
        return source.errors or []
    return map_source_to_response_event(executor, source)
