"""Reach MongoDB through a driver's client, whichever that is.

Guarantees: the same calls mean the same on both drivers; every read has a time limit; driver errors
leave as `streams.errors`.
Does not guarantee: retries of change streams and writes; their owners know what may be repeated
(`source`, `recorder`).
Source: docs/decisions/0004-driver.md.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import pymongo
import pymongo.errors
from bson import CodecOptions, Timestamp
from bson.raw_bson import RawBSONDocument

from streams.client import MongoOptions, open_client
from streams.documents import DECODED, RAW, REPLY, Document
from streams.errors import Unavailable, Unsuitable
from streams.finder import Finder
from streams.refusals import STANDALONE, translated
from streams.rounds import rounds
from streams.sessions import Sessions

__all__ = ["COLLATION", "Mongo"]

# Documents per round trip; the server also ends a batch at 16 MB.
_BATCH = 10_000
# Filters compare by code point, as predicates on changes do; a collection may be made otherwise.
COLLATION = {"locale": "simple"}

# What is only courtesy to the server is not waited for any longer.
_PARTING_S = 1.0


class Mongo:
    """One database. Open with `async with Mongo.connect(...) as mongo`."""

    def __init__(self, client: Any, name: str, options: MongoOptions) -> None:
        self.name = name
        self.options = options
        self._client = client
        self._database = client.get_database(name, codec_options=DECODED)
        self._raw = client.get_database(name, codec_options=RAW)
        self._replies = client.get_database(name, codec_options=REPLY)
        self._sessions = Sessions(client)
        # Motor is PyMongo in threads, which can be had without it.
        self._finder = Finder(client.delegate, name) if options.driver == "motor" else None
        # Made anew by each look at a driver's database, with all its options.
        self._collections: dict[tuple[str, bool], Any] = {}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, uri: str, name: str, *, options: MongoOptions | None = None
    ) -> AsyncIterator[Mongo]:
        """Connect, lazily: no server is asked before the first command.

        Raises:
            Unsuitable: the URI cannot be understood.
        """
        options = options or MongoOptions()
        client = open_client(uri, options)
        mongo = cls(client, name, options)
        try:
            yield mongo
        finally:
            if mongo._finder is not None:
                mongo._finder.close()
            # It says goodbye to the server, which may be gone.
            with pymongo.timeout(_PARTING_S), suppress(pymongo.errors.PyMongoError):
                await mongo._sessions.close()
                await _awaited(client.close())

    async def find(
        self,
        collection: str,
        query: Mapping[str, Any],
        *,
        projection: Mapping[str, Any] | None = None,
        sort: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        at: Timestamp | None = None,
        raw: bool = False,
        naive: bool = False,
    ) -> list[Any]:
        """All matching documents; with `at`, as they were at that cluster time (a few minutes back
        at most).

        Args:
            naive: they are only shown: dates may lack their time zone, which is UTC.
        """
        with translated():
            if at is not None or (naive and self._finder is not None):
                given = {"projection": projection, "sort": dict(sort), "limit": limit}
                command = {
                    "find": collection,
                    "filter": query,
                    "collation": COLLATION,
                    "batchSize": _BATCH,
                    **{name: value for name, value in given.items() if value},
                }
                if at is not None:
                    return await self._at(command, at, raw=raw)
                assert self._finder is not None
                found = await self._finder.first_batch({**command, "maxTimeMS": self._limit_ms})
                if found is not None:
                    return found
            cursor = self._collection(collection, raw).find(
                query,
                projection,
                sort=list(sort) or None,
                limit=limit,
                # A first batch of 101 would cost every longer page a second round trip.
                batch_size=_BATCH,
                max_time_ms=self._limit_ms,
                collation=COLLATION,
            )
            return list(await cursor.to_list(None))

    async def aggregate(
        self,
        collection: str | None,
        pipeline: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
        snapshot: bool = False,
        raw: bool = False,
        hint: str | None = None,
    ) -> list[Any]:
        """All results of a pipeline on a collection, or on the database where `collection` is
        None; with `snapshot`, its lookups too as of one moment, the last that a majority has."""
        with translated():
            if snapshot or at is not None:
                command: Document = {
                    "aggregate": collection or 1,
                    "pipeline": list(pipeline),
                    "collation": COLLATION,
                    "cursor": {"batchSize": _BATCH},
                }
                return await self._at(command, at, raw=raw)
            if collection is None:
                target = self._raw if raw else self._database
            else:
                target = self._collection(collection, raw)
            extra = {} if hint is None else {"hint": hint}
            # Motor hands out the cursor at once, PyMongo after a round trip.
            cursor = await _awaited(
                target.aggregate(
                    list(pipeline),
                    batchSize=_BATCH,
                    maxTimeMS=self._limit_ms,
                    collation=COLLATION,
                    **extra,
                )
            )
            return list(await cursor.to_list(None))

    async def read_at(
        self, command: Document, at: Timestamp, *, most_bytes: int
    ) -> tuple[list[RawBSONDocument], bool]:
        """What a command that gives a cursor finds at a cluster time, raw; no more than it takes to
        exceed so many bytes, but two documents in any case. And whether that is all."""
        found: list[RawBSONDocument] = []
        with translated():
            cursor = await self._open_at(command, at, raw=True)
            try:
                async for document in cursor:
                    found.append(document)
                    most_bytes -= len(document.raw)
                    if most_bytes < 0 and len(found) > 1:
                        return found, False
            finally:
                await _awaited(cursor.close())
        return found, True

    async def count(
        self, collection: str, query: Mapping[str, Any], *, at: Timestamp | None = None
    ) -> int:
        found = await self.aggregate(collection, [{"$match": query}, {"$count": "n"}], at=at)
        return int(found[0]["n"]) if found else 0

    async def estimated_count(self, collection: str) -> int:
        """From the collection's figures, without looking at it."""
        return int((await self.command({"count": collection}))["n"])

    def pages(
        self,
        collection: str,
        query: Mapping[str, Any],
        *,
        sort: Sequence[tuple[str, int]],
        size: int,
        at: Timestamp | None = None,
        hint: str | None = None,
    ) -> AsyncGenerator[list[Document]]:
        """All matching documents in lists of at most `size`; ends with the last one. No time limit
        on the whole."""
        command: Document = {
            "find": collection,
            "filter": query,
            "sort": dict(sort),
            "batchSize": size,
            "collation": COLLATION,
        }
        if at is not None:
            command["readConcern"] = {"level": "snapshot", "atClusterTime": at}
        if hint is not None:
            command["hint"] = hint
        return self._batches(collection, command, size)

    def aggregate_pages(
        self, collection: str, pipeline: Sequence[Mapping[str, Any]], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        """The same of what a pipeline makes of a collection, in its order."""
        command: Document = {"aggregate": collection, "pipeline": list(pipeline)}
        command |= {"cursor": {"batchSize": size}, "collation": COLLATION}
        command["readConcern"] = {"level": "snapshot", "atClusterTime": at}
        return self._batches(collection, command, size)

    async def insert_in_order(
        self, collection: str, documents: Sequence[Mapping[str, Any]]
    ) -> None:
        """Insert one after the other, stopping at the first that is refused.

        Raises:
            DuplicateKey: one of its unique keys was taken; those before it are inserted.
        """
        if not documents:
            return
        with translated():
            await self._database[collection].insert_many(documents, ordered=True)

    async def update_each(
        self,
        collection: str,
        updates: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        idempotent: bool = False,
    ) -> int:
        """One update_one per (filter, update), in one round trip. Returns how many matched.

        Args:
            idempotent: each filter finds one document at most, and it does no harm to repeat all
                of them.
        """
        if not updates:
            return 0
        # Of a retryable write the server keeps, update by update, that it was made: a quarter of
        # what one costs. Updates of many are not retryable.
        kind = pymongo.UpdateMany if idempotent else pymongo.UpdateOne
        made = [kind(query, change) for query, change in updates]
        try:
            return await self._update(collection, made)
        except Unavailable:
            if not idempotent:
                raise
            # Once, as the driver does it.
            return await self._update(collection, made)

    async def _update(self, collection: str, updates: Sequence[Any]) -> int:
        with translated():
            result = await self._database[collection].bulk_write(updates, ordered=False)
            return int(result.matched_count)

    async def update_all(
        self, collection: str, query: Mapping[str, Any], change: Mapping[str, Any]
    ) -> int:
        """Returns how many matched."""
        with translated():
            result = await self._database[collection].update_many(query, change)
            return int(result.matched_count)

    async def remove_all(self, collection: str, query: Mapping[str, Any]) -> int:
        """Returns how many there were."""
        with translated():
            return int((await self._database[collection].delete_many(query)).deleted_count)

    async def find_one_and_update(
        self,
        collection: str,
        query: Mapping[str, Any],
        change: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        upsert: bool = False,
    ) -> Document | None:
        """The document after the change, or None where none matched.

        Raises:
            DuplicateKey: the upsert met a document that the filter left out.
        """
        with translated():
            found = await self._database[collection].find_one_and_update(
                query,
                change,
                upsert=upsert,
                return_document=pymongo.ReturnDocument.AFTER,
            )
            return None if found is None else dict(found)

    async def create_index(
        self, collection: str, keys: Sequence[tuple[str, int]], **options: Any
    ) -> None:
        with translated():
            await self._database[collection].create_index(list(keys), **options)

    async def command(self, command: Mapping[str, Any], *, database: str | None = None) -> Document:
        """Its reply. Not for writes: that one was refused, or not confirmed, a reply only says."""
        with translated():
            target = self._database if database is None else self._client[database]
            return dict(await target.command(command, codec_options=DECODED))

    async def oldest(
        self, collection: str, query: Mapping[str, Any], *, database: str
    ) -> RawBSONDocument | None:
        """The first matching document in natural order, raw, of another database (the oplog)."""
        with translated():
            cursor = (
                self._client.get_database(database, codec_options=RAW)[collection]
                .find(query, max_time_ms=self._limit_ms)
                .sort("$natural", 1)
                .limit(1)
            )
            found = await cursor.to_list(1)
            return found[0] if found else None

    async def operation_time(self) -> Timestamp:
        """The cluster time of the last operation the primary knows: now, in the stream's terms."""
        return (await self.clock())[1]

    async def confirmed_time(self) -> Timestamp:
        """The same, once a majority has confirmed that who is asked still is the primary: one that
        is cut off does not know how far the others have come."""
        read = {"find": "revstream.deployment", "limit": 1, "maxTimeMS": self._limit_ms}
        await self.command({**read, "readConcern": {"level": "linearizable"}})
        return await self.operation_time()

    async def clock(self) -> tuple[datetime, Timestamp]:
        """Now, by the primary's wall clock (UTC, to the millisecond) and by the cluster's time."""
        reply = await self.command({"hello": 1})
        time = reply.get("operationTime")
        if not isinstance(time, Timestamp):
            raise Unsuitable(STANDALONE)
        return reply["localTime"], time

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """The driver's, for `streams.writing`; it knows the cluster time of its last reply."""
        with translated():
            async with self._sessions.one() as session:
                yield session

    def raw(self, collection: str) -> Any:
        """The driver's, giving documents raw, for `streams.writing`."""
        return self._replies[collection]

    @asynccontextmanager
    async def change_batches(
        self, pipeline: Sequence[Mapping[str, Any]], *, size: int, wait_ms: int
    ) -> AsyncIterator[AsyncIterator[Document]]:
        """Open a change stream; iterate over what each round trip brings: `batch`, raw, and
        `token`, its postBatchResumeToken.

        Commands instead of `watch()`: one hop to Motor's thread per batch and not per event, and a
        whole batch with its token is handed over or is not; nothing lies in a driver's buffer when
        the task is cancelled.
        """
        command = {"aggregate": 1, "pipeline": list(pipeline), "cursor": {"batchSize": size}}
        rounds = self._rounds("$cmd.aggregate", command, RAW, size=size, wait_ms=wait_ms)
        async with aclosing(rounds):
            yield rounds

    async def _batches(
        self, collection: str, command: Document, size: int
    ) -> AsyncGenerator[list[Document]]:
        async with aclosing(self._rounds(collection, command, DECODED, size=size)) as rounds:
            async for each in rounds:
                if each["batch"]:
                    yield list(each["batch"])

    async def _rounds(
        self, collection: str, command: Document, codec: CodecOptions[Any], **more: Any
    ) -> AsyncGenerator[Document]:
        """See `streams.rounds`; in a session of its own."""
        async with (
            self.session() as session,
            aclosing(rounds(self._database, session, collection, command, codec, **more)) as opened,
        ):
            async for each in opened:
                yield each

    def _collection(self, name: str, raw: bool) -> Any:
        found = self._collections.get((name, raw))
        if found is None:
            found = self._collections[name, raw] = (self._raw if raw else self._database)[name]
        return found

    @property
    def _limit_ms(self) -> int:
        return int(self.options.read_limit_s * 1000)

    async def _at(self, command: Document, at: Timestamp | None, *, raw: bool) -> list[Any]:
        cursor = await self._open_at(command, at, raw=raw)
        return list(await cursor.to_list(None))

    async def _open_at(self, command: Document, at: Timestamp | None, *, raw: bool) -> Any:
        moment = {} if at is None else {"atClusterTime": at}
        command["readConcern"] = {"level": "snapshot", **moment}
        command["maxTimeMS"] = self._limit_ms
        # The argument is for the first batch, the database's own for those that follow.
        codec, database = (RAW, self._raw) if raw else (DECODED, self._database)
        return await _awaited(database.cursor_command(command, codec_options=codec))


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
