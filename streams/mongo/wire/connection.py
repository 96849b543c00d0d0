"""Connection to the primary on which a command is one message sent and one message received.

The driver finds the primary, connects and authenticates; its further work for each command costs
more than most reads, so a protocol that does nothing else borrows its connection.

Source: docs/decisions/0031-wire.md; MongoDB's manual, "MongoDB Wire Protocol", OP_MSG.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import bson
import pymongo
import pymongo.errors
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document
from revstream.streams.mongo.driver.command_spans import trace_message
from revstream.streams.mongo.driver.error_translation import error_from_reply
from revstream.streams.mongo.driver.pymongo_internals import (
    borrowed_connection,
    refuse_missing_members,
)

__all__ = ["HEADER", "WireConnection", "borrow_connection"]

# Length, request id, id of the answered request, opcode; flags, and the kind of the one section.
HEADER = struct.Struct("<iiiiIB")
_OP_MSG = 2013
# Opening another connection costs more than most commands whose caller is gone.
_SOON_S = 0.1

_Client = pymongo.AsyncMongoClient[Document]


class WireConnection(asyncio.Protocol):
    """Connection that serves one command at a time.

    Args:
        transport: Transport of an open connection.
        before: The driver's protocol on it, which is notified of its end.
        replied: Called after each reply, even if no caller waits for it.

    Attributes:
        address: Address of the server.
        lost: Set once the connection is closed, by either side.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        before: asyncio.BaseProtocol,
        address: tuple[str, int | None],
        replied: Callable[[WireConnection], None],
    ) -> None:
        self.address = address
        self.lost = asyncio.Event()
        self._before = before
        self._replied = replied
        self._number = 0
        self._answered_at = time.monotonic()
        self._asked: asyncio.Future[memoryview | None] | None = None
        # Of a reply, or nothing.
        self._begun = bytearray()
        self._transport = transport
        transport.set_protocol(self)
        # The driver's protocol reads when it is asked to.
        transport.resume_reading()

    def ask(self, command: bytes) -> asyncio.Future[memoryview | None]:
        """Send a command; the future is its reply as BSON, or None if the connection ends
        before.
        """
        self._number = self._number + 1 & 0x7FFFFFFF
        asked: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            asked.set_result(None)
            return asked
        self._asked = asked
        header = HEADER.pack(HEADER.size + len(command), self._number, 0, _OP_MSG, 0, 0)
        self._transport.write(header + command)
        trace_message(command, self.address, asked)
        return asked

    async def run(self, database: str, command: Document) -> RawBSONDocument:
        """Run a command and return its reply.

        Raises:
            PyMongoError: As the driver raises it.
        """
        said = await self.ask(bson.encode({**command, "$db": database}, codec_options=DECODED))
        if said is None:
            raise pymongo.errors.AutoReconnect("connection closed")
        reply = bson.decode(bytes(said), RAW)
        if reply["ok"] != 1:
            raise error_from_reply(reply)
        return reply

    def abandon(self, asked: asyncio.Future[memoryview | None]) -> None:
        """Close the connection unless the reply comes soon: the server then ends the command."""

        def close() -> None:
            if self._asked is asked:
                self.close()

        asyncio.get_running_loop().call_later(_SOON_S, close)

    def idle_for(self, seconds: float) -> bool:
        """Return whether the last reply came more than `seconds` ago."""
        return time.monotonic() - self._answered_at > seconds

    def close(self) -> None:
        """Close at once; a waiting caller gets None."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._begun += data
            come: bytes | bytearray = self._begun
        else:
            come = data
        if len(come) < HEADER.size or len(come) < int.from_bytes(come[:4], "little"):
            if come is data:
                self._begun = bytearray(data)
            return
        length, _, answers, opcode, flags, kind = HEADER.unpack_from(come)
        asked, self._asked, self._begun = self._asked, None, bytearray()
        if asked is None or (length, answers, opcode, flags, kind) != (
            *(len(come), self._number, _OP_MSG, 0, 0),
        ):
            # Nothing that was asked for: whatever comes next would be taken for something else.
            self._asked = asked
            self.close()
            return
        self._answered_at = time.monotonic()
        self._replied(self)
        if not asked.done():
            asked.set_result(memoryview(come)[HEADER.size :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)
        self.lost.set()
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)


@asynccontextmanager
async def borrow_connection(
    client: _Client, replied: Callable[[WireConnection], None], selection_s: float | None = None
) -> AsyncIterator[WireConnection]:
    """A connection to the primary out of the driver's pool; ends with it.

    Args:
        selection_s: how long to look for a primary; as long as the client does where it is None.

    Raises:
        Unsupported, and as the driver.
    """
    async with borrowed_connection(client, selection_s) as (transport, protocol, address):
        with refuse_missing_members():
            connection = WireConnection(transport, protocol, address, replied)
        yield connection
