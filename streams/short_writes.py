"""Short writes: one message to the primary and one back, and again where it is not known what has
become of the first.

Guarantees: what is made is made once. It is repeated under the same session and number, by which
the server knows that it has made it, as by the driver's retryable writes.

Source: docs/decisions/0031-wire.md; MongoDB's specifications, retryable-writes.md.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import bson
import pymongo.errors
from bson.binary import Binary
from bson.int64 import Int64

from streams.client import MongoOptions
from streams.documents import DECODED, Document
from streams.refusals import refused
from streams.wire import WireConnection
from streams.wire_pool import SharedWires

__all__ = ["ShortWrites"]

# What is longer the driver divides: a server takes no message above 48 MB, of which 16 MB are the
# command itself.
_MOST_BYTES = 8 * 1024 * 1024
_AGAIN_S = 0.05
_REPEATABLE = "RetryableWriteError"


class _Session:
    """The server's: one write at a time has it. It forgets one that nobody has had for half an
    hour."""

    def __init__(self) -> None:
        self.id = {"id": Binary(uuid.uuid4().bytes, 4)}
        self.number = 0


class ShortWrites:
    """Args:
    database: the driver's.
    """

    def __init__(self, wires: SharedWires, database: Any, options: MongoOptions) -> None:
        self._wires = wires
        self._extra: Document = {"$db": database.name}
        if database.write_concern.document:
            self._extra["writeConcern"] = database.write_concern.document
        # As the MongoDB URI has it.
        self._repeat = bool(database.client.options.retry_writes)
        self._selection_s = options.server_selection_s
        self._sessions: list[_Session] = []

    async def run(self, command: Document) -> Document | None:
        """What the server says to it; None where the driver has to make it: nothing was sent then.

        Raises:
            PyMongoError: as the driver.

        Cancellation: safe; the write was made or was not.
        """
        if not self._repeat:
            return None
        session = self._sessions.pop() if self._sessions else _Session()
        session.number += 1
        made = {"lsid": session.id, "txnNumber": Int64(session.number)}
        message = bson.encode({**command, **made, **self._extra}, codec_options=DECODED)
        connection = None if len(message) > _MOST_BYTES else await self._wires.checkout()
        reply = None if connection is None else await self._made(connection, message)
        # Who has no reply has no session either: his write may still be at it.
        self._sessions.append(session)
        if reply is not None:
            _check(reply)
        return reply

    async def close(self) -> None:
        """Tell the server that its sessions are not needed any more."""
        ids = [each.id for each in self._sessions]
        connection = await self._wires.checkout() if ids else None
        if connection is not None:
            await connection.ask(bson.encode({"endSessions": ids, "$db": "admin"}))

    async def _made(self, connection: WireConnection, message: bytes) -> Document:
        """Asked again for as long as there is no telling, and a primary may be found."""
        loop = asyncio.get_running_loop()
        until = 0.0
        while True:
            try:
                reply = await _asked(connection, message)
                if _REPEATABLE not in reply.get("errorLabels", ()) or 0 < until < loop.time():
                    return reply
            except pymongo.errors.ConnectionFailure:
                if 0 < until < loop.time():
                    raise
            if until:
                await asyncio.sleep(_AGAIN_S)
            until = until or loop.time() + self._selection_s
            connection = await self._another(until)

    async def _another(self, until: float) -> WireConnection:
        """To a primary, also where one is being elected."""
        while (connection := await self._wires.checkout()) is None:
            if asyncio.get_running_loop().time() > until:
                raise pymongo.errors.AutoReconnect("connection closed, and there is no primary")
            await asyncio.sleep(_AGAIN_S)
        return connection


async def _asked(connection: WireConnection, message: bytes) -> Document:
    """The reply.

    Raises:
        ConnectionFailure: the driver's; to be asked again, of another primary perhaps.
    """
    try:
        said = await connection.ask(message)
    except asyncio.CancelledError:
        # Or it would be lent to nobody until a majority has the write, which may be never.
        connection.close()
        raise
    if said is None:
        raise pymongo.errors.AutoReconnect("connection closed")
    reply: Document = bson.decode(said, DECODED)
    failure = None if reply["ok"] == 1 else refused(reply)
    if isinstance(failure, pymongo.errors.ConnectionFailure):
        # It would be said of whatever is asked on it.
        connection.close()
        raise failure
    return reply


def _check(reply: Document) -> None:
    if reply["ok"] != 1:
        raise refused(reply)
    refusals, unconfirmed = reply.get("writeErrors", []), reply.get("writeConcernError")
    if refusals or unconfirmed:
        raise pymongo.errors.BulkWriteError(
            {"writeErrors": refusals, "writeConcernErrors": [unconfirmed] if unconfirmed else []}
        )
