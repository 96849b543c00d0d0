"""Trace of a request or an operation, as its client names it (W3C Trace Context).

A WebSocket has no headers for each operation: there, an operation names its trace in `extensions`,
or the connection does for all of its operations, in the payload of `connection_init` or in the
request that opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from revstream.streams.core.traceparent import TRACEPARENT, read_traceparent

__all__ = ["enter_connection", "enter_operation", "enter_request"]

_NAME = "traceparent"


def enter_request(headers: Mapping[str, str]) -> None:
    """Set the trace of an HTTP request, or none: a connection may run several in one context."""
    TRACEPARENT.set(read_traceparent(headers.get(_NAME)))


def enter_connection(headers: Mapping[str, str], payload: object) -> None:
    """Set the trace of the operations of a WebSocket; their tasks copy this context."""
    given = payload.get(_NAME) if isinstance(payload, Mapping) else None
    TRACEPARENT.set(read_traceparent(given) or read_traceparent(headers.get(_NAME)))


def enter_operation(extensions: Mapping[str, Any] | None) -> None:
    """Set the trace of an operation of a WebSocket, if it names one, in its own task."""
    given = read_traceparent(extensions.get(_NAME)) if extensions else None
    if given is not None:
        TRACEPARENT.set(given)
