"""Spans of commands: those of the driver, and those of wire connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo import monitoring

from revstream.streams.core import tracing
from revstream.streams.mongo.driver.command_spans import CommandSpans, trace_message

ADDRESS = ("127.0.0.1", 27017)
FIND = {"find": "things", "filter": {"name": "a-value"}, "$db": "shop"}


class RecordedSpan:
    def __init__(self, name: str, attributes: tracing.Attributes) -> None:
        self.name, self.attributes = name, dict(attributes)
        self.traceparent: str | None = None
        self.failed, self.ended = "", 0

    def rename(self, name: str) -> None:
        raise AssertionError("a command has one name")

    def set(self, attributes: tracing.Attributes) -> None:
        self.attributes |= attributes

    def fail(self, kind: str, reason: str = "") -> None:
        self.failed = kind

    def drop(self) -> None:
        raise AssertionError("a command was sent")

    def end(self) -> None:
        self.ended += 1


class RecordingTracer:
    """Tracer of commands only; none is recorded while `idle`."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self.idle = False

    def span(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("only commands are sent")

    def running(self) -> Any:
        raise AssertionError("only commands are sent")

    def command(self, name: str, attributes: tracing.Attributes) -> RecordedSpan | None:
        if self.idle:
            return None
        self.spans.append(RecordedSpan(name, attributes))
        return self.spans[-1]


@pytest.fixture
def tracer() -> Iterator[RecordingTracer]:
    """Install a tracer for the test."""
    made = RecordingTracer()
    tracing.install(made)
    yield made
    tracing.install(None)


def started(command: dict[str, Any], request: int = 1) -> monitoring.CommandStartedEvent:
    return monitoring.CommandStartedEvent(command, "shop", request, ADDRESS, None)


def succeeded(request: int = 1) -> monitoring.CommandSucceededEvent:
    reply = {"ok": 1}
    return monitoring.CommandSucceededEvent(timedelta(), reply, "find", request, ADDRESS, None)


async def reply_to(command: dict[str, Any], reply: bytes | None) -> None:
    """Send a command over a wire connection, and receive its reply."""
    asked: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
    trace_message(bson.encode(command), ADDRESS, asked)
    asked.set_result(None if reply is None else memoryview(reply))
    await asyncio.sleep(0)


async def test_a_command_has_the_names_of_what_it_reads_and_no_values(
    tracer: RecordingTracer,
) -> None:
    """The driver's commands and those of wire connections have the same attributes."""
    spans = CommandSpans()
    spans.started(started(FIND))
    spans.succeeded(
        monitoring.CommandSucceededEvent(timedelta(), {"ok": 1}, "find", 1, ADDRESS, None)
    )
    await reply_to(FIND, bson.encode({"ok": 1}))
    for each in tracer.spans:
        assert (each.name, each.failed, each.ended) == ("find things", "", 1)
        assert each.attributes == {
            **{"db.system.name": "mongodb", "db.namespace": "shop", "db.operation.name": "find"},
            **{"db.collection.name": "things"},
            **{"server.address": "127.0.0.1", "server.port": 27017},
        }
    assert len(tracer.spans) == 2


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ({"getMore": 7, "collection": "things"}, "getMore things"),
        ({"aggregate": 1, "pipeline": []}, "aggregate"),
        ({"commitTransaction": 1}, "commitTransaction"),
    ],
)
async def test_a_command_without_a_collection_is_named_alone(
    tracer: RecordingTracer, command: dict[str, Any], name: str
) -> None:
    """A cursor has its collection in another field."""
    await reply_to({**command, "$db": "shop"}, bson.encode({"ok": 1}))
    assert [each.name for each in tracer.spans] == [name]


async def test_a_command_that_fails_is_a_failed_span(tracer: RecordingTracer) -> None:
    """It has the code, and not the message, which may have values; a lost reply fails too."""
    failure = {"ok": 0, "code": 50, "codeName": "MaxTimeMSExpired", "errmsg": "a-value"}
    spans = CommandSpans()
    spans.started(started(FIND))
    spans.failed(monitoring.CommandFailedEvent(timedelta(), failure, "find", 1, ADDRESS, None))
    await reply_to(FIND, bson.encode(failure))
    await reply_to(FIND, None)
    expected = ["MaxTimeMSExpired", "MaxTimeMSExpired", "NoReply"]
    assert [each.failed for each in tracer.spans] == expected
    assert [each.ended for each in tracer.spans] == [1, 1, 1]
    codes = [each.attributes.get("db.response.status_code") for each in tracer.spans]
    assert codes == ["50", "50", None]
    assert not [each for each in tracer.spans if "a-value" in str(each.attributes)]


async def test_authentication_and_background_commands_are_not_recorded(
    tracer: RecordingTracer,
) -> None:
    """They leave no span, and their ends change nothing."""
    spans = CommandSpans()
    spans.started(started({"saslStart": 1}))
    tracer.idle = True
    spans.started(started(FIND, request=2))
    spans.succeeded(
        monitoring.CommandSucceededEvent(timedelta(), {"ok": 1}, "find", 2, ADDRESS, None)
    )
    spans.failed(monitoring.CommandFailedEvent(timedelta(), {"ok": 0}, "find", 3, ADDRESS, None))
    await reply_to(FIND, bson.encode({"ok": 1}))
    assert tracer.spans == []
