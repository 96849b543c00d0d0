"""Short reads: one message to the primary and one reply.

For results that are only shown, dates lack their time zone (UTC): decoding then takes half the
time. A result of several batches, or a read that fails for another reason than its time limit, is
left to the driver's cursor, which retries and reports errors.

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
    """Reader of single-batch results over shared wire connections.

    Args:
        database: The driver's database.
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
        """Return the complete result of a `find` or `aggregate`; None where a driver's cursor is
        needed.

        Args:
            naive: Decode dates without a time zone.
            raw: Do not decode.

        Raises:
            ExecutionTimeout: The driver's; the read took longer than its `maxTimeMS`.
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
        # A large reply is decoded document by document.
        in_portions = size >= SMALL_BYTES
        found: Any
        if raw or in_portions:
            found = bson.decode(bytes(reply), RAW)
            # Copied by `bytes`; free the original.
            del reply, asked
        else:
            found = decode(reply, SHOWN if naive else DECODED)
        if found.get("ok") != 1:
            failure = error_from_reply(found)
            if isinstance(failure, pymongo.errors.ExecutionTimeout):
                raise failure
            if isinstance(failure, pymongo.errors.ConnectionFailure):
                # Every command on this connection would fail the same way.
                connection.close()
            return None
        cursor = found["cursor"]
        if cursor["id"]:
            # The result does not fit into one message.
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
