"""Short reads: one message to the primary and one back; and for what is only shown, dates without a
time zone, which the driver makes twice as fast; they are UTC.

What does not come in one batch, or fails for any reason but its time limit, is left to the driver's
cursor, which repeats what may be repeated and says what is wrong.

Source: docs/decisions/0031-wire.md
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import bson
import pymongo.errors

from revstream.streams.core.read_memory import SMALL_BYTES
from revstream.streams.mongo.client_reads import count_lost_reply, count_reply, decode_portions
from revstream.streams.mongo.driver.codecs import DECODED, RAW, SHOWN, Document, decode
from revstream.streams.mongo.driver.error_translation import error_from_reply
from revstream.streams.mongo.wire.pool import WirePool

__all__ = ["SingleBatchReader"]


class SingleBatchReader:
    """Args:
    database: the driver's.
    """

    def __init__(self, wires: WirePool, database: Any) -> None:
        self._wires = wires.reads
        self._database = database
        self._extra: Document = {"$db": database.name}
        concern = database.read_concern.document
        if concern:
            self._extra["readConcern"] = concern

    async def first_batch(
        self, command: Document, *, naive: bool = False, raw: bool = False
    ) -> list[Any] | None:
        """All that a `find` or an `aggregate` finds; None where a cursor has to say it.

        Args:
            naive: without the time zone of dates.
            raw: not decoded.

        Raises:
            ExecutionTimeout: the driver's; it took longer than its `maxTimeMS`.
        """
        message = bson.encode({**command, **self._extra}, codec_options=DECODED)
        connection = await self._wires.checkout()
        if connection is None:
            return None
        asked = connection.ask(message)
        try:
            reply = await asked
        except asyncio.CancelledError:
            connection.abandon(asked)
            raise
        if reply is None:
            return None
        size = len(reply)
        # A large one is decoded document by document.
        in_portions = size >= SMALL_BYTES
        found: Any
        if raw or in_portions:
            found = bson.decode(bytes(reply), RAW)
            # Copied, and not to be kept as well.
            del reply, asked
        else:
            found = decode(reply, SHOWN if naive else DECODED)
        if found.get("ok") != 1:
            failure = error_from_reply(found)
            if isinstance(failure, pymongo.errors.ExecutionTimeout):
                raise failure
            if isinstance(failure, pymongo.errors.ConnectionFailure):
                # It would be said of whatever is asked on it.
                connection.close()
            return None
        cursor = found["cursor"]
        if cursor["id"]:
            # It is longer than a message.
            collection = cursor["ns"].partition(".")[2]
            kill = {"killCursors": collection, "cursors": [cursor["id"]]}
            del found, cursor
            with suppress(pymongo.errors.PyMongoError):
                await self._database.command(kill)
            count_lost_reply(size)
            return None
        count_reply(size)
        batch: list[Any] = cursor["firstBatch"]
        if raw or not in_portions:
            return batch
        return await decode_portions(batch, SHOWN if naive else DECODED)
