"""A wire connection over real sockets: replies in whatever pieces they come, and what is none."""

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
    """What the connection was before."""

    ended = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


@asynccontextmanager
async def connected() -> AsyncIterator[
    tuple[WireConnection, socket.socket, list[WireConnection], Driver]
]:
    """One, the server's end of it, who was free when, and the driver's protocol."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    free: list[WireConnection] = []
    transport, driver = await asyncio.get_running_loop().create_connection(Driver, sock=ours)
    # As the driver leaves it.
    transport.pause_reading()
    made = WireConnection(transport, driver, ("server", 27017), free.append)
    try:
        yield made, theirs, free, driver
    finally:
        made.close()
        await made.lost.wait()
        theirs.close()


async def asked_of(server: socket.socket) -> tuple[int, bytes]:
    """The number of a message, and what it asks for."""
    loop = asyncio.get_running_loop()
    come = await loop.sock_recv(server, 1 << 20)
    length, number, *rest = HEADER.unpack_from(come)
    assert (length, *rest) == (len(come), 0, OP_MSG, 0, 0)
    return number, come[HEADER.size :]


def reply(number: int, body: bytes, *, opcode: int = OP_MSG, flags: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(body), 7, number, opcode, flags, 0) + body


@given(cuts=st.lists(st.integers(1, 60), max_size=6), size=st.integers(0, 200))
def test_replies_come_in_whatever_pieces(cuts: list[int], size: int) -> None:
    """One after the other, each is what was said in answer."""

    async def run() -> None:
        async with connected() as (made, server, free, _):
            for turn in range(2):
                question, answer = bson.encode({"turn": turn}), bson.encode({"text": "x" * size})
                waiting = made.ask(question)
                number, come = await asked_of(server)
                assert come == question
                left, before = reply(number, answer), len(free)
                # As the loop does it, whose pieces cannot be chosen.
                for cut in cuts:
                    made.data_received(left[:cut])
                    left = left[cut:]
                    if not left:
                        break
                if left:
                    made.data_received(left)
                found = await waiting
                assert found is not None
                assert bytes(found) == answer
                assert free[before:] == [made]

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
async def test_what_is_no_answer_ends_the_connection(nonsense: tuple[str, object]) -> None:
    """What came behind it would be taken for another's."""
    async with connected() as (made, server, free, driver):
        waiting = made.ask(bson.encode({"find": "things"}))
        number, _ = await asked_of(server)
        made_of = nonsense[1]
        assert callable(made_of)
        await asyncio.get_running_loop().sock_sendall(server, made_of(number))
        assert await waiting is None
        await made.lost.wait()
        assert free == []
        assert driver.ended


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    async with connected() as (made, server, _, _):
        await asyncio.get_running_loop().sock_sendall(server, reply(0, bson.encode({})))
        await made.lost.wait()


async def test_who_waits_is_told_of_the_end_and_who_asks_later_too() -> None:
    async with connected() as (made, server, free, driver):
        waiting = made.ask(bson.encode({"find": "things"}))
        await asked_of(server)
        server.close()
        assert await waiting is None
        assert await made.ask(bson.encode({"find": "things"})) is None
        assert (free, driver.ended) == ([], True)


async def test_a_connection_whose_asker_has_gone_is_free_with_its_reply() -> None:
    """Not before: the server is still at work."""
    async with connected() as (made, server, free, _):
        gone = made.ask(bson.encode({"find": "things"}))
        number, _ = await asked_of(server)
        gone.cancel()
        assert free == []
        await asyncio.get_running_loop().sock_sendall(server, reply(number, bson.encode({})))
        await eventually(lambda: free == [made])
        again = made.ask(bson.encode({"find": "others"}))
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
