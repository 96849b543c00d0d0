"""Endpoint of Prometheus metrics: values are read from the services at each request.

Source: docs/reference/metrics.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.observability.metric_definitions import METRICS
from revstream.gql.observability.operation_metrics import Operations
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.server.websocket_connection import Connections
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.coordination.partition import Partition, model_partitions
from revstream.streams.listeners.consumer import Consumer
from revstream.streams.listeners.copies.listeners import CopySourceListener, CopyTargetListener
from revstream.streams.listeners.webhooks.sink import Sink

__all__ = ["metrics_route"]

_Sample = tuple[str, Sequence[str], float]


class _Process(Collector):
    def __init__(
        self,
        gateway: Gateway,
        operations: Operations,
        limiter: ConcurrencyLimiter,
        connections: Connections,
    ) -> None:
        self._gateway = gateway
        self._operations = operations
        self._limiter = limiter
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for each in METRICS:
            if each.kind != "histogram":
                kind = CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily
                families[each.name] = kind(each.name, each.help, labels=each.labels)
        for name, labels, value in self._samples():
            families[f"revstream_{name}"].add_metric(labels, value)
        yield from families.values()
        yield self._operations.durations()

    def _samples(self) -> Iterator[_Sample]:
        gateway = self._gateway
        yield "build_info", (_version(),), 1
        yield "ready", (), not gateway.not_ready()
        yield "stream_connected", (), gateway.source.connected
        yield "stream_silent_seconds", (), time.monotonic() - gateway.hub.moved_at
        yield "stream_reconnects_total", (), gateway.source.reconnects
        if gateway.oplog.seconds is not None:
            yield "oplog_seconds", (), gateway.oplog.seconds
        yield "socket_operations", (), self._operations.on_sockets
        yield "sockets", (), len(self._connections)
        yield "sockets_buffered_bytes", (), self._connections.held_bytes
        yield "sockets_refused_total", (), self._connections.refused
        for reason, count in self._connections.dropped.items():
            yield "sockets_dropped_total", (reason,), count
        http = self._connections.http
        yield "http_connections", (), len(http)
        yield "http_connections_displaced_total", (), http.displaced
        yield "http_connections_refused_total", (), http.refused
        yield "http_buffered_bytes", (), http.unread_bytes
        yield "http_unread_total", (), http.unread
        yield "http_stalled_total", (), self._connections.stalled
        yield "operations_executing", (), self._limiter.executing
        yield "operations_waiting", (), self._limiter.waiting
        yield "operations_suspended", (), self._limiter.suspended
        yield "operations_waiting_for_memory", (), self._limiter.large_reads.waiting
        for document, count in self._operations.begun.items():
            yield "operations_total", (document,), count
        yield "lookups_total", (), gateway.services.current.lookups.asked
        yield "lookup_reads_total", (), gateway.services.current.lookups.reads
        yield "operations_shed_total", (), self._limiter.shed
        for labels, count in self._operations.failed.items():
            yield "operations_failed_total", labels, count
        for labels, count in self._operations.fallbacks.counts.items():
            yield "compiled_fallbacks_total", labels, count
        for (collection, source), count in gateway.services.live.delivered.items():
            yield "delivered_changes_total", (collection, source), count
        for name in (*(each.collection for each in gateway.model.entities), *gateway.hub.topics):
            yield from self._of_collection(name)
        yield from self._of_recorders()

    def _of_collection(self, name: str) -> Iterator[_Sample]:
        hub = self._gateway.hub.statistics(name)
        yield "stream_events_total", (name,), hub["published"]
        yield "ring_events", (name,), hub["ring_events"]
        yield "ring_bytes", (name,), hub["ring_bytes"]
        gateway = self._gateway
        following = (
            gateway.services.live.following[name] + gateway.services.proposals.following[name]
        )
        yield "subscriptions", (name,), following
        yield "subscriptions_shared", (name,), gateway.services.live.joined[name]
        yield "subscribers", (name,), hub["subscribers"]
        yield "backlog_deepest_events", (name,), hub["deepest_backlog"]
        yield "slow_consumers_total", (name,), hub["slow_consumers"]

    def _of_recorders(self) -> Iterator[_Sample]:
        gateway = self._gateway
        for each in model_partitions(gateway.model):
            yield "recorder_lag_seconds", _labels(each), gateway.progress.lag_s(each)
            yield "recorder_lag_events", _labels(each), gateway.progress.lag_events(each)
        for recorder, listener in zip(gateway.recorders, gateway.listeners, strict=True):
            name, found = _labels(recorder.partition), recorder.statistics()
            yield "recorder_lease_held", name, listener.lease is not None
            yield "recorder_fencing_token", name, listener.fencing_token
            yield "recorder_lease_changes_total", name, listener.changes
            yield "recorder_fences_refused_total", name, listener.fences_refused
            yield "recorder_interruptions_total", name, listener.interruptions
            yield "recorder_reconnects_total", name, found["reconnects"]
            yield "recorder_batches_total", name, found["batches"]
            yield "recorder_versions_total", name, found["versions"]
            yield "recorder_duplicates_total", name, found["duplicates"]
            yield "recorder_skipped_total", name, found["skipped"]
            yield "recorder_gaps_total", name, found["gaps"]
            yield "recorder_unrecorded_total", name, found["unrecorded"]
            yield "recorder_set_aside_total", name, found["set_aside"]
            if listener.lease is not None:
                yield "recorder_first_reading_documents", name, found["baseline_documents"]
                yield "recorder_first_reading_done", name, found["baseline_done"]
        for retention, _ in gateway.retentions:
            of, counts = (retention.collection,), retention.statistics()
            yield "retention_versions_total", of, counts["versions"]
            yield "retention_failures_total", of, counts["failures"]
        for consumer, listener in gateway.consumers:
            of = (consumer.name,)
            yield "listener_lease_held", of, listener.lease is not None
            yield "listener_versions_total", of, consumer.versions
            yield "listener_failures_total", of, consumer.failures
            if listener.lease is not None:
                yield "listener_lag_seconds", of, consumer.lag_s
            if isinstance(consumer.handler, Sink):
                yield from self._of_sink(consumer, consumer.handler, listener)
            yield from self._of_copies(consumer, listener.lease is not None)

    def _of_copies(self, consumer: Consumer, held: bool) -> Iterator[_Sample]:
        side, of = consumer.handler, (consumer.name,)
        if isinstance(side, CopySourceListener | CopyTargetListener):
            yield "copies_written_total", of, side.setter.written
            yield "copies_refused_total", of, side.setter.refused
        if isinstance(side, CopySourceListener) and held:
            yield "copies_left", of, side.left

    def _of_sink(self, consumer: Consumer, sink: Sink, listener: LeasedTask) -> Iterator[_Sample]:
        of, found = (sink.name,), sink.statistics()
        yield "sink_delivered_total", of, found["delivered"]
        yield "sink_failed_total", of, found["failed"]
        yield "sink_delivery_seconds_total", of, found["seconds"]
        if listener.lease is not None:
            yield "sink_waiting_documents", of, found["waiting"]
            yield "sink_parked_documents", of, found["parked"]
            yield "sink_paused", of, consumer.trouble is not None


def _labels(partition: Partition) -> tuple[str, str]:
    return partition.collection, f"{partition.index + 1}/{partition.count}"


def _version() -> str:
    try:
        return version("revstream")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "unknown"


def metrics_route(
    gateway: Gateway, operations: Operations, limiter: ConcurrencyLimiter, connections: Connections
) -> Route:
    """`GET /metrics`: this table, and what the operating system says of the process."""
    registry = CollectorRegistry()
    registry.register(_Process(gateway, operations, limiter, connections))
    ProcessCollector(registry=registry)

    async def metrics(request: Request) -> Response:
        await gateway.ask_positions()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", metrics)
