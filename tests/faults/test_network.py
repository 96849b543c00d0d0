"""The proxies forward everything in order, and apply their rules."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.network import Network

pytestmark = pytest.mark.timeout(120)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MESSAGE = b"".join(n.to_bytes(4, "big") for n in range(100_000))


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    """Start a proxy before an echo server; the test is `me`, the server `m0`."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Network.open({"m0": port}) as opened:
        await opened.name(os.getpid(), "me")
        yield opened


async def connect(through: Network) -> Connection:
    return await asyncio.open_connection("127.0.0.1", through.ports["m0"])


async def sent_and_heard(connection: Connection) -> bytes:
    reader, writer = connection
    writer.write(MESSAGE)
    return await reader.readexactly(len(MESSAGE))


async def test_data_arrives_in_order_while_the_delay_changes() -> None:
    """The order holds with a delay, without one, and across the change."""
    async with network() as through:
        connection = await connect(through)
        assert await sent_and_heard(connection) == MESSAGE
        await through.slow("me", ["m0"], 0.05)
        hearing = asyncio.create_task(sent_and_heard(connection))
        await through.heal("me", ["m0"])
        assert await hearing == MESSAGE
        assert (await through.links())["links"] == {"me→m0": 1}
        connection[1].close()


async def test_held_data_arrives_after_the_cut() -> None:
    """Old and new connections deliver held data, and nothing before."""
    async with network() as through:
        old = await connect(through)
        assert await sent_and_heard(old) == MESSAGE
        await through.cut("me", ["m0"])
        new = await connect(through)
        hearing = [asyncio.create_task(sent_and_heard(each)) for each in (old, new)]
        done, _ = await asyncio.wait(hearing, timeout=0.3)
        assert not done
        await through.heal("me", ["m0"])
        assert await asyncio.gather(*hearing) == [MESSAGE, MESSAGE]
        for _, writer in (old, new):
            writer.close()


async def test_reset_breaks_connections_and_refuses_new_ones() -> None:
    """Connections are refused until the rule is `pass` again."""
    async with network() as through:
        old = await connect(through)
        assert await sent_and_heard(old) == MESSAGE
        await through.cut("me", ["m0"], mode="reset")
        assert await _ends(old)
        assert await _ends(await connect(through))
        await through.heal("me", ["m0"])
        fresh = await connect(through)
        assert await sent_and_heard(fresh) == MESSAGE
        fresh[1].close()


async def _ends(connection: Connection) -> bool:
    reader, writer = connection
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


async def test_a_rule_cuts_only_its_own_pair() -> None:
    """A rule applies to the pair that it names only."""
    async with network() as through:
        await through.cut("somebody", ["m0"])
        connection = await connect(through)
        assert await sent_and_heard(connection) == MESSAGE
        connection[1].close()
