"""Ends of streaming responses: complete, interrupted, or closed by the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import pytest
from graphql import GraphQLError
from strawberry.types import ExecutionResult
from strawberry.types.execution import PreExecutionError

from revstream.gql.endpoint.streaming_response import StreamResponse, body_of, streamed
from revstream.gql.engine.request.context import SubscriptionPosition
from revstream.gql.http.stream_framing import MULTIPART, SSE, Framing
from revstream.streams.core.errors import (
    ArchiveBehind,
    GatewayError,
    HistoryLost,
    SlowConsumer,
    TimeLimit,
    Unavailable,
)

EVENT = ExecutionResult(data={"n": 1}, errors=None)
COMPLETE = b"event: complete\ndata:\n\n"


def failed(code: str, message: str = "for a reason") -> ExecutionResult:
    error = GraphQLError(message, path=["things"], extensions={"code": code})
    return ExecutionResult(data=None, errors=[error])


def interrupted(error: GatewayError) -> ExecutionResult:
    error.resubscribe = True
    extensions = {"code": error.code}
    wrapped = GraphQLError(error.message, original_error=error, extensions=extensions)
    return ExecutionResult(data=None, errors=[wrapped])


async def chunks(
    framing: Framing, *results: ExecutionResult, place: SubscriptionPosition | None = None
) -> list[bytes]:
    """Return all chunks but the opening."""

    async def source() -> AsyncGenerator[ExecutionResult]:
        for each in results:
            yield each

    stream = streamed(source(), framing, place or SubscriptionPosition(), 60)
    return [each async for each in stream][1:]


async def test_a_stream_that_has_ended_is_complete() -> None:
    """Each event has its token."""
    sent = await chunks(SSE, EVENT, place=SubscriptionPosition(token="t.x"))
    assert sent == [b'id: t.x\nevent: next\ndata: {"data":{"n":1}}\n\n', COMPLETE]


@pytest.mark.parametrize("code", ["BAD_USER_INPUT", "HISTORY_LOST", "INTERNAL", "UNAVAILABLE"])
async def test_a_permanent_error_is_sent_and_complete(code: str) -> None:
    """A reconnecting client would get it again, or repeat a mutation; it has no token."""
    event, end = await chunks(SSE, failed(code), place=SubscriptionPosition(token="t.x"))
    assert code.encode() in event
    assert b"id:" not in event
    assert end == COMPLETE


@pytest.mark.parametrize("kind", [SlowConsumer, Unavailable, TimeLimit, ArchiveBehind])
async def test_a_temporary_error_ends_a_stream_without_an_event(
    kind: type[GatewayError],
) -> None:
    """The client reconnects then, with or without earlier events."""
    comment = f": {kind.code} two lines\n\n".encode()
    assert await chunks(SSE, interrupted(kind("two\nlines"))) == [comment]
    assert (await chunks(SSE, EVENT, interrupted(kind("two\nlines")), EVENT))[1:] == [comment]


async def test_an_error_that_a_retry_does_not_fix_is_an_event() -> None:
    """Lost history stays lost."""
    error = HistoryLost("gone")
    wrapped = GraphQLError("gone", original_error=error, extensions=error.extensions)
    event, end = await chunks(SSE, ExecutionResult(data=None, errors=[wrapped]))
    assert (b"HISTORY_LOST" in event, end) == (True, COMPLETE)


async def test_every_error_is_sent_in_multipart() -> None:
    """These clients do not reconnect by themselves; the last boundary is always sent."""
    sent = await chunks(MULTIPART, EVENT, interrupted(Unavailable("away")))
    assert b'{"payload":{"data":{"n":1}}}' in sent[0]
    assert b'"payload":null' in sent[1]
    assert b"UNAVAILABLE" in sent[1]
    assert sent[-1].endswith(b"--graphql--\r\n")
    assert (await chunks(MULTIPART, EVENT))[-1] == b"--\r\n"


def test_data_are_present_once_execution_began() -> None:
    """They are null after an error; they are missing without execution."""
    assert body_of(failed("TIMEOUT")).keys() == {"errors", "data"}
    refused = [GraphQLError("no such field")]
    assert body_of(ExecutionResult(data=None, errors=refused)).keys() == {"errors"}
    not_begun = PreExecutionError(data=None, errors=failed("BAD_USER_INPUT").errors)
    assert body_of(not_begun).keys() == {"errors"}


@pytest.mark.parametrize("sending", [False, True], ids=["while it waits", "while it sends"])
async def test_a_client_that_disconnects_ends_its_operation(sending: bool) -> None:
    """The operation's cleanup is complete before the response is over."""
    closed = []
    gone = asyncio.Event()

    async def source() -> AsyncGenerator[ExecutionResult]:
        try:
            yield EVENT
            gone.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append("operation")

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if sending and b"next" in message.get("body", b""):
            gone.set()
            await asyncio.Event().wait()

    response = StreamResponse(streamed(source(), SSE, SubscriptionPosition(), 60), SSE.media_type)
    await asyncio.wait_for(response({"type": "http"}, receive, send), 30)
    assert closed == ["operation"]


@pytest.mark.parametrize("framing", [SSE, MULTIPART], ids=["SSE", "multipart"])
async def test_all_results_of_a_stream_are_produced_in_one_context(framing: Framing) -> None:
    """A subscription sets once by which operation it reads."""
    operation: ContextVar[int] = ContextVar("operation", default=0)

    async def source() -> AsyncGenerator[ExecutionResult]:
        operation.set(7)
        for _ in range(3):
            yield ExecutionResult(data={"operation": operation.get()}, errors=None)

    sent = [each async for each in streamed(source(), framing, SubscriptionPosition(), 60)]
    assert b"".join(sent).count(b'{"operation":7}') == 3
    assert operation.get() == 0


async def test_an_idle_stream_sends_heartbeats() -> None:
    """The next result is not lost."""
    ready = asyncio.Event()

    async def source() -> AsyncGenerator[ExecutionResult]:
        await ready.wait()
        yield EVENT

    beats = 0
    stream = streamed(source(), SSE, SubscriptionPosition(), 0.01)
    assert (await anext(stream)).startswith(b"retry: ")
    async for chunk in stream:
        if chunk != SSE.heartbeat:
            break
        beats += 1
        if beats == 3:
            ready.set()
    assert b'{"n":1}' in chunk
    assert [each async for each in stream] == [COMPLETE]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_fault_of_a_stream_is_reported_once(
    cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The server logs what the response raises; a response that is cancelled logs it itself."""
    fault = ZeroDivisionError("a fault")

    async def source() -> AsyncGenerator[ExecutionResult]:
        yield EVENT
        raise fault

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        sending = asyncio.current_task()
        if cancelled and sending is not None:
            sending.add_done_callback(lambda _: responding.cancel())
            raise fault

    response = StreamResponse(streamed(source(), SSE, SubscriptionPosition(), 60), SSE.media_type)
    responding = asyncio.create_task(response({"type": "http"}, receive, send))
    await asyncio.wait([responding])
    assert responding.cancelled() == cancelled
    assert cancelled or responding.exception() is fault
    logged = [each.exc_info[1] for each in caplog.records if each.exc_info]
    assert logged == ([fault] if cancelled else [])
