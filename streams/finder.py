"""Short reads: one command in one hop to a thread; and for what is only shown, dates without a time
zone, which the driver makes twice as fast; they are UTC.

A driver's cursor, its options and its retries cost as much as the read itself. What does not come
in one batch, or fails for a reason that may have passed, is left to it.

Source: docs/benchmarks.md
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

import pymongo
import pymongo.errors
from bson import CodecOptions
from pymongo.client_session import ClientSession

from streams.documents import DECODED, SHOWN, Document

__all__ = ["Finder"]

# Reads wait in their threads for the server, so that there are more of them than cores; fewer at
# once are no cheaper (measured: 3, 4 and 16).
_THREADS = 16

_Codec: TypeAlias = "CodecOptions[Document]"
_Found: TypeAlias = "asyncio.Future[list[Document] | None]"


class Finder:
    """Args:
    client: PyMongo's own, not asyncio's.
    """

    def __init__(self, client: pymongo.MongoClient[Document], name: str) -> None:
        self._client = client
        self._database = client.get_database(name)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="find")
        # Each thread has a session of its own: to make one takes a fifth of a short command.
        self._of_thread = threading.local()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def first_batch(self, command: Document, *, naive: bool) -> list[Document] | None:
        """All that a `find` or an `aggregate` finds; None where a cursor has to say it.

        Args:
            naive: without the time zone of dates.

        Raises: as the driver.
        """
        loop = asyncio.get_running_loop()
        found: _Found = loop.create_future()
        # Not `run_in_executor`, whose two futures that follow one another cost as much as the hop.
        codec = SHOWN if naive else DECODED
        self._threads.submit(self._answer, command, codec, found, loop)
        return await found

    def _answer(
        self, command: Document, codec: _Codec, found: _Found, loop: asyncio.AbstractEventLoop
    ) -> None:
        """In a thread."""
        batch, failure = None, None
        try:
            if not found.cancelled():
                batch = self._read(command, codec)
        except BaseException as exc:
            failure = exc
        with suppress(RuntimeError):  # the loop has ended meanwhile, and with it who asked
            loop.call_soon_threadsafe(_settle, found, batch, failure)

    def _session(self) -> ClientSession:
        found: ClientSession | None = getattr(self._of_thread, "session", None)
        if found is None:
            found = self._of_thread.session = self._client.start_session(causal_consistency=False)
        return found

    def _read(self, command: Document, codec: _Codec) -> list[Document] | None:
        session = self._session()
        given = self._database.read_concern.document
        if given:
            # Which `command` leaves to its caller.
            command = {**command, "readConcern": given}
        try:
            reply = self._database.command(
                command,
                codec_options=codec,
                read_preference=self._database.read_preference,
                session=session,
            )
        except pymongo.errors.ConnectionFailure:
            # Or the primary has changed; a cursor would try again.
            del self._of_thread.session
            session.end_session()
            return None
        cursor = reply["cursor"]
        if cursor["id"]:
            # It is longer than a message.
            collection = cursor["ns"].partition(".")[2]
            kill = {"killCursors": collection, "cursors": [cursor["id"]]}
            self._database.command(kill, session=session)
            return None
        batch: list[Document] = cursor["firstBatch"]
        return batch


def _settle(found: _Found, batch: list[Document] | None, failure: BaseException | None) -> None:
    if found.done():
        return
    if failure is None:
        found.set_result(batch)
    else:
        found.set_exception(failure)
