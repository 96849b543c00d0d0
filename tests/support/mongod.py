"""A mongod for the duration of a context, managed by an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from revstream.gql.runtime.embedded.embedded_mongod import embedded_mongod

_IN_MEMORY = "/dev/shm"
_ROOM = 8 * 2**30


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a directory in memory where there is room.

    Each majority write is synchronized, which takes milliseconds on a disk. pytest's `tmp_path`
    would keep the directories of the last three runs.
    """
    roomy = os.path.isdir(_IN_MEMORY) and shutil.disk_usage(_IN_MEMORY).free > _ROOM
    where = _IN_MEMORY if roomy else None
    with tempfile.TemporaryDirectory(prefix="revstream-tests-", dir=where) as name:
        yield Path(name)


@contextmanager
def running_mongod(directory: Path) -> Iterator[str]:
    """Yield the URI of a mongod. Its thread is independent of the event loops of tests.

    Its oplog is small: a gateway on a new database begins at the oldest entry.
    """
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def hold() -> None:
        async with embedded_mongod(directory, cache_gb=0.5, oplog_mb=512) as uri:
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
