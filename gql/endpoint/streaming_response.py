"""Streaming HTTP response of a subscription: server-sent events, or multipart for Apollo Client.

Guarantees: each event of a subscription has its resume token as `id`, so that an `EventSource` that
reconnects sends it back as `Last-Event-ID`. `complete` is sent only if there is nothing to resume:
a client that was too slow, whose sign-in has expired, or whose gateway shuts down gets a checkpoint
and the end of the stream without `complete`, and reconnects. In multipart that is a transport
error, for which Apollo's RetryLink reconnects. The disconnect of a client ends its operation.

Source: PROTOCOL.md of enisdenjo/graphql-sse, "Distinct connections mode"; HTML, 9.2 Server-sent
events; Apollo's "Multipart subscriptions over HTTP"; RFC 2046, 5.1.1. docs/decisions/0023
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import copy_context
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send
from strawberry.types import ExecutionResult
from strawberry.types.execution import PreExecutionError

from revstream.gql.engine.request.context import SubscriptionPosition
from revstream.gql.http.media_types import MediaType
from revstream.gql.http.stream_framing import Framing
from revstream.gql.subscriptions.interruption import interruption_of
from revstream.streams.core.task_cleanup import cancel_and_wait

__all__ = ["StreamResponse", "body_of", "streamed"]

_CLIENT_LEFT = (ClientDisconnect, OSError)


def body_of(result: ExecutionResult) -> dict[str, Any]:
    """Return the response map of a result, without `data` if execution did not begin.

    Source: the GraphQL specification, 7.1 "Response Format".
    """
    body: dict[str, Any] = {}
    if result.errors:
        body["errors"] = [each.formatted for each in result.errors]
    # An error with a path was raised by a field, or by the start of a subscription: execution
    # began, even if no data are left.
    began = not isinstance(result, PreExecutionError)
    if result.data is not None or (began and any(each.path for each in result.errors or ())):
        body["data"] = result.data
    if result.extensions:
        body["extensions"] = result.extensions
    return body


async def streamed(
    results: AsyncGenerator[ExecutionResult],
    framing: Framing,
    place: SubscriptionPosition,
    heartbeat_s: float,
) -> AsyncGenerator[bytes]:
    """Generate the chunks of a response, without those that a broadcast group writes directly.

    Args:
        place: position of the subscription.
    """
    yield framing.opening()
    async with aclosing(_with_beats(results, heartbeat_s)) as beats:
        async for result in beats:
            if result is None:
                yield framing.heartbeat
                continue
            body = body_of(result)
            if interruption_of(result) is not None:
                yield framing.interrupted(body)
                return
            failed = result.data is None and result.errors
            yield framing.result(orjson.dumps(body), None if failed else place.token)
    yield framing.complete


async def _with_beats(
    results: AsyncGenerator[ExecutionResult], every_s: float
) -> AsyncGenerator[ExecutionResult | None]:
    """Yield the results, and None after each interval without a result."""
    waiting: asyncio.Task[ExecutionResult] | None = None
    # One context for all tasks: a subscription sets its operation in it once.
    context = copy_context()

    async def following() -> ExecutionResult:
        return await anext(results)

    async with aclosing(results):
        try:
            while True:
                if waiting is None:
                    waiting = asyncio.create_task(following(), context=context)
                # Not wait_for, which would cancel the task.
                done, _ = await asyncio.wait({waiting}, timeout=every_s)
                if not done:
                    yield None
                    continue
                try:
                    result = waiting.result()
                except StopAsyncIteration:
                    return
                waiting = None
                yield result
        finally:
            if waiting is not None:
                await cancel_and_wait(waiting)


class StreamResponse:
    """ASGI application that sends chunks until the client disconnects."""

    def __init__(self, chunks: AsyncGenerator[bytes], media_type: MediaType) -> None:
        self._chunks = chunks
        self._headers = {
            "content-type": str(media_type),
            # A proxy must neither cache the stream nor wait for its end.
            "cache-control": "no-store, no-transform",
            "x-accel-buffering": "no",
            "x-content-type-options": "nosniff",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not Starlette's StreamingResponse: its cancelled scope would interrupt the cleanup of an
        # operation again and again, such as closing its cursors.
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.cancelled():
                with contextlib.suppress(*_CLIENT_LEFT):
                    sending.result()
        finally:
            await cancel_and_wait(gone, sending, expected=_CLIENT_LEFT)

    async def _send(self, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        async with aclosing(self._chunks) as chunks:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
