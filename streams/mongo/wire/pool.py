"""Wire connections, opened as they are needed: some that short reads share, some that short writes
share, and one each for whoever waits at it all the time.

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

# As many short reads are under way at once; what comes on top waits for one of them to end.
_SHARED = READ_SLOTS
# How long a short command looks for a primary before the driver waits for one.
_SELECTION_S = 1.0
_AGAIN_S = 0.05

_Opened: TypeAlias = asyncio.Future[WireConnection | None]
_Replied: TypeAlias = Callable[[WireConnection], None]


class WirePool(monitoring.TopologyListener):
    """With a client of its own, of whose connections nobody else uses any.

    Attributes:
        open: the connections that are.
        reads: those of short ones.

    Raises:
        Unsuitable: the URI cannot be understood.
    """

    def __init__(self, uri: str, options: MongoOptions) -> None:
        client = open_client(uri, replace(options, driver="pymongo"), listeners=[self])
        self._client: pymongo.AsyncMongoClient[Document] = client
        self.open: set[WireConnection] = set()
        # Why none can be used.
        self._unsupported: str | None = None
        if client.read_preference != pymongo.ReadPreference.PRIMARY:
            self._unsupported = "the MongoDB URI asks for reads of secondaries"
        limits = client.options.pool_options
        if limits.socket_timeout is not None or client.options.timeout is not None:
            self._unsupported = "the MongoDB URI limits how long the driver waits"
        # Seconds, where the URI says so.
        self._most_idle: float | None = limits.max_idle_time_seconds
        # Where it bounds the connections, each leaves room for the others.
        shared = int(min(_SHARED, limits.max_pool_size / 2))
        self._most_dedicated: float = limits.max_pool_size - shared
        self._dedicated = 0
        # The tasks that open a connection and keep it.
        self._keepers: set[asyncio.Task[None]] = set()
        self.reads = SharedWires(self, shared)

    async def close(self) -> None:
        """And the client; whoever still waits is left to the driver."""
        self._unsupported = "closed"
        self.reads.leave_to_driver()
        while self._keepers:
            for keeper in self._keepers:
                keeper.cancel()
            # One that is connecting may lose it: asyncio.wait_for does, before Python 3.12.
            await asyncio.wait(set(self._keepers), timeout=_AGAIN_S)
        await self._client.close()

    @asynccontextmanager
    async def dedicated(self) -> AsyncIterator[WireConnection | None]:
        """One for the caller alone; None where he has to use the driver's commands.

        Raises:
            GatewayError: it cannot be opened.
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
        """The driver knows of another primary, or of none any more."""
        # Not the event's, which may be half a second old, and older than a connection.
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
        """Whether it has not lain idle for longer than the URI says."""
        return self._most_idle is None or not connection.idle_for(self._most_idle)

    @property
    def supported(self) -> bool:
        return self._unsupported is None

    def start(
        self, replied: _Replied, selection_s: float | None = None
    ) -> tuple[asyncio.Task[None], _Opened]:
        """Open a connection, in a task of its own: the driver may lose the cancellation of one who
        connects."""
        opened: _Opened = asyncio.get_running_loop().create_future()
        keeper = asyncio.create_task(
            self._keep(opened, replied, selection_s), name="wire connection"
        )
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)
        return keeper, opened

    async def _keep(self, opened: _Opened, replied: _Replied, selection_s: float | None) -> None:
        """Keep a connection out of the driver's pool until it is lost, or nobody wants it."""
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
                log.warning("MongoDB is asked more slowly: %s", exc)
        except pymongo.errors.PyMongoError as exc:
            if not opened.done():
                opened.set_exception(exc)
        finally:
            if not opened.done():
                opened.set_result(None)


class SharedWires:
    """Connections of a pool that serve whoever comes, one command at a time each.

    Args:
        most: how many.
    """

    def __init__(self, pool: WirePool, most: int) -> None:
        self._pool = pool
        self._most = most
        self._keepers: set[asyncio.Task[None]] = set()
        self._idle: list[WireConnection] = []
        self._waiting: deque[_Opened] = deque()

    async def checkout(self) -> WireConnection | None:
        """One for a single command, once there is an idle one, which goes back with its reply; None
        where the driver is to be asked."""
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
        """It is lost."""
        with suppress(ValueError):
            self._idle.remove(connection)

    def leave_to_driver(self) -> None:
        """Whoever waits."""
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
        """Hand it to who has waited longest."""
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
    """A dedicated one does not go back with a reply."""
