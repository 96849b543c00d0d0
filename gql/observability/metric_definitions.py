"""Definitions of all metrics: name, type, labels and help.

`gql.runtime.metrics_endpoint` reads them; docs/reference/metrics.md has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Described"]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric; the name of a counter includes `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


_EACH = ("collection",)
_LISTENER = ("listener",)
_PART = ("collection", "partition")

METRICS: tuple[Described, ...] = (
    Described(
        "revstream_build_info", "gauge", ("version",), "Always 1; the label is the running version."
    ),
    Described("revstream_ready", "gauge", (), "1 if /readyz answers 200."),
    Described("revstream_stream_connected", "gauge", (), "1 while the live change stream is open."),
    Described(
        "revstream_stream_silent_seconds",
        "gauge",
        (),
        "Time since the live change stream last answered; it answers ten times a second.",
    ),
    Described(
        "revstream_stream_reconnects_total",
        "counter",
        (),
        "How often the live change stream was interrupted and opened again.",
    ),
    Described(
        "revstream_oplog_seconds", "gauge", (), "Age of the oplog's oldest entry, if readable."
    ),
    Described(
        "revstream_stream_events_total",
        "counter",
        _EACH,
        "Events received from the live change stream.",
    ),
    Described(
        "revstream_ring_events",
        "gauge",
        _EACH,
        "Events in the ring buffer, for clients that reconnect.",
    ),
    Described("revstream_ring_bytes", "gauge", _EACH, "Approximate memory of the ring buffer."),
    Described("revstream_subscriptions", "gauge", _EACH, "Subscriptions, replaying or live."),
    Described(
        "revstream_subscriptions_shared",
        "gauge",
        _EACH,
        "Subscriptions in a broadcast group, executed once for the whole group.",
    ),
    Described(
        "revstream_subscribers",
        "gauge",
        _EACH,
        "Subscribers of the live stream; a broadcast group is one.",
    ),
    Described(
        "revstream_backlog_deepest_events",
        "gauge",
        _EACH,
        "Events that wait for the slowest subscriber.",
    ),
    Described(
        "revstream_slow_consumers_total",
        "counter",
        _EACH,
        "Subscribers that were ended because their backlog was full.",
    ),
    Described(
        "revstream_delivered_changes_total",
        "counter",
        (*_EACH, "source"),
        "Changes delivered to subscriptions: live, from a replay, or from a snapshot.",
    ),
    Described(
        "revstream_recorder_lag_seconds",
        "gauge",
        _PART,
        "Age of the oldest change that is not yet archived, whichever process records; 0 if "
        "there is none; if this process has not seen it, the age of the checkpoint.",
    ),
    Described(
        "revstream_recorder_lag_events",
        "gauge",
        _PART,
        "Changes that are not yet archived, whichever process records; at most the size of "
        "the ring buffer.",
    ),
    Described(
        "revstream_recorder_lease_held",
        "gauge",
        _PART,
        "1 if this process records the partition; over all processes the sum is 1.",
    ),
    Described(
        "revstream_recorder_fencing_token",
        "gauge",
        _PART,
        "Fencing token of the lease that this process holds or held last; 0 if it never held one.",
    ),
    Described(
        "revstream_recorder_lease_changes_total",
        "counter",
        _PART,
        "Number of times that this process has acquired the lease.",
    ),
    Described(
        "revstream_recorder_fences_refused_total",
        "counter",
        _PART,
        "Writes of this process that were refused because another process holds the lease.",
    ),
    Described(
        "revstream_recorder_interruptions_total",
        "counter",
        _PART,
        "Number of times that recording stopped because MongoDB was unreachable.",
    ),
    Described(
        "revstream_recorder_reconnects_total",
        "counter",
        _PART,
        "Number of times that the recorder's change stream was interrupted and opened again.",
    ),
    Described(
        "revstream_recorder_batches_total",
        "counter",
        _PART,
        "Batches of the change stream that were recorded, empty ones included.",
    ),
    Described(
        "revstream_recorder_versions_total", "counter", _PART, "Versions written to the archive."
    ),
    Described(
        "revstream_recorder_duplicates_total",
        "counter",
        _PART,
        "Events skipped because they were archived already.",
    ),
    Described(
        "revstream_recorder_skipped_total",
        "counter",
        _PART,
        "Events skipped for another reason: left to the initial snapshot, or their document "
        "is already deleted.",
    ),
    Described("revstream_recorder_gaps_total", "counter", _PART, "Versions marked with a gap."),
    Described(
        "revstream_recorder_unrecorded_total",
        "counter",
        _PART,
        "First versions of documents that existed before recording began and whose earlier "
        "state is unknown; they are marked with a gap, and not counted in the metric above.",
    ),
    Described(
        "revstream_recorder_set_aside_total",
        "counter",
        _PART,
        "Change events that were set aside; for a document whose _id no driver keeps, one per"
        " minute.",
    ),
    Described(
        "revstream_recorder_first_reading_documents",
        "gauge",
        _PART,
        "Documents written by the initial snapshot; reported by the recording process.",
    ),
    Described(
        "revstream_recorder_first_reading_done",
        "gauge",
        _PART,
        "1 once the initial snapshot is complete.",
    ),
    Described(
        "revstream_retention_versions_total",
        "counter",
        _EACH,
        "Versions that this process has deleted by retention.",
    ),
    Described(
        "revstream_retention_failures_total",
        "counter",
        _EACH,
        "Retention passes of this process that MongoDB did not finish; the next pass continues.",
    ),
    Described(
        "revstream_listener_lease_held",
        "gauge",
        _LISTENER,
        "1 if this process runs the listener (copies, sinks, your own).",
    ),
    Described(
        "revstream_listener_lag_seconds",
        "gauge",
        _LISTENER,
        "Age of the oldest change that the listener has not handled; reported by the process "
        "that runs it. If this process has not seen the change, the age of the checkpoint.",
    ),
    Described(
        "revstream_listener_versions_total",
        "counter",
        _LISTENER,
        "Versions that the listener has handled in this process.",
    ),
    Described(
        "revstream_listener_failures_total",
        "counter",
        _LISTENER,
        "Failures of the listener in this process; it tries again after each.",
    ),
    Described(
        "revstream_copies_written_total",
        "counter",
        _LISTENER,
        "Writes by which this process has set copies (@copy).",
    ),
    Described(
        "revstream_copies_refused_total",
        "counter",
        _LISTENER,
        "Copies that MongoDB has refused to this process because of the document, as by a "
        "validator; the log has the document.",
    ),
    Described(
        "revstream_copies_left",
        "gauge",
        _LISTENER,
        "Documents that are still to be checked because a source of many copies has changed; "
        "reported by the process that runs the listener.",
    ),
    Described(
        "revstream_sink_delivered_total",
        "counter",
        _LISTENER,
        "Events that the receiver has accepted from this process, repeated ones included.",
    ),
    Described(
        "revstream_sink_failed_total",
        "counter",
        _LISTENER,
        "Delivery attempts of this process that the receiver did not accept.",
    ),
    Described(
        "revstream_sink_delivery_seconds_total",
        "counter",
        _LISTENER,
        "Duration of all delivery attempts of this process, failed ones included.",
    ),
    Described(
        "revstream_sink_waiting_documents",
        "gauge",
        _LISTENER,
        "Documents with undelivered events, parked ones included; reported by the process "
        "that runs the listener.",
    ),
    Described(
        "revstream_sink_parked_documents",
        "gauge",
        _LISTENER,
        "Documents with parked deliveries, which wait for an operator (revstream deliveries).",
    ),
    Described(
        "revstream_sink_paused",
        "gauge",
        _LISTENER,
        "1 while the receiver accepts nothing; reported by the process that runs the listener.",
    ),
    Described(
        "revstream_socket_operations",
        "gauge",
        (),
        "Operations that run on WebSockets, subscriptions included.",
    ),
    Described("revstream_sockets", "gauge", (), "Open WebSockets."),
    Described(
        "revstream_sockets_buffered_bytes",
        "gauge",
        (),
        "Bytes in the buffers of all WebSockets, input and output.",
    ),
    Described(
        "revstream_sockets_refused_total",
        "counter",
        (),
        "Handshakes answered with 503 because the maximum of WebSockets was open.",
    ),
    Described(
        "revstream_sockets_dropped_total",
        "counter",
        ("reason",),
        "WebSockets closed because their clients read nothing (stalled), the buffers were "
        "full and theirs the largest (memory), or hundreds of messages came at once (flood).",
    ),
    Described(
        "revstream_http_connections", "gauge", (), "Open HTTP connections, streams included."
    ),
    Described(
        "revstream_http_connections_displaced_total",
        "counter",
        (),
        "HTTP connections that waited for their clients and were closed to make room.",
    ),
    Described(
        "revstream_http_connections_refused_total",
        "counter",
        (),
        "HTTP connections, or requests on them, that were refused because the maximum was open.",
    ),
    Described(
        "revstream_http_buffered_bytes",
        "gauge",
        (),
        "Approximate unread bytes in the buffers of HTTP connections.",
    ),
    Described(
        "revstream_http_unread_total",
        "counter",
        (),
        "HTTP connections closed because the buffers were full and theirs the largest.",
    ),
    Described(
        "revstream_http_stalled_total",
        "counter",
        (),
        "HTTP responses aborted because their clients read nothing.",
    ),
    Described("revstream_operations_executing", "gauge", (), "Queries and mutations that execute."),
    Described("revstream_operations_waiting", "gauge", (), "Operations that wait for a slot."),
    Described(
        "revstream_operations_suspended",
        "gauge",
        (),
        "Operations that wait for the archive or for memory, without a slot.",
    ),
    Described(
        "revstream_operations_waiting_for_memory",
        "gauge",
        (),
        "Operations that read much, and wait until fewer others do.",
    ),
    Described(
        "revstream_operations_total",
        "counter",
        ("document",),
        "Operations begun, by whether their document was `known` or `new`.",
    ),
    Described(
        "revstream_lookups_total",
        "counter",
        (),
        "Lookups of current documents and version numbers by id.",
    ),
    Described(
        "revstream_lookup_reads_total",
        "counter",
        (),
        "Reads for these lookups; lookups at the same time share one read.",
    ),
    Described(
        "revstream_operations_shed_total",
        "counter",
        (),
        "Operations refused with 503 because the maximum was waiting.",
    ),
    Described(
        "revstream_operations_failed_total",
        "counter",
        ("kind", "code"),
        "Responses and events with errors, by the first error's code.",
    ),
    Described(
        "revstream_compiled_fallbacks_total",
        "counter",
        ("place", "reason"),
        "Compiled queries, or objects of a response, that graphql-core executed instead: after an "
        "error, for an unusual value, or after an exception in generated code (logged).",
    ),
    Described(
        "revstream_operation_seconds", "histogram", ("kind",), "Duration of queries and mutations."
    ),
)
