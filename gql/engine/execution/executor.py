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
from graphql import GraphQLError, GraphQLObjectType, get_operation_ast

from revstream.gql.engine.execution.field_steps import compile_steps, gather_values
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.hints.errors import hint_in_variables
from revstream.gql.engine.internals.graphql_core import Details, Path
from revstream.gql.engine.internals.strawberry import strawberry_schema
from revstream.gql.engine.request.plan import Plan

__all__ = ["Executor", "unstorable_text"]


class Executor(PlannedExecution):
    """graphql-core's execution context of one operation, with compiled field steps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context_value
        # The context is None if only the schema is queried.
        if context is None or context.plans is None:
            self.plan = Plan()
        else:
            name = None if self.operation.name is None else self.operation.name.value
            self.plan = context.plans.plan(name, self.coerced_variables)
        self.share_collected_fields(self.plan.sub_fields)
        if context is not None:
            # After a fallback the executor continues with the context of the compiled query.
            self.context_value = (
                context if context.root_results is not None else context.fresh(self.plan)
            )
            self.context_value.executor = ref(self)

    @classmethod
    def build(
        cls,
        schema: Any,
        document: Any,
        root_value: Any = None,
        context_value: Any = None,
        raw_variable_values: dict[str, Any] | None = None,
        operation_name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        refused = unstorable_text(raw_variable_values or {})
        if refused is not None:
            return [refused]
        variables = raw_variable_values
        found: Any = super().build(
            schema, document, root_value, context_value, variables, operation_name, *args, **kwargs
        )
        if isinstance(found, list):
            suggests = strawberry_schema(schema).introspected
            operation = get_operation_ast(document, operation_name)
            hint_in_variables(schema, operation, variables or {}, found, suggests=suggests)
        return found

    def root_fields(self, fields: dict[str, Details]) -> dict[str, Details]:
        if self.plan.root is None:
            self.plan.root = fields
        return self.plan.root

    def resolve_fields(
        self,
        parent: GraphQLObjectType,
        source: Any,
        path: Path | None,
        fields: dict[str, Details],
    ) -> Any:
        found = self.plan.steps.get(id(fields))
        if found is None:
            found = self.plan.steps[id(fields)] = fields, compile_steps(self, parent, fields)
        results: dict[str, Any] = {}
        waiting: list[str] = []
        try:
            for step in found[1]:
                results[step.name] = value = step.run(self, source, path)
                if value.__class__ is CoroutineType:
                    waiting.append(step.name)
        except Exception:
            if waiting:
                self.discard_pending([results[each] for each in waiting])
            raise
        return gather_values(results, waiting) if waiting else results

    def event_context(self) -> Any:
        return None if self.context_value is None else self.context_value.fresh(self.plan)

    async def response_to(self, event: Any) -> bytes:
        """Return the serialized response to one event of a subscription."""
        schema = strawberry_schema(self.schema)
        result = schema.event_result(await self.execute_event(event))
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            schema.finish_errors(result.errors, "subscription", self.context_value)
            body["errors"] = [each.formatted for each in result.errors]
        return orjson.dumps(body)

    def finish_operation(self) -> Sequence[GraphQLError]:
        if self.context_value is None:
            return ()
        self.context_value.loads.close()
        return self.context_value.problems


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
                        f"Variable '${name}': half of a surrogate pair, expected valid Unicode."
                    )
            elif isinstance(each, Mapping):
                waiting += each.keys()
                waiting += each.values()
            elif isinstance(each, list):
                waiting += each
    return None
