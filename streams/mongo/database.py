"""MongoDB database reached through Motor or PyMongo's own client for asyncio.

Guarantees: the same calls mean the same with both drivers; every read has a time limit; driver
errors are raised as `streams.core.errors`.
Does not guarantee: retries of change streams and writes; their callers know what may be repeated
(`source`, `recorder`).
Source: docs/decisions/0004-driver.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import Any

import pymongo
import pymongo.errors
from bson import Timestamp

from revstream.streams.core import tracing
from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.mongo.client_reads import await_result
from revstream.streams.mongo.driver.client import MongoOptions, open_client
from revstream.streams.mongo.driver.codecs import DECODED, RAW, REPLY, Document
from revstream.streams.mongo.driver.command_spans import CommandSpans
from revstream.streams.mongo.driver.cursor_batches import cursor_batches
from revstream.streams.mongo.driver.error_translation import STANDALONE, translate_driver_errors
from revstream.streams.mongo.reads import COLLATION, Reads
from revstream.streams.mongo.wire.pool import WirePool

__all__ = ["COLLATION", "Mongo"]

# Optional clean-up on the server is not waited for any longer.
_PARTING_S = 1.0
_NOTHING_TO_DROP = {26, 27}  # NamespaceNotFound, IndexNotFound
_NO_INDEXES = {26, 166}  # NamespaceNotFound, CommandNotSupportedOnView


class Mongo(Reads):
    """One MongoDB database. Open it with `async with Mongo.connect(...) as mongo`."""

    def __init__(
        self,
        client: Any,
        name: str,
        options: MongoOptions,
        wires: WirePool | None = None,
    ) -> None:
        super().__init__(client, name, options, wires)
        self._replies = client.get_database(name, codec_options=REPLY)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, uri: str, name: str, *, options: MongoOptions | None = None
    ) -> AsyncIterator[Mongo]:
        """Connect lazily: no server is contacted before the first command.

        Raises:
            Unsuitable: The URI is not valid.
        """
        options = options or MongoOptions()
        client = open_client(uri, options, listeners=_listeners())
        wires = WirePool(uri, options)
        mongo = cls(client, name, options, wires)
        try:
            yield mongo
        finally:
            # Closing sends commands to the server, which may be unreachable.
            with pymongo.timeout(_PARTING_S), suppress(pymongo.errors.PyMongoError):
                await wires.close()
                await mongo._sessions.close()
                await await_result(client.close())

    async def insert_in_order(
        self, collection: str, documents: Sequence[Mapping[str, Any]]
    ) -> None:
        """Insert one document after the other, and stop at the first that is refused.

        Raises:
            DuplicateKey: A unique key exists; the documents before it are inserted.
        """
        if not documents:
            return
        with translate_driver_errors():
            await self._database[collection].insert_many(documents, ordered=True)

    async def update_each(
        self,
        collection: str,
        updates: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    ) -> int:
        """Run one update_one per (filter, update), in one round trip. Returns how many matched."""
        if not updates:
            return 0
        with translate_driver_errors():
            result = await self._database[collection].bulk_write(
                [pymongo.UpdateOne(query, change) for query, change in updates], ordered=False
            )
            return int(result.matched_count)

    async def update_all(
        self, collection: str, query: Mapping[str, Any], change: Mapping[str, Any]
    ) -> int:
        """Update all matching documents. Returns how many matched."""
        with translate_driver_errors():
            result = await self._database[collection].update_many(query, change)
            return int(result.matched_count)

    async def remove_all(self, collection: str, query: Mapping[str, Any]) -> int:
        """Delete all matching documents. Returns how many."""
        with translate_driver_errors():
            return int((await self._database[collection].delete_many(query)).deleted_count)

    async def find_one_and_update(
        self,
        collection: str,
        query: Mapping[str, Any],
        change: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        upsert: bool = False,
    ) -> Document | None:
        """Update one document and return it as it is after the change; None if none matched.

        Raises:
            DuplicateKey: The upsert met a document that the filter excludes.
        """
        with translate_driver_errors():
            found = await self._database[collection].find_one_and_update(
                query,
                change,
                upsert=upsert,
                return_document=pymongo.ReturnDocument.AFTER,
            )
            return None if found is None else dict(found)

    async def indexes(self, collection: str) -> list[Mapping[str, Any]]:
        """Return the indexes of a collection, as `listIndexes` describes them.

        A view has none, nor has a collection that does not exist.
        """
        command = {"listIndexes": collection, "cursor": {"batchSize": 1000}}
        try:
            reply = await self.command(command)
        except DatabaseError as exc:
            if exc.number not in _NO_INDEXES:
                raise
            return []
        found: list[Mapping[str, Any]] = reply["cursor"]["firstBatch"]
        return found

    async def create_index(
        self, collection: str, keys: Sequence[tuple[str, int | str]], **options: Any
    ) -> None:
        with translate_driver_errors():
            await self._database[collection].create_index(list(keys), **options)

    async def create_indexes(
        self,
        collection: str,
        indexes: Iterable[tuple[Sequence[tuple[str, int]], Mapping[str, Any]]],
    ) -> None:
        """Create several indexes, in one step where the collection does not exist.

        A new collection is never visible with only some of them.
        """
        models = [pymongo.IndexModel(list(keys), **options) for keys, options in indexes]
        with translate_driver_errors():
            await self._database[collection].create_indexes(models)

    async def drop_index(self, collection: str, name: str) -> None:
        """Drop an index; a missing one is no error."""
        with translate_driver_errors():
            try:
                await self._database[collection].drop_index(name)
            except pymongo.errors.OperationFailure as exc:
                if exc.code not in _NOTHING_TO_DROP:
                    raise

    async def command(self, command: Mapping[str, Any], *, database: str | None = None) -> Document:
        """Run a command and return its reply.

        Not for writes: their refusals and missing confirmations are only in the reply.
        """
        with translate_driver_errors():
            target = self._database if database is None else self._client[database]
            return dict(await target.command(command, codec_options=DECODED))

    async def existing(self, names: Iterable[str]) -> set[str]:
        """Return those of these collections that exist, views included."""
        wanted = list(names)
        command = {"listCollections": 1, "nameOnly": True, "filter": {"name": {"$in": wanted}}}
        reply = await self.command({**command, "cursor": {"batchSize": len(wanted) + 1}})
        return {each["name"] for each in reply["cursor"]["firstBatch"]}

    async def estimated_count(self, collection: str) -> int:
        """Return the number of documents by the collection's metadata, without a scan."""
        return int((await self.command({"count": collection}))["n"])

    async def operation_time(self) -> Timestamp:
        """Return the cluster time of the last operation that the primary knows."""
        return (await self.clock())[1]

    async def confirmed_time(self) -> Timestamp:
        """Return the cluster time after a majority has confirmed that this primary still is the
        primary.

        A primary that is cut off does not know how far the others are.
        """
        read = {"find": "revstream.deployment", "limit": 1, "maxTimeMS": self._limit_ms}
        await self.command({**read, "readConcern": {"level": "linearizable"}})
        return await self.operation_time()

    async def clock(self) -> tuple[datetime, Timestamp]:
        """Return the primary's wall clock (UTC, to the millisecond) and the cluster time."""
        reply = await self.command({"hello": 1})
        time = reply.get("operationTime")
        if time is None and "lastWrite" in reply:
            # A server with authentication omits the time until it has the keys to sign it, some
            # seconds after a restart.
            time = reply["lastWrite"]["opTime"]["ts"]
        if not isinstance(time, Timestamp):
            raise Unsuitable(STANDALONE)
        return reply["localTime"], time

    def raw(self, collection: str) -> Any:
        """Return the driver's collection with raw documents, for `streams.mongo.transactions`."""
        return self._replies[collection]

    @asynccontextmanager
    async def change_batches(
        self, pipeline: Sequence[Mapping[str, Any]], *, size: int, wait_ms: int
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """Open a change stream and iterate over its round trips.

        Each has the raw `batch` and its postBatchResumeToken as `token`. Uses commands instead of
        `watch()`: a whole batch with its token is delivered or is not, and no document stays in a
        driver's
        buffer when the task is cancelled. Uses a connection of its own, so that waiting for events,
        ten
        times a second, wakes no thread of the driver.
        """
        command = {"aggregate": 1, "pipeline": list(pipeline), "cursor": {"batchSize": size}}
        more: dict[str, Any] = {"size": size, "wait_ms": wait_ms}
        where = "$cmd.aggregate"
        async with nullcontext() if self.wires is None else self.wires.dedicated() as connection:
            if connection is None:
                opened = self._rounds(where, command, RAW, **more)
            else:
                ask = partial(connection.run, self.name)
                kill = self._database.command
                opened = cursor_batches(ask, kill, where, command, ahead=True, **more)
            async with aclosing(opened):
                yield opened


def _listeners() -> list[CommandSpans]:
    # Only then: the driver makes an event of each command for a listener.
    return [] if tracing.installed() is None else [CommandSpans()]
