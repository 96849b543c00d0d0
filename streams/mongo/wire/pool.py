"""Pool of wire connections: shared ones for short reads, and dedicated ones for change streams.

Connections are opened when they are needed.

Source: docs/decisions/0031-wire.md
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

import pymongo
import pymongo.errors
from pymongo import monitoring

from revstream.streams.core.read_limiter import READ_SLOTS
from revstream.streams.mongo.driver.client import MongoOptions, open_client
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import translate_driver_errors
from revstream.streams.mongo.driver.pymongo_internals import Unsupported
from revstream.streams.mongo.wire.connection import WireConnection, borrow_connection

__all__ = ["SharedWires", "WirePool"]

log = logging.getLogger(__name__)

# Maximum number of concurrent short reads; further ones wait.
_SHARED = READ_SLOTS
# How long a short command looks for a primary before the driver waits for one.
_SELECTION_S = 1.0
_AGAIN_S = 0.05

_Opened: TypeAlias = asyncio.Future[WireConnection | None]
_Replied: TypeAlias = Callable[[WireConnection], None]


class WirePool(monitoring.TopologyListener):
    """Pool with a driver client of its own, whose connections nothing else uses.

    Attributes:
        open: Open connections.
        reads: Shared connections for short reads.

    Raises:
        Unsuitable: The URI is not valid.
    """

    def __init__(self, uri: str, options: MongoOptions) -> None:
        client = open_client(uri, replace(options, driver="pymongo"), listeners=[self])
        self._client: pymongo.AsyncMongoClient[Document] = client
        self.open: set[WireConnection] = set()
        # Why wire connections cannot be used.
        self._unsupported: str | None = None
        if not options.wire:
            self._unsupported = "wire connections are disabled"
        if client.read_preference != pymongo.ReadPreference.PRIMARY:
            self._unsupported = "the MongoDB URI requests reads from secondaries"
        limits = client.options.pool_options
        if limits.socket_timeout is not None or client.options.timeout is not None:
            self._unsupported = "the MongoDB URI sets a timeout of the driver"
        # Seconds, where the URI says so.
        self._most_idle: float | None = limits.max_idle_time_seconds
        # If the URI limits the connections, shared and dedicated ones leave room for each other.
        shared = int(min(_SHARED, limits.max_pool_size / 2))
        self._most_dedicated: float = limits.max_pool_size - shared
        self._dedicated = 0
        # Tasks that each open a connection and hold it.
        self._keepers: set[asyncio.Task[None]] = set()
        self.reads = SharedWires(self, shared)

    async def close(self) -> None:
        """Close all connections and the client; waiting callers use the driver."""
        self._unsupported = "closed"
        self.reads.leave_to_driver()
        while self._keepers:
            for keeper in self._keepers:
                keeper.cancel()
            # A connecting task may lose the cancellation: asyncio.wait_for does, before Python
            # 3.12.
            await asyncio.wait(set(self._keepers), timeout=_AGAIN_S)
        await self._client.close()

    @asynccontextmanager
    async def dedicated(self) -> AsyncIterator[WireConnection | None]:
        """Open a connection for the caller alone; None where it has to use the driver's commands.

        Raises:
            GatewayError: The connection cannot be opened.
        """
        if self._unsupported is not None or self._dedicated >= self._most_dedicated:
            yield None
            return
        connection = None
        self._dedicated += 1
        try:
            with translate_driver_errors():
                connection = await self.start(_kept)[1]
            yield connection
        finally:
            self._dedicated -= 1
            if connection is not None:
                connection.close()

    def description_changed(self, event: monitoring.TopologyDescriptionChangedEvent) -> None:
        """Close connections to a server that is no longer primary."""
        # Not the event's description, which may be half a second old, and older than a connection.
        servers = self._client.topology_description.server_descriptions()
        for connection in list(self.open):
            known = servers.get(connection.address)
            if known is None or not known.is_writable:
                connection.close()

    def opened(self, event: monitoring.TopologyOpenedEvent) -> None:
        pass

    def closed(self, event: monitoring.TopologyClosedEvent) -> None:
        pass

    def usable(self, connection: WireConnection) -> bool:
        """Return whether the connection was idle for no longer than the URI's limit."""
        return self._most_idle is None or not connection.idle_for(self._most_idle)

    @property
    def supported(self) -> bool:
        return self._unsupported is None

    def start(
        self, replied: _Replied, selection_s: float | None = None
    ) -> tuple[asyncio.Task[None], _Opened]:
        """Open a connection in a task of its own, since the driver may lose a cancellation on
        connect.
        """
        opened: _Opened = asyncio.get_running_loop().create_future()
        keeper = asyncio.create_task(
            self._keep(opened, replied, selection_s), name="wire connection"
        )
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)
        return keeper, opened

    async def _keep(self, opened: _Opened, replied: _Replied, selection_s: float | None) -> None:
        """Hold a connection of the driver's pool until it is lost, or no caller wants it."""
        try:
            async with borrow_connection(self._client, replied, selection_s) as connection:
                self.open.add(connection)
                try:
                    if not opened.done():
                        opened.set_result(connection)
                        await connection.lost.wait()
                finally:
                    self.open.discard(connection)
                    self.reads.forget(connection)
        except Unsupported as exc:
            if self._unsupported is None:
                self._unsupported = str(exc)
                log.warning("wire connections not used, reads are slower: %s", exc)
        except pymongo.errors.PyMongoError as exc:
            if not opened.done():
                opened.set_exception(exc)
        finally:
            if not opened.done():
                opened.set_result(None)


class SharedWires:
    """Shared connections of a pool, each for one command at a time.

    Args:
        most: Maximum number.
    """

    def __init__(self, pool: WirePool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._keepers: set[asyncio.Task[None]] = set()
        self._idle: list[WireConnection] = []
        self._waiting: deque[_Opened] = deque()

    async def checkout(self) -> WireConnection | None:
        """Wait for an idle connection for one command; None where the driver is to be used.

        The connection returns to the pool with its reply.
        """
        while self._idle:
            connection = self._idle.pop()
            if self._pool.usable(connection):
                return connection
            connection.close()
        if not (self._most and self._pool.supported):
            return None
        if len(self._keepers) < self._most:
            keeper, opened = self._pool.start(self._checkin, _SELECTION_S)
            self._keepers.add(keeper)
            keeper.add_done_callback(self._ended)
            opened.add_done_callback(self._opened)
        return await self._turn()

    def forget(self, connection: WireConnection) -> None:
        """Remove a lost connection."""
        with suppress(ValueError):
            self._idle.remove(connection)

    def leave_to_driver(self) -> None:
        """Let all waiting callers use the driver."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _turn(self) -> WireConnection | None:
        turn: _Opened = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and (connection := turn.result()) is not None:
                self._checkin(connection)
            raise

    def _checkin(self, connection: WireConnection) -> None:
        """Pass the connection to the first waiting caller."""
        if connection.lost.is_set():
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._idle.append(connection)

    def _opened(self, opened: _Opened) -> None:
        if opened.exception() is None and (connection := opened.result()) is not None:
            self._checkin(connection)

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        self._keepers.discard(keeper)
        self.leave_to_driver()


def _kept(connection: WireConnection) -> None:
    """Ignore a reply: a dedicated connection does not return to the pool."""
