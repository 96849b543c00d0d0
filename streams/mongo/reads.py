"""Reads of one database, through either driver.

Source: docs/decisions/0004-driver.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pymongo.errors
from bson import CodecOptions, Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.core.operation import MOST_TOGETHER, OPERATION
from revstream.streams.core.read_limiter import ReadClass, ReadLimiter
from revstream.streams.mongo.client_reads import await_result, collect
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document, decode
from revstream.streams.mongo.driver.cursor_batches import cursor_batches
from revstream.streams.mongo.driver.error_translation import translate_driver_errors
from revstream.streams.mongo.driver.session_pool import SessionPool
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.single_batch import SingleBatchReader
from revstream.streams.mongo.wire.pool import WirePool

__all__ = ["COLLATION", "Reads", "await_result"]

# Documents per round trip; the server also ends a batch at 16 MB.
_BATCH = 10_000
# Filters compare by code point, as predicates on changes do, whatever a collection's collation.
COLLATION = {"locale": "simple"}


class Reads:
    """Reads with a time limit each, except where a method states that it has none."""

    def __init__(
        self, client: Any, name: str, options: MongoOptions, wires: WirePool | None = None
    ) -> None:
        self.name = name
        self.options = options
        self._client = client
        self._database = client.get_database(name, codec_options=DECODED)
        self._raw = client.get_database(name, codec_options=RAW)
        self._sessions = SessionPool(client)
        self.wires = wires
        self._finder = None if wires is None else SingleBatchReader(wires, self._database)
        # The driver creates a new object, with all its options, at each access to a collection.
        self._collections: dict[str, Any] = {}
        self.limiter = ReadLimiter()
        self._ending: set[asyncio.Task[None]] = set()

    async def find(
        self, collection: str, query: Mapping[str, Any], options: FindOptions = NO_OPTIONS
    ) -> list[Any]:
        """Return all matching documents."""
        at, raw, naive, hint = options.at, options.raw, options.naive, options.hint
        projection, sort, limit = options.projection, options.sort, options.limit
        short = (options.short or naive) and self._finder is not None
        given = {"projection": projection, "sort": dict(sort), "limit": limit, "hint": hint}
        command = {
            "find": collection,
            "filter": query,
            "collation": COLLATION,
            "batchSize": _BATCH,
            **{name: value for name, value in given.items() if value},
        }

        async def attempt(limit_ms: int, read_class: ReadClass) -> list[Any]:
            command["maxTimeMS"] = limit_ms
            with translate_driver_errors():
                if at is not None:
                    return await self._at(command, at, read_class, raw=raw)
                if short:
                    assert self._finder is not None
                    found = await self._finder.first_batch(command, naive=naive, raw=raw)
                    if found is not None:
                        return found
                async with self._driver_read(read_class) as session:
                    cursor = self._collection(collection).find(
                        query,
                        projection,
                        sort=list(sort) or None,
                        limit=limit,
                        # A first batch of 101 would cost every longer page a second round trip.
                        batch_size=_BATCH,
                        max_time_ms=limit_ms,
                        collation=COLLATION,
                        hint=hint,
                        session=session,
                    )
                    return await _all_of(cursor, raw=raw)

        read_class = ReadClass.INDEXED
        if hint is None and OPERATION.get() is not None:
            read_class = self.limiter.class_of_find(collection, query, sort, limit)
        return await self.limiter.run(read_class, attempt, self._limit_ms, collection)

    async def aggregate(
        self,
        collection: str | None,
        pipeline: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
        snapshot: bool = False,
        raw: bool = False,
        hint: str | None = None,
        short: bool = False,
        naive: bool = False,
        in_memory: bool = False,
    ) -> list[Any]:
        """Return all results of a pipeline on a collection, or on the database where it is None.

        Args:
            snapshot: Read everything, lookups too, at the last majority-committed cluster time.
            short, naive: See `find`.
            in_memory: Refuse stages that would use the server's disks.
        """
        short = (short or naive) and self._finder is not None
        extra = {} if hint is None else {"hint": hint}
        disks = {"allowDiskUse": False} if in_memory else {}
        command: Document = {
            "aggregate": collection or 1,
            "pipeline": list(pipeline),
            "collation": COLLATION,
            "cursor": {"batchSize": _BATCH},
            **disks,
        }

        async def attempt(limit_ms: int, read_class: ReadClass) -> list[Any]:
            timed = {**command, "maxTimeMS": limit_ms}
            with translate_driver_errors():
                if snapshot or at is not None:
                    return await self._at(timed, at, read_class, raw=raw)
                if short:
                    assert self._finder is not None
                    found = await self._finder.first_batch({**timed, **extra}, naive=naive, raw=raw)
                    if found is not None:
                        return found
                async with self._driver_read(read_class) as session:
                    target = self._raw if collection is None else self._collection(collection)
                    # Motor returns the cursor at once, PyMongo after a round trip.
                    cursor = await await_result(
                        target.aggregate(
                            list(pipeline),
                            batchSize=_BATCH,
                            maxTimeMS=limit_ms,
                            collation=COLLATION,
                            session=session,
                            **extra,
                            **disks,
                        )
                    )
                    return await _all_of(cursor, raw=raw)

        read_class = ReadClass.INDEXED
        if hint is None and OPERATION.get() is not None:
            read_class = self.limiter.class_of_pipeline(collection, pipeline)
        return await self.limiter.run(read_class, attempt, self._limit_ms, collection)

    async def read_at(
        self, command: Document, at: Timestamp, *, most_bytes: int
    ) -> tuple[list[RawBSONDocument], bool]:
        """Return a cursor command's raw documents at a cluster time, and whether they are complete.

        Stops after the document that exceeds `most_bytes`, but not before the second one.
        """
        found: list[RawBSONDocument] = []
        with translate_driver_errors():
            cursor = await self._open_at(command, at)
            try:
                async for document in cursor:
                    found.append(document)
                    most_bytes -= len(document.raw)
                    if most_bytes < 0 and len(found) > 1:
                        return found, False
            finally:
                await await_result(cursor.close())
        return found, True

    async def read_now(self, command: Document) -> tuple[list[RawBSONDocument], bool, Timestamp]:
        """Return a cursor command's first batch, raw, whether it is complete, and its cluster
        time.
        """
        command = {**command, "readConcern": {"level": "snapshot"}, "maxTimeMS": self._limit_ms}
        with translate_driver_errors():
            reply = await await_result(self._raw.command(command, codec_options=RAW))
            cursor = reply["cursor"]
            if cursor["id"]:
                kill = {"killCursors": command["find"], "cursors": [cursor["id"]]}
                await await_result(self._database.command(kill))
        return list(cursor["firstBatch"]), not cursor["id"], cursor["atClusterTime"]

    async def count(
        self, collection: str, query: Mapping[str, Any], *, at: Timestamp | None = None
    ) -> int:
        found = await self.aggregate(collection, [{"$match": query}, {"$count": "n"}], at=at)
        return int(found[0]["n"]) if found else 0

    def pages(
        self,
        collection: str,
        query: Mapping[str, Any],
        *,
        sort: Sequence[tuple[str, int]],
        size: int,
        at: Timestamp | None = None,
        hint: str | None = None,
        raw: bool = False,
    ) -> AsyncGenerator[list[Any]]:
        """Yield all matching documents in lists of at most `size`. The whole has no time limit."""
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
        kind = self.limiter.class_of_find(collection, query, sort, size)
        return self._batches(collection, command, size, kind, raw=raw)

    def count_scan(self, collection: str) -> None:
        """Count a read of a whole collection's documents or states, which no method here sees.

        Raises:
            LimitExceeded: the running operation has scanned more documents than its limit.
        """
        operation = OPERATION.get()
        if operation is not None:
            operation.count_scanned(self.limiter.sizes.get(collection, 0))

    def aggregate_pages(
        self,
        collection: str,
        pipeline: Sequence[Mapping[str, Any]],
        *,
        size: int,
        at: Timestamp | None = None,
        hint: str | None = None,
    ) -> AsyncGenerator[list[Document]]:
        """Yield the results of a pipeline in order, in lists as `pages` does."""
        command: Document = {"aggregate": collection, "pipeline": list(pipeline)}
        command |= {"cursor": {"batchSize": size}, "collation": COLLATION}
        if at is not None:
            command["readConcern"] = {"level": "snapshot", "atClusterTime": at}
        if hint is not None:
            command["hint"] = hint
        # Callers name the index that the read walks over.
        read_class = ReadClass.SCAN if hint is None else ReadClass.INDEXED
        return self._batches(collection, command, size, read_class)

    async def oldest(
        self, collection: str, query: Mapping[str, Any], *, database: str
    ) -> RawBSONDocument | None:
        """Return another database's first raw document in natural order (for the oplog)."""
        with translate_driver_errors():
            cursor = (
                self._client.get_database(database, codec_options=RAW)[collection]
                .find(query, max_time_ms=self._limit_ms)
                .sort("$natural", 1)
                .limit(1)
            )
            found = await cursor.to_list(1)
            return found[0] if found else None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """Open a driver session that knows its last reply's cluster time."""
        with translate_driver_errors():
            async with self._sessions.one() as session:
                yield session

    async def _batches(
        self,
        collection: str,
        command: Document,
        size: int,
        read_class: ReadClass,
        *,
        raw: bool = False,
    ) -> AsyncGenerator[list[Any]]:
        opened = self._rounds(collection, command, RAW, read_class, size=size)
        async with aclosing(opened) as rounds:
            async for each in rounds:
                if each["batch"]:
                    batch = list(each["batch"])
                    yield batch if raw else [decode(document.raw) for document in batch]

    async def _rounds(
        self,
        collection: str,
        command: Document,
        codec: CodecOptions[Any],
        read_class: ReadClass = ReadClass.INDEXED,
        **more: Any,
    ) -> AsyncGenerator[Document]:
        client = OPERATION.get() is not None
        async with self._killable_session() if client else self.session() as session:
            kill = partial(self._database.command, session=session)
            asked = partial(kill, codec_options=codec)

            async def attempt(command: Document, read_class: ReadClass) -> Any:
                async with self.limiter.driver_slot(read_class):
                    return await asked(command)

            async def ask(command: Document) -> Any:
                # One slot per batch: the caller may read a cursor slowly.
                return await self.limiter.run(
                    read_class, lambda _, read_class: attempt(command, read_class), 0
                )

            async with aclosing(cursor_batches(ask, kill, collection, command, **more)) as opened:
                async for each in opened:
                    yield each

    def _collection(self, name: str) -> Any:
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = self._raw[name]
        return found

    @property
    def _limit_ms(self) -> int:
        return int(self.options.read_limit_s * 1000)

    async def _at(
        self, command: Document, at: Timestamp | None, read_class: ReadClass, *, raw: bool
    ) -> list[Any]:
        async with self._driver_read(read_class) as session:
            cursor = await self._open_at(command, at, session=session)
            return await _all_of(cursor, raw=raw)

    async def _open_at(
        self, command: Document, at: Timestamp | None, *, session: Any = None
    ) -> Any:
        moment = {} if at is None else {"atClusterTime": at}
        command["readConcern"] = {"level": "snapshot", **moment}
        command.setdefault("maxTimeMS", self._limit_ms)
        # The codec argument is for the first batch, the database's own for later ones.
        return await await_result(
            self._raw.cursor_command(command, codec_options=RAW, session=session)
        )

    @asynccontextmanager
    async def _driver_read(self, read_class: ReadClass) -> AsyncIterator[Any]:
        """Open a session for one read of a client, in its turn; None for the process's own
        reads.
        """
        if OPERATION.get() is None:
            yield None
            return
        async with self.limiter.driver_slot(read_class), self._killable_session() as session:
            yield session

    @asynccontextmanager
    async def _killable_session(self) -> AsyncIterator[Any]:
        """Open a session whose running command the server ends when the read is cancelled here."""
        session = await await_result(self._client.start_session(causal_consistency=False))
        try:
            yield session
        except asyncio.CancelledError:
            ending = asyncio.create_task(self._end(session), name="end of a read")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise
        except BaseException:
            await session.end_session()
            raise
        await session.end_session()

    async def _end(self, session: Any) -> None:
        """End the commands of a session; if that fails, their time limit ends them."""
        with suppress(pymongo.errors.PyMongoError):
            await self._client.admin.command({"killSessions": [session.session_id]})
        await session.end_session()


async def _all_of(cursor: Any, *, raw: bool) -> list[Any]:
    """Return the rest of a raw cursor; for clients' operations it is counted while it arrives."""
    if OPERATION.get() is None and not MOST_TOGETHER.get():
        documents = list(await cursor.to_list(None))
        return documents if raw else [decode(each.raw) for each in documents]
    try:
        return await collect(cursor, None if raw else DECODED)
    except Exception:
        # A failed cursor stays open until garbage collection; a cancelled one ends with its
        # session.
        with suppress(pymongo.errors.PyMongoError):
            await await_result(cursor.close())
        raise
