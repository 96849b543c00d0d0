"""Spans of commands to MongoDB, below those of the operation that sends them.

The driver reports its commands to `CommandSpans`; a wire connection reports its own by
`trace_message`. A span has the names of the command and of the collection, and no values.

Source: https://opentelemetry.io/docs/specs/semconv/db/mongodb/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import monitoring

from revstream.streams.core import tracing
from revstream.streams.mongo.driver.codecs import RAW

__all__ = ["CommandSpans", "trace_message"]

_Address = tuple[str, int | None]


class CommandSpans(monitoring.CommandListener):
    """Listener that records the commands of a driver's client.

    Motor calls it in its threads, with the context of the task that waits.
    """

    def __init__(self) -> None:
        self._running: dict[int, tracing.Span] = {}

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        span = _begin(event.command, event.command_name, event.database_name, event.connection_id)
        if span is not None:
            self._running[event.request_id] = span

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        span = self._running.pop(event.request_id, None)
        if span is not None:
            span.end()

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        span = self._running.pop(event.request_id, None)
        if span is not None:
            _fail(span, event.failure)
            span.end()


def trace_message(
    message: bytes, address: _Address, asked: asyncio.Future[memoryview | None]
) -> None:
    """Record a command in BSON, from now until its reply.

    Args:
        asked: its reply, or None if the connection ended before.
    """
    if tracing.installed() is None:
        return
    command = RawBSONDocument(message, RAW)
    span = _begin(command, next(iter(command)), command["$db"], address)
    if span is None:
        return

    def end(asked: asyncio.Future[memoryview | None]) -> None:
        if asked.cancelled() or (reply := asked.result()) is None:
            span.fail("NoReply")
        else:
            _fail(span, RawBSONDocument(bytes(reply), RAW))
        span.end()

    asked.add_done_callback(end)


def _begin(
    command: Mapping[str, Any], name: str, database: str, address: _Address
) -> tracing.Span | None:
    tracer = tracing.installed()
    # An operation may be the one for which a connection is opened and authenticated.
    if tracer is None or name.startswith("sasl"):
        return None
    target = command.get("collection" if name == "getMore" else name)
    facts: dict[str, str | int] = {
        "db.system.name": "mongodb",
        "db.namespace": database,
        "db.operation.name": name,
        "server.address": address[0],
    }
    if address[1] is not None:
        facts["server.port"] = address[1]
    if isinstance(target, str):
        facts["db.collection.name"] = target
        return tracer.command(f"{name} {target}", facts)
    return tracer.command(name, facts)


def _fail(span: tracing.Span, reply: Mapping[str, Any]) -> None:
    if reply.get("ok") != 1:
        code = str(reply.get("code", "NoReply"))
        span.set({"db.response.status_code": code})
        span.fail(str(reply.get("codeName") or code))
