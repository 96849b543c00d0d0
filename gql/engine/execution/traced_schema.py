"""Spans of operations: one for each, by the semantic conventions for GraphQL servers.

The span of a query or a mutation contains its execution; that of a subscription ends with its first
event, since it may last for days. A span has neither the document nor variables.

Source: https://opentelemetry.io/docs/specs/semconv/graphql/graphql-spans/
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any

from strawberry.schema.exceptions import InvalidOperationTypeError
from strawberry.types import ExecutionResult

from revstream.gql.engine.execution.document_cache import KnownOperation
from revstream.gql.engine.execution.schema import Schema
from revstream.gql.observability.tracing import describe_operation
from revstream.streams.core import tracing
from revstream.streams.core.traceparent import TRACEPARENT

__all__ = ["TracedSchema"]

_UNNAMED = "GraphQL Operation"


class TracedSchema(Schema):
    """Schema whose operations are recorded, for a process with a tracer."""

    def execute(self, *given: Any, **named: Any) -> Coroutine[Any, Any, ExecutionResult]:
        executing = super().execute(*given, **named)
        tracer = tracing.installed()
        return executing if tracer is None else _executed(tracer, executing)

    async def stream(self, *given: Any, **named: Any) -> Any:
        results = await super().stream(*given, **named)
        tracer = tracing.installed()
        # The span of the request has ended when the results are read.
        return results if tracer is None else _streamed(tracer, results, TRACEPARENT.get())

    def _execute_known(
        self, known: KnownOperation, *given: Any
    ) -> Coroutine[Any, Any, ExecutionResult]:
        describe_operation(known.kind_name, known.name)
        return super()._execute_known(known, *given)

    def _begun(self, known: KnownOperation, *given: Any) -> Any:
        describe_operation(known.kind_name, known.name)
        return super()._begun(known, *given)


async def _executed(
    tracer: tracing.Tracer, executing: Coroutine[Any, Any, ExecutionResult]
) -> ExecutionResult:
    with tracer.span(_UNNAMED, {}, kind="server") as span:
        try:
            result = await executing
        except InvalidOperationTypeError:
            # A subscription, which the caller streams, or a mutation by GET.
            span.drop()
            raise
        _note(span, result)
        return result


async def _streamed(
    tracer: tracing.Tracer, results: AsyncGenerator[ExecutionResult], parent: str | None
) -> AsyncGenerator[ExecutionResult]:
    async with aclosing(results):
        with tracer.span(_UNNAMED, {}, kind="server", parent=parent) as span:
            first = await anext(results, None)
            if first is not None:
                _note(span, first)
        if first is not None:
            yield first
        async for each in results:
            yield each


def _note(span: tracing.Span, result: ExecutionResult) -> None:
    if result.errors:
        span.fail(str((result.errors[0].extensions or {}).get("code", "errors")))
