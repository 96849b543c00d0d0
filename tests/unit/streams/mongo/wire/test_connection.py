"""Wire connection over real sockets: replies in any pieces, and invalid replies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.mongo.driver.pymongo_internals import Unsupported
from revstream.streams.mongo.wire import connection as wire
from revstream.streams.mongo.wire.connection import HEADER, WireConnection, borrow_connection
from tests.support.eventually import eventually

OP_MSG = 2013


class Driver(asyncio.Protocol):
    """The connection's protocol before the handover."""

    ended = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


@asynccontextmanager
async def connected() -> AsyncIterator[
    tuple[WireConnection, socket.socket, list[WireConnection], Driver]
]:
    """Yield a connection, the server's end, the free connections, and the driver's protocol."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    free: list[WireConnection] = []
    transport, driver = await asyncio.get_running_loop().create_connection(Driver, sock=ours)
    # The driver leaves the transport in this state.
    transport.pause_reading()
    connection = WireConnection(transport, driver, ("server", 27017), free.append)
    try:
        yield connection, theirs, free, driver
    finally:
        connection.close()
        await connection.lost.wait()
        theirs.close()


async def asked_of(server: socket.socket) -> tuple[int, bytes]:
    """Return the request id of a message, and its command."""
    loop = asyncio.get_running_loop()
    received = await loop.sock_recv(server, 1 << 20)
    length, number, *rest = HEADER.unpack_from(received)
    assert (length, *rest) == (len(received), 0, OP_MSG, 0, 0)
    return number, received[HEADER.size :]


def reply(number: int, body: bytes, *, opcode: int = OP_MSG, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(body), 7, number, opcode, flags, 0) + body


@given(cuts=st.lists(st.integers(1, 60), max_size=6), size=st.integers(0, 200))
def test_replies_arrive_in_any_pieces(cuts: list[int], size: int) -> None:
    """Each request gets its own reply, one after the other."""

    async def run() -> None:
        async with connected() as (connection, server, free, _):
            for turn in range(2):
                question, answer = bson.encode({"turn": turn}), bson.encode({"text": "x" * size})
                waiting = connection.ask(question)
                number, received = await asked_of(server)
                assert received == question
                left, before = reply(number, answer), len(free)
                # The event loop does this too, but its pieces cannot be chosen.
                for cut in cuts:
                    connection.data_received(left[:cut])
                    left = left[cut:]
                    if not left:
                        break
                if left:
                    connection.data_received(left)
                found = await waiting
                assert found is not None
                assert bytes(found) == answer
                assert free[before:] == [connection]

    asyncio.run(run())


@pytest.mark.parametrize(
    "nonsense",
    {
        "another's": lambda number: reply(number + 1, bson.encode({})),
        "compressed": lambda number: reply(number, bson.encode({}), opcode=2012),
        "more to come": lambda number: reply(number, bson.encode({}), flags=2),
        "two": lambda number: 2 * reply(number, bson.encode({})),
    }.items(),
    ids=lambda each: each[0],
)
async def test_an_invalid_reply_ends_the_connection(nonsense: tuple[str, object]) -> None:
    """Later bytes could be taken for another request's reply."""
    async with connected() as (connection, server, free, driver):
        waiting = connection.ask(bson.encode({"find": "things"}))
        number, _ = await asked_of(server)
        made_of = nonsense[1]
        assert callable(made_of)
        await asyncio.get_running_loop().sock_sendall(server, made_of(number))
        assert await waiting is None
        await connection.lost.wait()
        assert free == []
        assert driver.ended


async def test_an_unrequested_reply_ends_the_connection() -> None:
    """No request is pending."""
    async with connected() as (connection, server, _, _):
        await asyncio.get_running_loop().sock_sendall(server, reply(0, bson.encode({})))
        await connection.lost.wait()


async def test_pending_and_later_requests_end_with_a_closed_connection() -> None:
    """Each returns None."""
    async with connected() as (connection, server, free, driver):
        waiting = connection.ask(bson.encode({"find": "things"}))
        await asked_of(server)
        server.close()
        assert await waiting is None
        assert await connection.ask(bson.encode({"find": "things"})) is None
        assert (free, driver.ended) == ([], True)


async def test_a_connection_of_a_cancelled_request_is_free_with_its_reply() -> None:
    """Until then the server is still at work."""
    async with connected() as (connection, server, free, _):
        cancelled = connection.ask(bson.encode({"find": "things"}))
        number, _ = await asked_of(server)
        cancelled.cancel()
        assert free == []
        await asyncio.get_running_loop().sock_sendall(server, reply(number, bson.encode({})))
        await eventually(lambda: free == [connection])
        again = connection.ask(bson.encode({"find": "others"}))
        number, _ = await asked_of(server)
        await asyncio.get_running_loop().sock_sendall(server, reply(number, bson.encode({"n": 1})))
        assert bson.decode(await again or b"") == {"n": 1}


async def test_a_transport_that_lacks_a_member_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway then sends its commands by the driver's own methods."""

    @asynccontextmanager
    async def borrowed(*_: object) -> AsyncIterator[tuple[object, Driver, tuple[str, int]]]:
        yield object(), Driver(), ("server", 27017)

    monkeypatch.setattr(wire, "borrowed_connection", borrowed)
    client: Any = None
    with pytest.raises(Unsupported, match="set_protocol"):
        async with borrow_connection(client, print):
            pass
