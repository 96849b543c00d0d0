"""A mongod for as long as a context lasts, run by a loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from gql.embedded import embedded_mongod


@contextmanager
def running_mongod(directory: Path) -> Iterator[str]:
    """Yield its URI. The thread keeps it apart from the loops of tests, and lives until the end."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def hold() -> None:
        async with embedded_mongod(directory) as uri:
            done = asyncio.Event()
            started.set_result((uri, asyncio.get_running_loop(), done))
            await done.wait()

    def run() -> None:
        try:
            asyncio.run(hold())
        except BaseException as exc:
            if started.done():
                raise
            started.set_exception(exc)

    thread = Thread(target=run, name="mongod")
    thread.start()
    try:
        uri, loop, done = started.result()
        try:
            yield uri
        finally:
            loop.call_soon_threadsafe(done.set)
    finally:
        thread.join()
