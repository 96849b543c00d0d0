"""Connections to the primary, opened as they are needed: some that short reads share, and one each
for whoever waits at it all the time.

Source: docs/decisions/0031-lines.md
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import pymongo
import pymongo.errors
from pymongo import monitoring

from streams.documents import Document
from streams.line import Line, Unfit, lent

__all__ = ["Lines"]

log = logging.getLogger(__name__)

# As many short reads are under way at once; what comes on top waits for one of them to end.
_SHARED = 16
_AGAIN_S = 0.05

_Turn: TypeAlias = asyncio.Future[Line | None]
_Found: TypeAlias = Line | pymongo.errors.PyMongoError | None


class Lines(monitoring.TopologyListener):
    """To be entered as a listener of the client that `use` is given.

    Attributes:
        open: those that are.
    """

    def __init__(self) -> None:
        self.open: set[Line] = set()
        self._client: pymongo.AsyncMongoClient[Document] | None = None
        # Why no line can be used.
        self._unfit: str | None = None
        self._free: list[Line] = []
        # For short reads, open or being opened; and for who has one of his own.
        self._shared = self._owned = 0
        self._most_owned: float = 0
        # How long one may lie idle, in seconds, where the URI says so.
        self._most_idle: float | None = None
        # Those that hold a line or are opening one.
        self._holders: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Turn] = deque()

    def use(self, client: pymongo.AsyncMongoClient[Document]) -> None:
        """A client of whose connections nobody else uses any."""
        self._client = client
        # Where the URI bounds its connections, others leave room for short reads.
        pool = client.options.pool_options
        self._most_owned = pool.max_pool_size - _SHARED
        self._most_idle = pool.max_idle_time_seconds
        if client.read_preference != pymongo.ReadPreference.PRIMARY:
            self._unfit = "the MongoDB URI asks for reads of secondaries"
        elif pool.socket_timeout is not None or client.options.timeout is not None:
            self._unfit = "the MongoDB URI limits how long the driver waits"

    async def close(self) -> None:
        """And the client; whoever still waits is left to a cursor."""
        self._unfit = "closed"
        self._leave_to_cursors()
        while self._holders:
            for holder in self._holders:
                holder.cancel()
            # One that is connecting may lose it: asyncio.wait_for does, before Python 3.12.
            await asyncio.wait(set(self._holders), timeout=_AGAIN_S)
        if self._client is not None:
            await self._client.close()

    async def take(self) -> Line | None:
        """One for a single question, once there is a free one; None where the driver's cursor is to
        be asked."""
        while self._free:
            line = self._free.pop()
            if self._most_idle is None or not line.idle_for(self._most_idle):
                return line
            line.close()
        return await self._turn()

    @asynccontextmanager
    async def own(self) -> AsyncIterator[Line | None]:
        """A line for the caller alone; None where he has to use the driver's commands.

        Raises: as the driver, where it cannot be opened.
        """
        if self._unfit is not None or self._owned >= self._most_owned:
            yield None
            return
        opened: _Turn = asyncio.get_running_loop().create_future()

        def found(what: _Found) -> None:
            if isinstance(what, Line):
                if opened.done():
                    what.close()
                else:
                    opened.set_result(what)
            elif not opened.done():
                if what is None:
                    opened.set_result(None)
                else:
                    opened.set_exception(what)

        self._owned += 1
        self._start(found, _nobody)
        line = None
        try:
            line = await opened
            yield line
        finally:
            self._owned -= 1
            if line is not None:
                line.close()

    def description_changed(self, event: monitoring.TopologyDescriptionChangedEvent) -> None:
        """The driver knows of another primary, or of none any more."""
        assert self._client is not None
        # Not the event's, which may be half a second old, and older than a line.
        servers = self._client.topology_description.server_descriptions()
        for line in list(self.open):
            known = servers.get(line.address)
            if known is None or not known.is_writable:
                line.close()

    def opened(self, event: monitoring.TopologyOpenedEvent) -> None:
        pass

    def closed(self, event: monitoring.TopologyClosedEvent) -> None:
        pass

    async def _turn(self) -> Line | None:
        """A line, once there is a free one; None where a cursor is to be used."""
        if self._unfit is not None:
            return None
        if self._shared < _SHARED:
            self._shared += 1
            self._start(self._found, self._give)
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and (line := turn.result()) is not None:
                self._give(line)
            raise

    def _found(self, what: _Found) -> None:
        """One for short reads, or its end."""
        if isinstance(what, Line):
            self._give(what)
            return
        self._shared -= 1
        self._leave_to_cursors()

    def _give(self, line: Line) -> None:
        """To who has waited longest."""
        if line.lost.is_set():
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(line)
                return
        self._free.append(line)

    def _leave_to_cursors(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _start(self, found: Callable[[_Found], None], free: Callable[[Line], None]) -> None:
        # In a task of its own: the driver may lose the cancellation of one who connects.
        holder = asyncio.create_task(self._hold(found, free), name="line")
        self._holders.add(holder)
        holder.add_done_callback(self._holders.discard)

    async def _hold(self, found: Callable[[_Found], None], free: Callable[[Line], None]) -> None:
        """Open a line, and keep it until it is lost.

        Args:
            found: told of it, and of its end: None, or why it could not be opened.
            free: see `Line`.
        """
        assert self._client is not None
        failure: pymongo.errors.PyMongoError | None = None
        try:
            async with lent(self._client, free) as line:
                self.open.add(line)
                try:
                    found(line)
                    await line.lost.wait()
                finally:
                    self.open.discard(line)
                    with suppress(ValueError):
                        self._free.remove(line)
        except Unfit as exc:
            if self._unfit is None:
                self._unfit = str(exc)
                log.warning("MongoDB is read more slowly: %s", exc)
        except pymongo.errors.PyMongoError as exc:
            failure = exc
        finally:
            found(failure)


def _nobody(line: Line) -> None:
    """Waits for a line of one's own."""
