"""graphql-core's executor with query plans and a request context per response.

Strawberry creates one context per WebSocket. Data that was read for one response must not be used
in another one, so that each operation, and each event of a subscription, gets a fresh context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CoroutineType
from typing import Any
from weakref import ref

import orjson
from graphql import ExecutionResult, GraphQLError, GraphQLObjectType
from graphql.pyutils import Path
from graphql.type.definition import GraphQLResolveInfoHelpers

from revstream.gql.engine.execution.field_steps import compile_steps, gather_values
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.plan import Plan

__all__ = ["Executor", "unstorable_text"]


class Executor(PlannedExecution):
    """graphql-core's execution context of one operation, with compiled field steps."""

    # Class attributes with the usual values: an object with more than 30 attributes of its own
    # takes 1 KB more.
    abort_signal = hooks = middleware_manager = async_work_finished_hook_task = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context_value
        # The context is None if only the schema is queried.
        if context is None or context.plans is None:
            self.plan = Plan()
        else:
            name = None if self.operation.name is None else self.operation.name.value
            self.plan = context.plans.plan(name, self.variable_values.coerced)
        self._relevant_sub_fields = self.plan.sub_fields
        if context is not None:
            # After a fallback the executor continues with the context of the compiled query.
            self.context_value = (
                context if context.root_results is not None else context.fresh(self.plan)
            )
            self.context_value.executor = ref(self)
        self.async_helpers = _helpers_of(self)

    @classmethod
    def build(
        cls,
        schema: Any,
        document: Any,
        root_value: Any = None,
        context_value: Any = None,
        raw_variable_values: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        refused = unstorable_text(raw_variable_values or {})
        if refused is not None:
            return [refused]
        return super().build(
            schema, document, root_value, context_value, raw_variable_values, *args, **kwargs
        )

    def execute_root_grouped_field_set(
        self,
        root_type: GraphQLObjectType,
        root_value: Any,
        grouped_field_set: Any,
        *args: Any,
    ) -> Any:
        if self.plan.root is None:
            self.plan.root = grouped_field_set
        return super().execute_root_grouped_field_set(root_type, root_value, self.plan.root, *args)

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
        found = self.plan.steps.get(id(grouped_field_set))
        if found is None:
            made = compile_steps(self, parent_type, grouped_field_set)
            found = self.plan.steps[id(grouped_field_set)] = grouped_field_set, made
        results: dict[str, Any] = {}
        waiting: list[str] = []
        try:
            for step in found[1]:
                results[step.name] = value = step.run(self, source_value, path)
                if value.__class__ is CoroutineType:
                    waiting.append(step.name)
        except Exception:
            if waiting:
                self.settle_in_background([results[each] for each in waiting])
            raise
        return gather_values(results, waiting) if waiting else results

    def build_per_event_executor(self, payload: Any) -> Any:
        executor = super().build_per_event_executor(payload)
        if self.context_value is not None:
            executor.context_value = self.context_value.fresh(self.plan)
        return executor

    async def response_to(self, event: Any) -> bytes:
        """Return the serialized response to one event of a subscription."""
        made = self.build_per_event_executor(event).execute_operation(False)
        result: Any = made if isinstance(made, ExecutionResult) else await made
        schema = self.schema._strawberry_schema  # type: ignore[attr-defined]
        result = schema.event_result(result)
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            schema.finish_errors(result.errors, "subscription", self.context_value)
            body["errors"] = [each.formatted for each in result.errors]
        return orjson.dumps(body)

    def build_response(self, data: dict[str, Any] | None) -> Any:
        if self.context_value is not None:
            self.collected_errors.errors.extend(self.context_value.problems)
            self.context_value.loads.close()
        return super().build_response(data)


def _helpers_of(executor: Executor) -> GraphQLResolveInfoHelpers:
    """Return graphql-core's helpers without a reference cycle.

    Its own ones refer to the executor, which would then live until the garbage collector runs.
    """
    weak = ref(executor)

    def gather(values: Sequence[Any]) -> Any:
        return _alive(weak).gather_async_work(values)

    def track(values: Sequence[Any]) -> None:
        _alive(weak).track_async_work(values)

    return GraphQLResolveInfoHelpers(gather=gather, track=track)


def _alive(weak: ref[Executor]) -> Executor:
    executor = weak()
    # The running operation refers to its executor.
    assert executor is not None
    return executor


def unstorable_text(variables: Mapping[str, Any]) -> GraphQLError | None:
    """Return an error if a variable has text with half of a surrogate pair; None otherwise.

    JSON can contain one; it is not valid Unicode, so that MongoDB cannot store it. In the document
    itself graphql-core's lexer refuses it.
    """
    for name, value in variables.items():
        waiting: list[Any] = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                try:
                    each.encode()
                except UnicodeEncodeError:
                    return GraphQLError(
                        f"Variable '${name}' holds text with half of a surrogate pair, "
                        "which is not valid Unicode."
                    )
            elif isinstance(each, Mapping):
                waiting += each.keys()
                waiting += each.values()
            elif isinstance(each, list):
                waiting += each
    return None
