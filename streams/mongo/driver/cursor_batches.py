"""What each round trip of a server's cursor brings: whole batches, which are handed over or are
not, so that nothing lies in a driver's buffer when a task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from revstream.streams.core.errors import GatewayError
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import translate_driver_errors

__all__ = ["cursor_batches"]

Ask: TypeAlias = Callable[[Document], Awaitable[Any]]

# What is only courtesy to the server is not waited for any longer.
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
    """Run a command that opens a cursor, until the server closes it: `batch`, and `token`, the
    postBatchResumeToken of a change stream.

    Args:
        ask, kill: give a command's reply, or raise as the driver does; the second may be asked
            while the first still waits.
        wait_ms: how long the server waits for the first document of a batch.
        ahead: whether the next batch is asked for before this one is handed over, so that the
            server makes it meanwhile; `ask` may then be cancelled, and one batch more be in memory.
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
        await cancel_and_wait(upcoming)
        if cursor["id"]:
            # A server that is gone has freed it already.
            with suppress(GatewayError, TimeoutError), translate_driver_errors():
                async with asyncio.timeout(_PARTING_S):
                    await kill({"killCursors": collection, "cursors": [cursor["id"]]})
