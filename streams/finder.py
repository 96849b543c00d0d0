"""Short reads: one message to the primary and one back; and for what is only shown, dates without a
time zone, which the driver makes twice as fast; they are UTC.

What does not come in one batch, or fails for any reason but its time limit, is left to the driver's
cursor, which repeats what may be repeated and says what is wrong.

Source: docs/decisions/0031-lines.md
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import bson
import pymongo
import pymongo.errors
from bson.raw_bson import RawBSONDocument
from pymongo import monitoring

from streams.documents import DECODED, RAW, SHOWN, Document
from streams.line import Line, Unfit, lent
from streams.refusals import refused

__all__ = ["Finder"]

log = logging.getLogger(__name__)

# As many short reads are under way at once; what comes on top waits for one of them to end.
_LINES = 16
_TIME_LIMIT = 50
_AGAIN_S = 0.05

_Turn = asyncio.Future[Line | None]


class Finder(monitoring.TopologyListener):
    """Reads of one database, on lines that are opened as they are needed.

    To be entered as a listener of the client that `use` is given.

    Attributes:
        lines: the open ones.
    """

    def __init__(self, name: str) -> None:
        self.lines: set[Line] = set()
        self._name = name
        self._client: pymongo.AsyncMongoClient[Document] | None = None
        self._extra: Document = {"$db": name}
        # Why no line can be used.
        self._unfit: str | None = None
        self._free: list[Line] = []
        # For short reads, open or being opened; and for who has one of his own.
        self._opened = self._streams = 0
        self._most_streams: float = 0
        # Those that hold a line or are opening one.
        self._holders: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Turn] = deque()

    def use(self, client: pymongo.AsyncMongoClient[Document]) -> None:
        """A client of whose connections nobody else uses any."""
        self._client = client
        # Where the URI bounds its connections, others than short reads leave room for those.
        self._most_streams = client.options.pool_options.max_pool_size - _LINES
        database = client.get_database(self._name)
        if database.read_preference != pymongo.ReadPreference.PRIMARY:
            self._unfit = "the MongoDB URI asks for reads of secondaries"
        concern = database.read_concern.document
        if concern:
            self._extra["readConcern"] = concern

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

    async def first_batch(self, command: Document, *, naive: bool) -> list[Document] | None:
        """All that a `find` or an `aggregate` finds; None where a cursor has to say it.

        Args:
            naive: without the time zone of dates.

        Raises:
            ExecutionTimeout: the driver's; it took longer than its `maxTimeMS`.
        """
        message = bson.encode({**command, **self._extra}, codec_options=DECODED)
        line = self._free.pop() if self._free else await self._turn()
        reply = await line.ask(message) if line is not None else None
        if reply is None:
            return None
        found: Document = bson.decode(reply, SHOWN if naive else DECODED)
        if found.get("ok") != 1:
            if found.get("code") == _TIME_LIMIT:
                raise pymongo.errors.ExecutionTimeout(found.get("errmsg", ""), _TIME_LIMIT, found)
            return None
        cursor = found["cursor"]
        if cursor["id"]:
            # It is longer than a message.
            collection = cursor["ns"].partition(".")[2]
            kill = {"killCursors": collection, "cursors": [cursor["id"]]}
            assert self._client is not None
            with suppress(pymongo.errors.PyMongoError):
                await self._client[self._name].command(kill)
            return None
        batch: list[Document] = cursor["firstBatch"]
        return batch

    def description_changed(self, event: monitoring.TopologyDescriptionChangedEvent) -> None:
        """The driver knows of another primary, or of none any more."""
        assert self._client is not None
        # Not the event's, which may be half a second old, and older than a line.
        servers = self._client.topology_description.server_descriptions()
        for line in list(self.lines):
            known = servers.get(line.address)
            if known is None or not known.is_writable:
                line.close()

    def opened(self, event: monitoring.TopologyOpenedEvent) -> None:
        pass

    def closed(self, event: monitoring.TopologyClosedEvent) -> None:
        pass

    @asynccontextmanager
    async def own(self) -> AsyncIterator[Line | None]:
        """A line for the caller alone; None where he has to use the driver's commands."""
        if self._unfit is not None or self._streams >= self._most_streams:
            yield None
            return
        opened: _Turn = asyncio.get_running_loop().create_future()

        def found(line: Line | None) -> None:
            if not opened.done():
                opened.set_result(line)
            elif line is not None:
                line.close()

        self._streams += 1
        self._start(found, _nobody)
        line = None
        try:
            line = await opened
            yield line
        finally:
            self._streams -= 1
            if line is not None:
                line.close()

    async def reply(self, line: Line, command: Document) -> RawBSONDocument:
        """What the server says to a command on a line of one's own.

        Raises: as the driver.
        """
        message = bson.encode({**command, "$db": self._name}, codec_options=DECODED)
        said = await line.ask(message)
        if said is None:
            raise pymongo.errors.AutoReconnect("connection closed")
        reply = bson.decode(bytes(said), RAW)
        if reply["ok"] != 1:
            raise refused(reply)
        return reply

    async def _turn(self) -> Line | None:
        """A line, once there is a free one; None where a cursor is to be used."""
        if self._unfit is not None:
            return None
        if self._opened < _LINES:
            self._opened += 1
            self._start(self._found, self._give)
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and (line := turn.result()) is not None:
                self._give(line)
            raise

    def _found(self, line: Line | None) -> None:
        """One for short reads, or its end."""
        if line is not None:
            self._give(line)
            return
        self._opened -= 1
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

    def _start(self, found: Callable[[Line | None], None], free: Callable[[Line], None]) -> None:
        # In a task of its own: the driver may lose the cancellation of one who connects.
        holder = asyncio.create_task(self._hold(found, free), name="line")
        self._holders.add(holder)
        holder.add_done_callback(self._holders.discard)

    async def _hold(
        self, found: Callable[[Line | None], None], free: Callable[[Line], None]
    ) -> None:
        """Open a line, and keep it until it is lost.

        Args:
            found: told of it, and of its end, as None; of that, too, where it cannot be opened.
            free: see `Line`.
        """
        assert self._client is not None
        try:
            async with lent(self._client, free) as line:
                self.lines.add(line)
                try:
                    found(line)
                    await line.lost.wait()
                finally:
                    self.lines.discard(line)
                    with suppress(ValueError):
                        self._free.remove(line)
        except Unfit as exc:
            if self._unfit is None:
                self._unfit = str(exc)
                log.warning("MongoDB is read more slowly: %s", exc)
        except pymongo.errors.PyMongoError as exc:
            log.debug("no line can be opened", extra={"reason": str(exc)})
        finally:
            found(None)


def _nobody(line: Line) -> None:
    """Waits for a line of one's own."""
