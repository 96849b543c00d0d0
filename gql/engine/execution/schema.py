"""Execution of operations: concurrency, limits, and error handling.

A stored document takes a short path: the work of the extensions is done here in the same order,
without Strawberry's context managers around each, which take longer than a small operation.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any

import strawberry
from graphql import ExecutionResult as CoreResult
from graphql import GraphQLError, OperationDefinitionNode
from strawberry.extensions import SchemaExtension
from strawberry.schema.exceptions import CannotGetOperationTypeError
from strawberry.types import ExecutionContext, ExecutionResult
from strawberry.types.execution import PreExecutionError
from strawberry.types.graphql import OperationType

from revstream.gql.engine.execution.compiled_query import compile_query
from revstream.gql.engine.execution.document_cache import Documents, KnownDocument, KnownOperation
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.execution.worker_thread import has_read_much, run_in_thread
from revstream.gql.engine.hints.errors import remove_guesses
from revstream.gql.engine.internals.graphql_core import start_subscription
from revstream.gql.engine.internals.strawberry import graphql_schema, requested_operation
from revstream.gql.engine.limits.concurrency import ConcurrencyExtension, ConcurrencyLimiter
from revstream.gql.engine.limits.document_limits import check_cost
from revstream.gql.engine.limits.query_cost import CostCalculator
from revstream.gql.engine.limits.response_size import check_response
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations, kind_of
from revstream.gql.server.client_presence import finish_without_client
from revstream.streams.core.errors import GatewayError

__all__ = ["IdempotencyKey", "OneOperation", "Schema"]


# Keys of a request's extensions that Strawberry's extensions handle.
_LONG_WAY = frozenset({"cost", "idempotencyKey"})
_NO_STREAMS = (OperationType.QUERY, OperationType.MUTATION)
_STREAMS = (OperationType.SUBSCRIPTION,)


class IdempotencyKey(SchemaExtension):
    """Extension that reads the idempotency key from a request's `extensions`."""

    def on_operation(self) -> Iterator[None]:
        operation = self.execution_context
        extensions = operation.operation_extensions
        key = extensions.get("idempotencyKey") if isinstance(extensions, Mapping) else None
        if key is not None and operation.context is not None:
            operation.context = replace(operation.context, idempotency_key=str(key))
        yield


class OneOperation(SchemaExtension):
    """Extension that refuses a document of several operations without an operation name.

    Strawberry would execute the first one.
    """

    def on_parse(self) -> Iterator[None]:
        yield
        operation = self.execution_context
        document = operation.graphql_document
        if document is not None and requested_operation(operation) is None:
            count = sum(isinstance(each, OperationDefinitionNode) for each in document.definitions)
            if count > 1:
                raise _WhichOperation(count)


class _WhichOperation(CannotGetOperationTypeError):
    """Error that Strawberry returns as a response, over every transport."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self._count = count

    def as_http_error_reason(self) -> str:
        return (
            f"operationName: missing, expected one of the document's {self._count} operations; "
            "send its name"
        )


class Schema(strawberry.Schema):
    """Strawberry's schema with limits, compiled queries and the error table.

    Args:
        operations: metrics of the operations.
        limiter: of concurrent operations.
        documents: the stored documents, and the limits.

    Attributes:
        graphql: graphql-core's schema.
    """

    def __init__(
        self,
        *args: Any,
        operations: Operations,
        limiter: ConcurrencyLimiter,
        documents: Documents,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.operations = operations
        self.limiter = limiter
        self.graphql = graphql_schema(self)
        self.cost_calculator = CostCalculator(self.graphql)
        self._documents = documents
        self.error_reporter = ErrorReporter(operations)

    @property
    def introspected(self) -> bool:
        """True if callers may read the schema, so that errors may name its parts."""
        return self._documents.limits.introspection

    def get_extensions(self, sync: bool = False) -> list[SchemaExtension]:
        found = super().get_extensions(sync)
        # Synchronous execution cannot wait for a slot.
        return [each for each in found if not (sync and isinstance(each, ConcurrencyExtension))]

    async def execute(
        self,
        query: str | None,
        variable_values: dict[str, Any] | None = None,
        context_value: RequestContext | None = None,
        root_value: Any = None,
        operation_name: str | None = None,
        allowed_operation_types: Iterable[OperationType] | None = None,
        operation_extensions: dict[str, Any] | None = None,
    ) -> ExecutionResult:
        owner = "" if context_value is None else context_value.owner
        try:
            text, document = self._documents.find(query, operation_extensions)
            self.limiter.begin(owner)
        except GatewayError as exc:
            return self._refused(exc)
        try:
            known = _known(document, operation_name, operation_extensions)
            allowed = allowed_operation_types or _NO_STREAMS
            # Strawberry refuses kinds of operations that are not allowed.
            if known is not None and context_value is not None and known.kind in allowed:
                self.operations.begun["known"] += 1
                return await self._execute_known(known, variable_values, context_value)
            self.operations.begun["new"] += 1
            return await self._bounded(
                await super().execute(
                    text,
                    variable_values,
                    context_value,
                    root_value,
                    operation_name,
                    allowed_operation_types,
                    operation_extensions,
                )
            )
        except GatewayError as exc:
            return self._refused(exc)
        finally:
            self.limiter.end(owner)

    async def stream(
        self,
        query: str | None,
        variable_values: dict[str, Any] | None = None,
        context_value: RequestContext | None = None,
        root_value: Any = None,
        operation_name: str | None = None,
        operation_extensions: dict[str, Any] | None = None,
        allowed_operation_types: Iterable[OperationType] | None = None,
    ) -> Any:
        try:
            text, document = self._documents.find(query, operation_extensions)
        except GatewayError as exc:
            return _once(self._refused(exc))
        known = _known(document, operation_name, operation_extensions)
        allowed = allowed_operation_types or _STREAMS
        results: Any
        if (
            known is not None
            and context_value is not None
            and known.kind is OperationType.SUBSCRIPTION in allowed
        ):
            results = self._stream_known(known, variable_values, context_value)
        else:
            results = self._events_bounded(
                await super().stream(
                    text,
                    variable_values,
                    context_value,
                    root_value,
                    operation_name,
                    operation_extensions,
                    allowed_operation_types,
                )
            )
        owner = "" if context_value is None else context_value.owner
        return self._streamed(results, owner) if owner else results

    async def _execute_known(
        self,
        known: KnownOperation,
        variables: dict[str, Any] | None,
        context: RequestContext,
    ) -> ExecutionResult:
        kind = known.kind_name
        began = time.perf_counter()
        try:
            given = known.coerce(variables or {})
            if given is None or not known.fits:
                # Otherwise the result is as before: so few plain variables exceed no limit.
                self._check(known, variables)
            begun = finish_without_client if known.kind is OperationType.MUTATION else None
            slot = self.limiter.slot(context.owner, begun=begun)
            async with nullcontext() if known.schema_only else slot:
                if known.kind is OperationType.QUERY:
                    if given is None:
                        given = known.given(self.graphql, variables or {})
                    plan = None if given is None else known.document.plans.plan(known.name, given)
                    if given is not None and plan is not None and plan.direct is not None:
                        context = context.fresh(plan)
                        data = await plan.direct.answer(context, given, self.operations.fallbacks)
                        if data is not None:
                            answer = ExecutionResult(data=data, errors=None)
                            short = plan.direct.is_short(self._documents.limits.max_response_bytes)
                            return answer if short else await self._bounded(answer)
                result = await self._execute(known, variables, context)
        except Exception as exc:
            errors = [_error(exc)]
            self.finish_errors(errors, kind, context)
            return PreExecutionError(data=None, errors=errors)
        finally:
            context.loads.close()
            self.operations.took(kind, time.perf_counter() - began)
        data, found = (None, result) if isinstance(result, list) else (result.data, result.errors)
        if found:
            self.finish_errors(found, kind, context)
        return await self._bounded(ExecutionResult(data=data, errors=found))

    async def _stream_known(
        self, known: KnownOperation, variables: dict[str, Any] | None, context: RequestContext
    ) -> AsyncGenerator[ExecutionResult]:
        """Execute a subscription of a stored document."""
        kind = known.kind_name
        begun = self._begun(known, variables, context)
        if isinstance(begun, list):
            self.finish_errors(begun, kind, context)
            yield PreExecutionError(data=None, errors=begun)
            return
        try:
            async with aclosing(begun) as results:
                async for each in results:
                    result = self.event_result(each)
                    if result.errors:
                        self.finish_errors(result.errors, kind, context)
                    yield result
        except Exception as exc:
            errors = [_error(exc)]
            self.finish_errors(errors, kind, context)
            yield ExecutionResult(data=None, errors=errors)

    def _begun(
        self, known: KnownOperation, variables: dict[str, Any] | None, context: RequestContext
    ) -> AsyncGenerator[CoreResult] | list[GraphQLError]:
        """Return the responses of a subscription, or the errors that prevent it."""
        given = known.coerce(variables or {})
        if given is None or not known.fits:
            try:
                self._check(known, variables)
            except Exception as exc:
                return [_error(exc)]
        executor = Executor.build(
            self.graphql,
            known.document.document,
            None,
            replace(context, plans=known.document.plans),
            variables,
            known.name,
        )
        if isinstance(executor, list):
            return executor
        begun: AsyncGenerator[CoreResult] | list[GraphQLError] = start_subscription(executor)
        return begun

    def _check(self, known: KnownOperation, variables: dict[str, Any] | None) -> None:
        """Check the limits of a stored operation.

        Raises:
            LimitExceeded: a limit is exceeded.
        """
        documents = self._documents
        cost = documents.cost(known.document, variables, self.cost_calculator)
        check_cost(cost, known.name, documents.limits, known=True)
        known.fits = known.document.cost is not None

    async def _execute(
        self, known: KnownOperation, variables: dict[str, Any] | None, context: RequestContext
    ) -> CoreResult | list[GraphQLError]:
        document = known.document
        if context.root_results is None:
            context = replace(context, plans=document.plans)
        else:
            context.plans = document.plans
        executor = Executor.build(
            self.graphql, document.document, None, context, variables, known.name
        )
        if isinstance(executor, list):
            return executor
        result: CoreResult = await executor.execute_whole()
        plan = executor.plan
        if not plan.tried and not result.errors:
            plan.tried, plan.direct = True, compile_query(executor)
        return result

    async def _streamed(self, results: Any, owner: str) -> AsyncGenerator[ExecutionResult]:
        try:
            async with aclosing(results):
                self.limiter.begin(owner)
                try:
                    async for each in results:
                        yield each
                finally:
                    self.limiter.end(owner)
        except GatewayError as exc:
            yield self._refused(exc)

    async def _bounded(self, result: ExecutionResult) -> ExecutionResult:
        """Replace a response that is too large by an error."""
        most = self._documents.limits.max_response_bytes
        try:
            if has_read_much():
                await run_in_thread(check_response, result.data, most)
            else:
                check_response(result.data, most)
        except GatewayError as exc:
            # Without the traceback, which would keep the response until garbage collection.
            return self._refused(exc.with_traceback(None))
        return result

    async def _events_bounded(self, results: Any) -> AsyncGenerator[ExecutionResult]:
        """Bound the events of a subscription that Strawberry executes."""
        async with aclosing(results):
            async for each in results:
                if isinstance(each, PreExecutionError):
                    yield each
                    continue
                bounded = await self._bounded(each)
                # Not a refused operation: the next event follows.
                yield each if bounded is each else ExecutionResult(data=None, errors=bounded.errors)

    def event_result(self, result: CoreResult) -> ExecutionResult:
        """Return the response to an event, or an error if it is too large."""
        try:
            check_response(result.data, self._documents.limits.max_response_bytes)
        except GatewayError as exc:
            return ExecutionResult(data=None, errors=[_error(exc.with_traceback(None))])
        return ExecutionResult(data=result.data, errors=result.errors)

    def _refused(self, exc: GatewayError) -> ExecutionResult:
        return PreExecutionError(data=None, errors=[self.error_reporter.error(exc)])

    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        context = None if execution_context is None else execution_context.context
        self.finish_errors(errors, kind_of(execution_context), context)

    def finish_errors(
        self, errors: list[GraphQLError], kind: str, context: RequestContext | None
    ) -> None:
        """Apply the error table to errors, and count the first one."""
        if not self.introspected:
            remove_guesses(errors)
        token_out = str if context is None else context.token_out
        self.error_reporter.finish(errors, kind, token_out)


def _known(
    document: KnownDocument | None, name: str | None, extensions: Mapping[str, Any] | None
) -> KnownOperation | None:
    """Return the stored operation, if it can take the short path."""
    if document is None or (extensions and not extensions.keys().isdisjoint(_LONG_WAY)):
        return None
    return document.operations.get(name)


def _error(exc: Exception) -> GraphQLError:
    return exc if isinstance(exc, GraphQLError) else GraphQLError(str(exc), original_error=exc)


async def _once(result: ExecutionResult) -> AsyncGenerator[ExecutionResult]:
    yield result
