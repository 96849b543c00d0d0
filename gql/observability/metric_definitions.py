"""Every metric once: its name, type, labels, and what it says. `gql.runtime.metrics_endpoint`
reads them, docs/operating.md has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Described"]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric; a counter's name is given as it is shown, with `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    says: str


_EACH = ("collection",)
_LISTENER = ("listener",)
_PART = ("collection", "partition")

METRICS: tuple[Described, ...] = (
    Described("revstream_build_info", "gauge", ("version",), "Always 1; says which version runs."),
    Described("revstream_ready", "gauge", (), "1 where /readyz answers 200."),
    Described("revstream_stream_connected", "gauge", (), "1 while the live change stream is open."),
    Described(
        "revstream_stream_silent_seconds",
        "gauge",
        (),
        "Since the live change stream was last heard of; it speaks ten times a second.",
    ),
    Described(
        "revstream_stream_reconnects_total",
        "counter",
        (),
        "How often the live change stream was interrupted and opened again.",
    ),
    Described(
        "revstream_stream_events_total",
        "counter",
        _EACH,
        "Events that the live change stream has brought.",
    ),
    Described("revstream_ring_events", "gauge", _EACH, "Events in memory, for who reconnects."),
    Described("revstream_ring_bytes", "gauge", _EACH, "About what these events take in memory."),
    Described("revstream_subscriptions", "gauge", _EACH, "Subscriptions, replaying or live."),
    Described(
        "revstream_subscriptions_shared",
        "gauge",
        _EACH,
        "Those that are told the same as others, executed once for all of them.",
    ),
    Described(
        "revstream_subscribers",
        "gauge",
        _EACH,
        "Followers of the live stream; shared ones are one.",
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
        "Changes handed to subscriptions: live, of a replay, or of a snapshot.",
    ),
    Described(
        "revstream_recorder_lag_seconds",
        "gauge",
        _PART,
        "Age of the oldest change that is not yet archived, whichever process records; 0 where "
        "there is none; where this process has not seen it, the age of the place come to.",
    ),
    Described(
        "revstream_recorder_lag_events",
        "gauge",
        _PART,
        "Changes that are not yet archived, whichever process records; no more than a ring holds.",
    ),
    Described(
        "revstream_recorder_lease_held",
        "gauge",
        _PART,
        "1 where this process records the partition; over all processes the sum is 1.",
    ),
    Described(
        "revstream_recorder_fencing_token",
        "gauge",
        _PART,
        "Of the lease that this process holds or held last; 0 where it never held one.",
    ),
    Described(
        "revstream_recorder_lease_changes_total",
        "counter",
        _PART,
        "How often this process has taken the lease.",
    ),
    Described(
        "revstream_recorder_fences_refused_total",
        "counter",
        _PART,
        "How often a write of this process was refused because another one had taken over.",
    ),
    Described(
        "revstream_recorder_interruptions_total",
        "counter",
        _PART,
        "How often recording ended because MongoDB could not be reached.",
    ),
    Described(
        "revstream_recorder_reconnects_total",
        "counter",
        _PART,
        "How often the recorder's own change stream was interrupted and opened again.",
    ),
    Described(
        "revstream_recorder_batches_total",
        "counter",
        _PART,
        "Round trips of the change stream that were recorded, empty ones too.",
    ),
    Described(
        "revstream_recorder_versions_total", "counter", _PART, "Versions written to the archive."
    ),
    Described(
        "revstream_recorder_duplicates_total",
        "counter",
        _PART,
        "Events passed over because they were archived already.",
    ),
    Described(
        "revstream_recorder_skipped_total",
        "counter",
        _PART,
        "Events passed over for another reason: left to the first reading, or their document is "
        "gone again.",
    ),
    Described(
        "revstream_recorder_gaps_total",
        "counter",
        _PART,
        "Versions marked as standing behind a gap.",
    ),
    Described(
        "revstream_recorder_unrecorded_total",
        "counter",
        _PART,
        "First versions of documents that were there before recording began, and of which the "
        "state before is not known; they are marked as gaps, and not counted among those.",
    ),
    Described(
        "revstream_recorder_set_aside_total",
        "counter",
        _PART,
        "Change events that were set aside; of a document whose _id no driver keeps, one in a "
        "minute.",
    ),
    Described(
        "revstream_recorder_first_reading_documents",
        "gauge",
        _PART,
        "Documents that the reading of what was there before has written; told by who records.",
    ),
    Described(
        "revstream_recorder_first_reading_done", "gauge", _PART, "1 once that reading is complete."
    ),
    Described(
        "revstream_retention_versions_total",
        "counter",
        _EACH,
        "Versions that this process has dropped because the model keeps no more.",
    ),
    Described(
        "revstream_retention_failures_total",
        "counter",
        _EACH,
        "Passes of this process that MongoDB has refused to finish; the next one goes on.",
    ),
    Described(
        "revstream_listener_lease_held",
        "gauge",
        _LISTENER,
        "1 where this process does the work of that listener (copies, sinks, your own).",
    ),
    Described(
        "revstream_listener_lag_seconds",
        "gauge",
        _LISTENER,
        "The age of the oldest change that it has yet to handle; told by who does its work. Where "
        "this process has not seen it, the age of the place come to.",
    ),
    Described(
        "revstream_listener_versions_total",
        "counter",
        _LISTENER,
        "Versions that this process has handed to it and that it has handled.",
    ),
    Described(
        "revstream_listener_failures_total",
        "counter",
        _LISTENER,
        "Failures of it in this process, after each of which it tries again.",
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
        "Copies that MongoDB has refused this process for the sake of the document, as by a "
        "validator; the log says which.",
    ),
    Described(
        "revstream_copies_left",
        "gauge",
        _LISTENER,
        "Documents that are yet to be looked at because a source of many copies has changed; told "
        "by who does the work.",
    ),
    Described(
        "revstream_sink_delivered_total",
        "counter",
        _LISTENER,
        "Events that the receiver has taken from this process, repeated ones too.",
    ),
    Described(
        "revstream_sink_failed_total",
        "counter",
        _LISTENER,
        "Attempts of this process at which the receiver did not take the event.",
    ),
    Described(
        "revstream_sink_delivery_seconds_total",
        "counter",
        _LISTENER,
        "How long all attempts of this process took, those that failed too.",
    ),
    Described(
        "revstream_sink_waiting_documents",
        "gauge",
        _LISTENER,
        "Documents whose events were set aside, parked ones too; told by who does its work.",
    ),
    Described(
        "revstream_sink_parked_documents",
        "gauge",
        _LISTENER,
        "Documents that wait for somebody to look at them (revstream deliveries).",
    ),
    Described(
        "revstream_sink_paused",
        "gauge",
        _LISTENER,
        "1 while the receiver takes nothing at all; told by who does its work.",
    ),
    Described(
        "revstream_socket_operations",
        "gauge",
        (),
        "Operations that now run on WebSockets, subscriptions among them.",
    ),
    Described("revstream_sockets", "gauge", (), "WebSockets that are open."),
    Described(
        "revstream_sockets_buffered_bytes",
        "gauge",
        (),
        "What lies in the buffers of all WebSockets, coming in and going out.",
    ),
    Described(
        "revstream_sockets_refused_total",
        "counter",
        (),
        "Handshakes answered with 503, since as many WebSockets were open as may be.",
    ),
    Described(
        "revstream_sockets_dropped_total",
        "counter",
        ("reason",),
        "WebSockets closed because their clients took nothing off them (stalled), buffers were "
        "full and theirs the largest (memory), or hundreds of messages came at once (flood).",
    ),
    Described(
        "revstream_http_connections",
        "gauge",
        (),
        "HTTP connections that are open, streams included.",
    ),
    Described(
        "revstream_http_connections_displaced_total",
        "counter",
        (),
        "HTTP connections that waited for their clients, and were closed to make room.",
    ),
    Described(
        "revstream_http_connections_refused_total",
        "counter",
        (),
        "HTTP connections, or requests over them, that were refused since there was no room.",
    ),
    Described(
        "revstream_http_buffered_bytes",
        "gauge",
        (),
        "About what lies in the buffers of HTTP connections whose clients read slowly, or not.",
    ),
    Described(
        "revstream_http_unread_total",
        "counter",
        (),
        "HTTP connections that were closed because buffers were full and theirs the largest.",
    ),
    Described(
        "revstream_http_stalled_total",
        "counter",
        (),
        "Responses over HTTP that were cut off because their clients took nothing of them.",
    ),
    Described("revstream_operations_executing", "gauge", (), "Queries and mutations under way."),
    Described("revstream_operations_waiting", "gauge", (), "Those that wait for a place."),
    Described(
        "revstream_operations_suspended",
        "gauge",
        (),
        "Those that wait for the archive or for memory, without a place.",
    ),
    Described(
        "revstream_operations_waiting_for_memory",
        "gauge",
        (),
        "Those that read much, and wait until fewer others do.",
    ),
    Described(
        "revstream_operations_total",
        "counter",
        ("document",),
        "Those begun, by whether their document was `known` or `new`.",
    ),
    Described(
        "revstream_lookups_total", "counter", (), "Current documents and numbers asked for by id."
    ),
    Described(
        "revstream_lookup_reads_total",
        "counter",
        (),
        "Reads that these took; those asked for together are one.",
    ),
    Described(
        "revstream_operations_shed_total",
        "counter",
        (),
        "Those that were told to try again, because as many waited as may.",
    ),
    Described(
        "revstream_operations_failed_total",
        "counter",
        ("kind", "code"),
        "Responses and events with errors, by the first one's code.",
    ),
    Described(
        "revstream_compiled_fallbacks_total",
        "counter",
        ("place", "reason"),
        "Compiled queries, or objects of a response, that graphql-core executed instead: after an "
        "error, for an unusual value, or after an exception in generated code (logged).",
    ),
    Described(
        "revstream_operation_seconds",
        "histogram",
        ("kind",),
        "How long queries and mutations took.",
    ),
)
