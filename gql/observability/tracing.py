"""Tracing of a process: on where the settings say so, and the ids of traces in log lines."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import click

from revstream.streams.core import tracing
from revstream.streams.core.traceparent import TRACEPARENT

__all__ = ["add_trace_ids", "describe_operation", "traced"]


@contextmanager
def traced(*, enabled: bool) -> Iterator[None]:
    """Record spans inside this context, and send the last ones at its end.

    Raises:
        click.UsageError: the packages of the extra `otel` are missing, or a variable is invalid.
    """
    if not enabled:
        yield
        return
    try:
        # An extra of the distribution; nothing else imports it.
        sdk = importlib.import_module("revstream.gql.observability.opentelemetry_sdk")
    except ImportError as exc:
        raise click.UsageError(
            f"--tracing: {exc.name} is not installed, expected the extra otel; run pip install "
            '"revstream[otel]"'
        ) from exc
    tracer = sdk.OpenTelemetryTracer(version("revstream"))
    tracing.install(tracer)
    try:
        yield
    finally:
        tracing.install(None)
        tracer.close()


def describe_operation(kind: str, name: str | None) -> None:
    """Add the kind and the name of a GraphQL operation to the running span, which is its own.

    Args:
        kind: query, mutation or subscription; "unknown" adds nothing.

    Source: https://opentelemetry.io/docs/specs/semconv/graphql/graphql-spans/
    """
    tracer = tracing.installed()
    if tracer is None or kind == "unknown":
        return
    span = tracer.running()
    # Without the name, which clients choose: there may be any number of them.
    span.rename(kind)
    named = {} if name is None else {"graphql.operation.name": name}
    span.set({"graphql.operation.type": kind, **named})


def add_trace_ids(record: logging.LogRecord) -> bool:
    """Add the trace of the running work to a log line, and its span; a filter that passes all."""
    traceparent = TRACEPARENT.get()
    if traceparent is not None:
        record.trace_id, record.span_id = traceparent[3:35], traceparent[36:52]
    return True
