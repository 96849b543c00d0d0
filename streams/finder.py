"""Short reads: one message to the primary and one back; and for what is only shown, dates without a
time zone, which the driver makes twice as fast; they are UTC; and documents that come again and
again are the same objects (`streams.interning`).

What does not come in one batch, or fails for any reason but its time limit, is left to the driver's
cursor, which repeats what may be repeated and says what is wrong.

Source: docs/decisions/0031-wire.md
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import bson
import pymongo.errors

from streams.documents import DECODED, RAW, SHOWN, Document
from streams.interning import Interning
from streams.refusals import refused
from streams.unchanged import Unchanged
from streams.unions import PageUnion
from streams.wire_pool import WirePool

__all__ = ["Finder"]


class Finder:
    """Args:
        database: the driver's.
        interning: of what is only shown.

    Attributes:
        unchanged: pages of it that are not read again.
    """

    def __init__(self, wires: WirePool, database: Any, interning: Interning) -> None:
        self._interning = interning
        self._wires = wires.reads
        self._database = database
        self._extra: Document = {"$db": database.name}
        concern = database.read_concern.document
        if concern:
            self._extra["readConcern"] = concern
        self.unchanged = Unchanged(wires, interning, self._extra)

    async def first_batch(
        self, command: Document, *, naive: bool = False, raw: bool = False
    ) -> list[Any] | None:
        """All that a `find` or an `aggregate` finds; None where a cursor has to say it.

        Args:
            naive: without the time zone of dates, and documents that may be others', too.
            raw: not decoded.

        Raises:
            ExecutionTimeout: the driver's; it took longer than its `maxTimeMS`.
        """
        message = bson.encode({**command, **self._extra}, codec_options=DECODED)
        pages = None
        if naive and self.unchanged.worth(command):
            [known] = await self.unchanged.again(command["find"], [message])
            if known is not None:
                return known
            # Before it is read: what changes meanwhile may be missing.
            pages = self.unchanged.pages(command["find"])
        connection = await self._wires.checkout()
        if connection is None:
            return None
        begun = time.monotonic()
        reply = await connection.ask(message)
        if reply is None:
            return None
        if naive:
            interned = self._interning.documents(reply)
            if interned is not None:
                self.unchanged.heard(begun, reply)
                if pages is not None:
                    self.unchanged.keep(pages, message, interned)
                return interned
        found: Any
        if raw:
            found = bson.decode(bytes(reply), RAW)
        else:
            found = bson.decode(reply, SHOWN if naive else DECODED)
        if found.get("ok") != 1:
            failure = refused(found)
            if isinstance(failure, pymongo.errors.ExecutionTimeout):
                raise failure
            if isinstance(failure, pymongo.errors.ConnectionFailure):
                # It would be said of whatever is asked on it.
                connection.close()
            return None
        self.unchanged.heard(begun, reply)
        cursor = found["cursor"]
        if cursor["id"]:
            # It is longer than a message.
            collection = cursor["ns"].partition(".")[2]
            kill = {"killCursors": collection, "cursors": [cursor["id"]]}
            with suppress(pymongo.errors.PyMongoError):
                await self._database.command(kill)
            return None
        batch: list[Any] = cursor["firstBatch"]
        return batch

    async def find_each(
        self, collection: str, union: PageUnion, command: Document
    ) -> list[list[Document]] | None:
        """A page for each query, to be shown, those by one command that have to be read; None where
        they cannot be had so.

        Args:
            command: an `aggregate`, but for its pipeline.
        Raises: as `first_batch`.
        """
        if self.unchanged.pages(collection) is None:
            return await self._read(collection, union, command)
        names = union.names
        told = await self.unchanged.again(collection, names)
        missing = [n for n, page in enumerate(told) if page is None]
        if missing:
            # Before they are read: what changes meanwhile may be missing.
            pages = self.unchanged.pages(collection)
            rest = replace(union, queries=[union.queries[n] for n in missing])
            found = await self._read(collection, rest, command)
            if found is None:
                return None
            for n, page in zip(missing, found, strict=True):
                told[n] = page
                if pages is not None:
                    self.unchanged.keep(pages, names[n], page)
        return [page for page in told if page is not None]

    async def _read(
        self, collection: str, union: PageUnion, command: Document
    ) -> list[list[Document]] | None:
        pipeline = union.pipeline(collection)
        found = await self.first_batch({**command, "pipeline": pipeline}, naive=True)
        return None if found is None else union.parted(found)
