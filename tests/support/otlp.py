"""Receiver of OpenTelemetry's spans over OTLP/HTTP, as a collector is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["ReceivedSpan", "SpanCollector", "running_collector"]

_KINDS = {1: "internal", 2: "server", 3: "client"}


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """One span; ids are hexadecimal, `parent` is empty for a root, `links` are (trace, span)."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]
    attributes: dict[str, Any]
    failed: bool
    resource: dict[str, Any]


@dataclass
class SpanCollector:
    """The received spans, in order of arrival, and the bytes that contained them."""

    port: int = 0
    spans: list[ReceivedSpan] = field(default_factory=list)
    received: bytes = b""

    def named(self, name: str) -> list[ReceivedSpan]:
        return [each for each in self.spans if each.name == name]

    def children(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        return [
            each for each in self.spans if (each.trace, each.parent) == (parent.trace, parent.id)
        ]

    def lines(self) -> str:
        """Return the spans as text: each below its parent, with its ids, links and attributes."""
        known = {each.id for each in self.spans}
        found: list[str] = []

        def add(span: ReceivedSpan, depth: int) -> None:
            links = "".join(f" link={trace}/{id_}" for trace, id_ in span.links)
            facts = " ".join(f"{name}={value}" for name, value in span.attributes.items())
            place = f"trace={span.trace} span={span.id} parent={span.parent or '-'}"
            found.append(f"{'  ' * depth}{span.name} [{span.kind}] {place}{links} {facts}")
            for child in self.children(span):
                add(child, depth + 1)

        for each in self.spans:
            if each.parent not in known:
                add(each, 0)
        return "\n".join(found)

    def take(self, body: bytes) -> None:
        self.received += body
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            resource = _plain(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans += [_received(each, resource) for each in scope.spans]


@contextmanager
def running_collector() -> Iterator[SpanCollector]:
    """Collect the spans that are posted to `/v1/traces`."""
    collector = SpanCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            assert "content-encoding" not in self.headers
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=_KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=[(each.trace_id.hex(), each.span_id.hex()) for each in span.links],
        attributes=_plain(span.attributes),
        failed=span.status.code == 2,
        resource=resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "") for each in attributes
    }
