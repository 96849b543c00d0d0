"""Tracer that records spans with OpenTelemetry's SDK: the only module that imports OpenTelemetry.

It is imported only if tracing is on, since its packages belong to the extra `otel`. The standard
variables `OTEL_…` configure it.

Source: docs/how-to/trace.md; https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from revstream.streams.core.traceparent import TRACEPARENT
from revstream.streams.core.tracing import Attributes, Kind

__all__ = ["OpenTelemetryTracer"]

_PROTOCOL = "http/protobuf"
# Maximum time to send the last spans to a collector that may be away.
_SHUTDOWN_S = 5.0
_KINDS: Mapping[Kind, trace.SpanKind] = {
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
    "internal": trace.SpanKind.INTERNAL,
}


class OpenTelemetryTracer:
    """`Tracer` over a provider of its own; close it to send the last spans.

    Raises:
        click.UsageError: a variable asks for an exporter that there is not.
    """

    def __init__(self, version: str) -> None:
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "revstream"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = _exporter()
        if exporter is not None:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("revstream", version)
        self._text = TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send the spans that are left, within some seconds."""
        # The SDK has no bound of its own that is this short.
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_SHUTDOWN_S)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        links: Sequence[str] = (),
    ) -> Iterator[_Span]:
        if parent is None and not trace.get_current_span().get_span_context().is_valid:
            parent = TRACEPARENT.get()
        made = self._tracer.start_span(
            name,
            None if parent is None else self._context(parent),
            _KINDS[kind],
            attributes,
            [trace.Link(self._place(each)) for each in links],
        )
        span = _Span(made)
        own = span.traceparent
        token = None if own is None else TRACEPARENT.set(own)
        try:
            # Without exceptions, whose texts may have contents of documents.
            with trace.use_span(made, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as exc:
            span.fail(type(exc).__name__)
            raise
        finally:
            if token is not None:
                TRACEPARENT.reset(token)
            span.end()

    def command(self, name: str, attributes: Attributes) -> _Span | None:
        if not trace.get_current_span().is_recording():
            return None
        return _Span(
            self._tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes)
        )

    def running(self) -> _Span:
        return _Span(trace.get_current_span())

    def _context(self, traceparent: str) -> Context:
        return self._text.extract({"traceparent": traceparent}, Context())

    def _place(self, traceparent: str) -> trace.SpanContext:
        return trace.get_current_span(self._context(traceparent)).get_span_context()


class _Span:
    def __init__(self, made: trace.Span) -> None:
        self._made = made
        self._dropped = False

    @property
    def traceparent(self) -> str | None:
        if not self._made.is_recording():
            return None
        place = self._made.get_span_context()
        ids = trace.format_trace_id(place.trace_id), trace.format_span_id(place.span_id)
        return f"00-{'-'.join(ids)}-{place.trace_flags:02x}"

    def rename(self, name: str) -> None:
        self._made.update_name(name)

    def set(self, attributes: Attributes) -> None:
        self._made.set_attributes(attributes)

    def fail(self, kind: str, reason: str = "") -> None:
        self._made.set_attribute("error.type", kind)
        self._made.set_status(trace.StatusCode.ERROR, reason or None)

    def drop(self) -> None:
        # Only spans that end are exported.
        self._dropped = True

    def end(self) -> None:
        if not self._dropped:
            self._made.end()


def _exporter() -> SpanExporter | None:
    """Create the exporter that the environment asks for.

    Raises:
        click.UsageError: there is none of that name.
    """
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "none":
        return None
    if name == "console":
        return ConsoleSpanExporter()
    if name != "otlp":
        raise click.UsageError(f"OTEL_TRACES_EXPORTER: {name}, expected otlp, console or none")
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable)
        if protocol and protocol != _PROTOCOL:
            raise click.UsageError(
                f"{variable}: {protocol}, expected {_PROTOCOL}; send to the collector's port for "
                "it, which usually is 4318"
            )
    return OTLPSpanExporter()
