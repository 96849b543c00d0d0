"""Iteration over a server cursor in whole batches.

A batch is delivered or is not; no document stays in a driver's buffer when a task is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from pymongo.errors import PyMongoError

from revstream.streams.core.errors import GatewayError
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import translate_driver_errors

__all__ = ["cursor_batches"]

Ask: TypeAlias = Callable[[Document], Awaitable[Any]]

# Optional clean-up on the server is not waited for any longer.
_PARTING_S = 1.0


async def cursor_batches(
    ask: Ask,
    kill: Ask,
    collection: str,
    command: Document,
    *,
    size: int,
    wait_ms: int | None = None,
    ahead: bool = False,
) -> AsyncGenerator[Document]:
    """Run a command that opens a cursor, and yield each batch until the server closes the cursor.

    Yields `batch`, and `token`, the postBatchResumeToken of a change stream.

    Args:
        ask: Returns a command's reply, or raises as the driver does.
        kill: As `ask`; may be called while `ask` still waits.
        wait_ms: How long the server waits for the first document of a batch.
        ahead: Whether the next batch is requested before this one is yielded, so that the server
            creates it meanwhile. `ask` may then be cancelled, and one more batch be in memory.
    """
    with translate_driver_errors():
        reply = await ask(command)
    cursor, part = reply["cursor"], "firstBatch"
    more = {"getMore": cursor["id"], "collection": collection, "batchSize": size}
    if wait_ms is not None:
        more["maxTimeMS"] = wait_ms
    upcoming: asyncio.Task[Any] | None = None
    try:
        while True:
            if ahead and cursor["id"]:
                upcoming = asyncio.ensure_future(ask(more))
            yield {"batch": cursor[part], "token": cursor.get("postBatchResumeToken")}
            if not cursor["id"]:
                return
            with translate_driver_errors():
                reply = await (ask(more) if upcoming is None else upcoming)
            cursor, part = reply["cursor"], "nextBatch"
    finally:
        await cancel_and_wait(upcoming, expected=(PyMongoError,))
        if cursor["id"]:
            # An unreachable server has closed the cursor already.
            with suppress(GatewayError, TimeoutError), translate_driver_errors():
                async with asyncio.timeout(_PARTING_S):
                    await kill({"killCursors": collection, "cursors": [cursor["id"]]})
