"""How an operation is executed: with a context of its own, errors finished on the way out,
documents left out named.

Strawberry makes one context per WebSocket. What is read for one response must not be served in
another, so that the executor takes a fresh one for each operation, and for each event of a
subscription.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import strawberry
from graphql import GraphQLError
from strawberry.extensions import SchemaExtension
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types import ExecutionContext

from gql.context import Context
from gql.errors import finish_errors

__all__ = ["Executor", "IdempotencyKey", "Schema"]


class Executor(StrawberryGraphQLCoreExecutionContext):
    """graphql-core's, per operation."""

    context_value: Context

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # None where only the schema itself is asked about.
        if self.context_value is not None:
            self.context_value = self.context_value.fresh()

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
        refused = _unstorable_text(raw_variable_values or {})
        if refused is not None:
            return [refused]
        return super().build(
            schema, document, root_value, context_value, raw_variable_values, *args, **kwargs
        )

    def build_per_event_executor(self, payload: Any) -> Any:
        executor = super().build_per_event_executor(payload)
        if self.context_value is not None:
            executor.context_value = self.context_value.next_event()
        return executor

    def build_response(self, data: dict[str, Any] | None) -> Any:
        if self.context_value is not None:
            self.collected_errors.errors.extend(self.context_value.problems)
        return super().build_response(data)


class IdempotencyKey(SchemaExtension):
    """Takes the key from the `extensions` of a request, for those who cannot send a header."""

    def on_operation(self) -> Iterator[None]:
        operation = self.execution_context
        extensions = operation.operation_extensions
        key = extensions.get("idempotencyKey") if isinstance(extensions, Mapping) else None
        if key is not None and operation.context is not None:
            operation.context = replace(operation.context, idempotency_key=str(key))
        yield


class Schema(strawberry.Schema):
    """Strawberry's, with the error table applied to every result before it leaves."""

    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        context = None if execution_context is None else execution_context.context
        finish_errors(errors, _as_it_is if context is None else context.token_out)


def _as_it_is(token: str) -> str:
    return token


def _unstorable_text(variables: Mapping[str, Any]) -> GraphQLError | None:
    """JSON can write half of a surrogate pair, which is no text in UTF-8, hence none that MongoDB
    can hold.

    In the document itself graphql-core's lexer refuses it.
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
