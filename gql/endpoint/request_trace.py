"""Trace of a request or an operation, as its client names it (W3C Trace Context), and its id.

A WebSocket has no headers for each operation: there, an operation names its trace in `extensions`,
or the connection does for all of its operations, in the payload of `connection_init` or in the
request that opens it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from starlette.types import ASGIApp

from revstream.gql.observability.request_id import enter_operation_id
from revstream.streams.core.traceparent import TRACEPARENT, read_traceparent
from revstream.streams.core.tracing import Tracer

__all__ = ["enter_connection", "enter_operation", "enter_request", "trace_request"]

_NAME = "traceparent"
_ROUTE = "/graphql"


def enter_request(headers: Mapping[str, str]) -> None:
    """Set the trace of an HTTP request, or none: a connection may run several in one context."""
    TRACEPARENT.set(read_traceparent(headers.get(_NAME)))


def enter_connection(headers: Mapping[str, str], payload: object) -> None:
    """Set the trace of the operations of a WebSocket; their tasks copy this context."""
    given = payload.get(_NAME) if isinstance(payload, Mapping) else None
    TRACEPARENT.set(read_traceparent(given) or read_traceparent(headers.get(_NAME)))


def enter_operation(operation_id: str, extensions: Mapping[str, Any] | None) -> None:
    """Set the id of an operation of a WebSocket, and its trace if it names one, in its own task."""
    enter_operation_id(operation_id)
    given = read_traceparent(extensions.get(_NAME)) if extensions else None
    if given is not None:
        TRACEPARENT.set(given)


async def trace_request(
    tracer: Tracer, method: str, answering: Awaitable[ASGIApp | None]
) -> ASGIApp | None:
    """Record the span of an HTTP request, until its response is ready to be sent.

    Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
    """
    facts = {"http.request.method": method, "http.route": _ROUTE, "url.path": _ROUTE}
    with tracer.span(f"{method} {_ROUTE}", facts, kind="server") as span:
        response = await answering
        if response is not None:
            # Those of the API's own classes are 200.
            status = getattr(response, "status_code", 200)
            span.set({"http.response.status_code": status})
            if status >= 500:
                span.fail(str(status))
        return response
