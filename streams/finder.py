"""Short reads for what is only shown: one command in one hop to a thread, and dates without a time
zone, which the driver makes twice as fast; they are UTC.

A driver's cursor, its options and its retries cost as much as the read itself. What does not come
in one batch, or fails for a reason that may have passed, is left to it.

Source: docs/benchmarks.md
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pymongo
import pymongo.errors

from streams.documents import SHOWN, Document

__all__ = ["Finder"]

# Reads wait in their threads for the server, so that there are more of them than cores.
_THREADS = 16


class Finder:
    """Args:
    client: PyMongo's own, not asyncio's.
    """

    def __init__(self, client: pymongo.MongoClient[Document], name: str) -> None:
        self._client = client
        self._database = client.get_database(name, codec_options=SHOWN)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="find")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def first_batch(self, command: Document) -> list[Document] | None:
        """All that a `find` finds; None where a cursor has to say it.

        Raises: as the driver.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, command)

    def _read(self, command: Document) -> list[Document] | None:
        given = self._database.read_concern.document
        if given:
            # Which `command` leaves to its caller.
            command = {**command, "readConcern": given}
        try:
            reply = self._database.command(
                command, codec_options=SHOWN, read_preference=self._database.read_preference
            )
        except pymongo.errors.ConnectionFailure:
            # Or the primary has changed; a cursor would try again.
            return None
        cursor = reply["cursor"]
        if cursor["id"]:
            # It is longer than a message.
            kill = {"killCursors": command["find"], "cursors": [cursor["id"]]}
            self._database.command(kill)
            return None
        batch: list[Document] = cursor["firstBatch"]
        return batch
