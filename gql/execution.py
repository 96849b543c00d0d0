"""How an operation is executed: with a context of its own, errors finished on the way out,
documents left out named.

Strawberry makes one context per WebSocket. What is read for one response must not be served in
another, so that the executor takes a fresh one for each operation, and for each event of a
subscription.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import replace
from types import CoroutineType
from typing import Any

import strawberry
from graphql import GraphQLError, GraphQLObjectType, OperationDefinitionNode
from graphql.pyutils import Path
from strawberry.extensions import SchemaExtension
from strawberry.schema.exceptions import CannotGetOperationTypeError
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext
from strawberry.types import ExecutionContext, ExecutionResult
from strawberry.types.execution import PreExecutionError

from gql.admission import Admission, Admitted
from gql.context import Context
from gql.documents import Documents
from gql.failures import Failures
from gql.operations import Operations, kind_of
from gql.persisted import Persisted
from gql.plans import Plan, gathered, steps_of
from gql.weights import Scales
from streams.errors import GatewayError

__all__ = ["Executor", "IdempotencyKey", "OneOperation", "Schema"]


# Whom nobody knows is not counted.
_NOBODY = nullcontext()
# What graphql-core guesses that a name was meant to be: names of the schema.
_GUESS = re.compile(r" Did you mean [^?]*\?")


class Executor(StrawberryGraphQLCoreExecutionContext):
    """graphql-core's, per operation."""

    context_value: Context
    plan: Plan

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        context = self.context_value
        # None where only the schema itself is asked about.
        if context is None or context.plans is None:
            self.plan = Plan()
        else:
            name = None if self.operation.name is None else self.operation.name.value
            self.plan = context.plans.of(name, self.variable_values.coerced)
        self._relevant_sub_fields = self.plan.sub_fields
        if context is not None:
            self.context_value = context.fresh(self.plan)

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
            # Which wants to be called for each field.
            return super().execute_fields(
                parent_type, source_value, path, grouped_field_set, position_context
            )
        found = self.plan.steps.get(id(grouped_field_set))
        if found is None:
            made = steps_of(self, parent_type, grouped_field_set)
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
        return gathered(results, waiting) if waiting else results

    def build_per_event_executor(self, payload: Any) -> Any:
        executor = super().build_per_event_executor(payload)
        if self.context_value is not None:
            executor.context_value = self.context_value.fresh(self.plan)
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


class OneOperation(SchemaExtension):
    """Refuses a document of several operations where nobody says which: Strawberry would execute
    the first."""

    def on_parse(self) -> Iterator[None]:
        yield
        operation = self.execution_context
        document = operation.graphql_document
        if document is not None and operation._provided_operation_name is None:
            count = sum(isinstance(each, OperationDefinitionNode) for each in document.definitions)
            if count > 1:
                raise _WhichOperation(count)


class _WhichOperation(CannotGetOperationTypeError):
    """Strawberry makes it a response with an error, over whichever transport it came."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self._count = count

    def as_http_error_reason(self) -> str:
        return f"the document has {self._count} operations; say with operationName which to execute"


class Schema(strawberry.Schema):
    """Strawberry's, with the error table applied to every result before it leaves, and what became
    of its operations.

    Args:
        documents: those that are known, and the limits.
        persisted: those that clients name instead of sending.
    """

    def __init__(
        self,
        *args: Any,
        operations: Operations,
        admission: Admission,
        documents: Documents,
        persisted: Persisted,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.operations = operations
        self.admission = admission
        self.scales = Scales(self._schema)
        self._documents = documents
        self._persisted = persisted
        self.failures = Failures(operations)

    def get_extensions(self, sync: bool = False) -> list[SchemaExtension]:
        found = super().get_extensions(sync)
        # What is executed at once waits for nobody.
        return [each for each in found if not (sync and isinstance(each, Admitted))]

    async def execute(
        self,
        query: str | None,
        variable_values: dict[str, Any] | None = None,
        context_value: Context | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> ExecutionResult:
        try:
            text = self._text(query, kwargs.get("operation_extensions"))
            with self._counted(context_value):
                return await super().execute(text, variable_values, context_value, *args, **kwargs)
        except GatewayError as exc:
            return self._refused(exc)

    async def stream(
        self,
        query: str | None,
        variable_values: dict[str, Any] | None = None,
        context_value: Context | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        try:
            text = self._text(query, kwargs.get("operation_extensions"))
        except GatewayError as exc:
            return _once(self._refused(exc))
        results = await super().stream(text, variable_values, context_value, *args, **kwargs)
        return self._streamed(results, context_value) if _owner(context_value) else results

    async def _streamed(
        self, results: Any, context: Context | None
    ) -> AsyncGenerator[ExecutionResult]:
        try:
            async with aclosing(results):
                with self._counted(context):
                    async for each in results:
                        yield each
        except GatewayError as exc:
            yield self._refused(exc)

    def _counted(self, context: Context | None) -> AbstractContextManager[None]:
        """Raises:
        LimitExceeded: one operation too many of who asks.
        """
        owner = _owner(context)
        return self.admission.counted(owner) if owner else _NOBODY

    def _text(self, query: str | None, extensions: Mapping[str, Any] | None) -> str | None:
        """The document to execute; None where there is none.

        Raises:
            GatewayError: it may not be executed, or not be looked at.
        """
        text = self._persisted.text_of(query, extensions)
        if text is not None:
            self._documents.check_text(text)
        return text

    def _refused(self, exc: GatewayError) -> ExecutionResult:
        return PreExecutionError(data=None, errors=[self.failures.error(exc)])

    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        context = None if execution_context is None else execution_context.context
        if not self._documents.limits.introspection:
            for error in errors:
                error.message = _GUESS.sub("", error.message)
        token_out = str if context is None else context.token_out
        self.failures.finish(errors, kind_of(execution_context), token_out)


def _owner(context: Context | None) -> str:
    return "" if context is None else context.owner


async def _once(result: ExecutionResult) -> AsyncGenerator[ExecutionResult]:
    yield result


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
