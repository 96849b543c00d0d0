"""Results one after the other in one HTTP response: as server-sent events, or in multipart as
Apollo Client takes them.

Guarantees: each event of a subscription carries the resume token that stands behind it as its `id`,
so that an `EventSource` that connects again says by `Last-Event-ID` where it was. `complete` is
said only where there is nothing to come back for: who was cut off, was too slow, or is served by a
gateway that shuts down, and whose sign-in has expired, finds the stream ended without it behind a
checkpoint, and connects again. In multipart that is an error of the transport, which Apollo's
RetryLink answers so. A client that is gone ends its operation.

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
    """What is sent of a result. `data` is not in it where execution did not begin.

    Source: the GraphQL specification, 7.1 "Response Format".
    """
    body: dict[str, Any] = {}
    if result.errors:
        body["errors"] = [each.formatted for each in result.errors]
    # The error of a field names its path, also where it leaves nothing of the data; one that a
    # subscription could not begin with does, too.
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
    """The chunks of a response, but for those that are written elsewhere meanwhile.

    Args:
        place: where the subscription stands whose results these are.
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
    """None whenever nothing has come for so long."""
    waiting: asyncio.Task[ExecutionResult] | None = None
    # One for all: a subscription sets in it, once, by which operation it reads.
    context = copy_context()

    async def following() -> ExecutionResult:
        return await anext(results)

    async with aclosing(results):
        try:
            while True:
                if waiting is None:
                    waiting = asyncio.create_task(following(), context=context)
                # Not wait_for, which would cancel what it waits for.
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
    """A response of chunks, for as long as its client is there; an ASGI application."""

    def __init__(self, chunks: AsyncGenerator[bytes], media_type: MediaType) -> None:
        self._chunks = chunks
        self._headers = {
            "content-type": str(media_type),
            # It is not the same a moment later, and a proxy must not wait for its end.
            "cache-control": "no-store, no-transform",
            "x-accel-buffering": "no",
            "x-content-type-options": "nosniff",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Not Starlette's own: its cancelled scope would interrupt again and again what an
        # operation does to end, such as closing its cursors.
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = sending.done() and not sending.cancelled()
            await cancel_and_wait(gone, *([] if ended else [sending]), expected=_CLIENT_LEFT)
        if ended:
            with contextlib.suppress(*_CLIENT_LEFT):
                sending.result()

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
