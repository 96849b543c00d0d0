"""A connection to the primary on which a command is one message out and one message in.

The driver finds the primary, connects and signs in; what it does beside that for each command costs
more than most reads, so that its connection is borrowed by a protocol that does nothing else.

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
from revstream.streams.mongo.driver.error_translation import error_from_reply
from revstream.streams.mongo.driver.pymongo_internals import borrowed_connection

__all__ = ["HEADER", "WireConnection", "borrow_connection"]

# Length, number, number of what is answered, opcode; flags, and the kind of the one section.
HEADER = struct.Struct("<iiiiIB")
_OP_MSG = 2013
# To open another connection costs more than most commands that nobody waits for any more.
_SOON_S = 0.1

_Client = pymongo.AsyncMongoClient[Document]


class WireConnection(asyncio.Protocol):
    """Serves one at a time.

    Args:
        transport, before: of a connection, and the driver's protocol on it, which is told of its
            end.
        replied: called once a reply has come, whether or not somebody still waits for it.
    Attributes:
        address: the server's.
        lost: set once the connection is closed, by whichever side.
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
        """Its reply, as BSON; None where the connection ends before that."""
        self._number = self._number + 1 & 0x7FFFFFFF
        asked: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            asked.set_result(None)
            return asked
        self._asked = asked
        header = HEADER.pack(HEADER.size + len(command), self._number, 0, _OP_MSG, 0, 0)
        self._transport.write(header + command)
        return asked

    async def run(self, database: str, command: Document) -> RawBSONDocument:
        """What the server says to it.

        Raises: as the driver.
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
        """Whether the last reply came longer ago."""
        return time.monotonic() - self._answered_at > seconds

    def close(self) -> None:
        """At once; who waits is told None."""
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
        yield WireConnection(transport, protocol, address, replied)
