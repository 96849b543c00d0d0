"""gql.outlets: frames leave whole, in order, and to nobody else, whatever the system takes."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from gql.outlets import Outlet
from gql.seats import SocketSeat
from gql.told import Told, write_to_each
from tests.support.eventually import eventually

_BUFFER = 8192
_ROOM = 64 * 1024


class Line(asyncio.Protocol):
    """A connection, whose outlet is paused and resumed as those of the gateway are."""

    def __init__(self) -> None:
        self.outlet = Outlet(self.write_unless_full)
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self.outlet.open(transport)
        self.seat = SocketSeat("1", b"next", self.outlet)

    def write_unless_full(self, frame: bytes) -> bool:
        transport = self.outlet.transport
        if transport.is_closing():
            return True
        if transport.get_write_buffer_size() > _ROOM:
            return False
        transport.write(frame)
        return True

    def pause_writing(self) -> None:
        self.outlet.pause()

    def resume_writing(self) -> None:
        self.outlet.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.outlet.close()

    def tell(self, told: Told) -> bool:
        """Whether it was taken."""
        self.seat.token = ""
        _, refusing = write_to_each([told], [self.seat])
        return not refusing


def connected(test: Callable[[Line, socket.socket], Awaitable[None]]) -> None:
    """Run a test with a connection of uvloop's, and the client's end of it."""

    async def run() -> None:
        lines: list[Line] = []

        def made() -> Line:
            lines.append(Line())
            return lines[-1]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(made, "127.0.0.1", 0)
        async with server:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
                client.setblocking(False)
                await loop.sock_connect(client, server.sockets[0].getsockname())
                await eventually(lambda: lines and hasattr(lines[0], "seat"))
                await test(lines[0], client)
                lines[0].outlet.transport.abort()
                await eventually(lambda: lines[0].lost)

    uvloop.run(run())


def told(size: int, number: int = 0) -> Told:
    return Told("t", b"%d" % (number % 10) * size, shown="t", counts=True)


_STEPS = st.lists(
    st.tuples(st.sampled_from(["told", "written", "read"]), st.integers(1, 40_000)), max_size=25
)


@settings(max_examples=50, deadline=None)
@given(_STEPS)
def test_what_arrives_is_what_was_taken_in_its_order(steps: list[tuple[str, int]]) -> None:
    """Against a list of it, where the client reads now and then, and others write in between."""

    async def test(line: Line, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        taken, arrived = b"", b""
        line.outlet.hasten()
        for number, (what, size) in enumerate(steps):
            if what == "told":
                event = told(size, number)
                room = line.outlet.transport.get_write_buffer_size() <= _ROOM
                assert line.tell(event) == room
                taken += line.seat.own.join(event.around(line.seat)) if room else b""
            elif what == "written":
                frame = b"%d" % (number % 10) * size
                line.outlet.transport.write(frame)
                taken += frame
            elif len(arrived) < len(taken):
                arrived += await loop.sock_recv(client, size)
        while len(arrived) < len(taken):
            arrived += await loop.sock_recv(client, 1_000_000)
        assert arrived == taken
        await eventually(lambda: line.outlet.hastens)

    connected(test)


def test_who_takes_nothing_is_written_to_until_too_much_waits() -> None:
    """And again once all of it is taken."""

    async def test(line: Line, client: socket.socket) -> None:
        line.outlet.hasten()
        assert line.outlet.hastens
        while line.tell(told(10_000)):
            pass
        assert not line.outlet.hastens
        waiting = line.outlet.transport.get_write_buffer_size()
        assert _ROOM < waiting <= _ROOM + 11_000
        while not line.outlet.hastens:
            await asyncio.get_running_loop().sock_recv(client, 100_000)
        assert line.tell(told(1))

    connected(test)


def test_a_connection_that_breaks_is_lost_and_no_fault() -> None:
    """Its client resets it, and it is told something before anybody has heard of that."""

    async def test(line: Line, client: socket.socket) -> None:
        line.outlet.hasten()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        for _ in range(3):
            assert line.tell(told(100))
        await eventually(lambda: line.lost)
        assert not line.outlet.hastens
        assert line.tell(told(100))

    connected(test)


def test_nothing_goes_to_whoever_has_the_descriptor_next() -> None:
    async def test(line: Line, client: socket.socket) -> None:
        line.outlet.hasten()
        handle = line.outlet.transport.get_extra_info("socket").fileno()
        line.outlet.transport.close()
        assert line.tell(told(100))
        await eventually(lambda: line.lost)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert handle in (ours.fileno(), theirs.fileno())
            assert line.tell(told(100))
            for each in (ours, theirs):
                each.setblocking(False)
                with pytest.raises(BlockingIOError):
                    each.recv(100)

    connected(test)


def test_a_descriptor_is_its_transports_to_close() -> None:
    """An outlet that nobody needs any more leaves it open."""

    async def test(line: Line, client: socket.socket) -> None:
        line.outlet.hasten()
        transport = line.outlet.transport
        line.outlet = line.seat.outlet = Outlet(line.write_unless_full)
        gc.collect()
        line.outlet.open(transport)
        transport.write(b"still here")
        assert await asyncio.get_running_loop().sock_recv(client, 100) == b"still here"

    connected(test)


async def test_what_is_no_plain_connection_of_uvloops_is_written_to_as_it_wants() -> None:
    """One whose bytes are encrypted on their way, and asyncio's own, which are as quick."""
    line = Line()
    ours, theirs = socket.socketpair()
    with theirs:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: line, sock=ours)
        line.outlet.hasten()
        assert not line.outlet.hastens
        event = told(100)
        assert line.tell(event)
        theirs.setblocking(False)
        assert await loop.sock_recv(theirs, 1000) == line.seat.own.join(event.around(line.seat))
        line.outlet.transport.abort()
        await eventually(lambda: line.lost)
