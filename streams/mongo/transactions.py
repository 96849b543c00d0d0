"""Writes to modelled collections: a single write or a transaction, with its cluster time.

Guarantees: the cluster time is that of the change event of the write (measured on writes of single
documents and on transactions), so that a resume token made of it comes directly after the event.
Does not guarantee: after an election in which the driver repeated a write, the time may be a little
later.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import bson
import pymongo
import pymongo.errors
from bson import Binary, Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.database import COLLATION, Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW
from revstream.streams.mongo.driver.error_translation import (
    DUPLICATE_KEY,
    OF_DOCUMENT,
    translate_driver_errors,
)

__all__ = [
    "BulkChangeResult",
    "MatchedChangeResult",
    "Pipeline",
    "WriteSession",
    "change_matching",
    "has_names_once",
    "write",
]

# As long as the drivers retry a transaction.
_RETRIED_S = 120.0

T = TypeVar("T")
Pipeline = Sequence[Mapping[str, Any]]


async def write(
    mongo: Mongo, work: Callable[[WriteSession], Awaitable[T]], *, transaction: bool = False
) -> tuple[T, Timestamp]:
    """Run `work` in a session; return its result and the cluster time of its last write.

    Args:
        work: In a transaction, it runs again after a conflict; an error that it raises undoes its
            writes.

    Raises:
        DuplicateKey: Names the fields.
        GatewayError: Any other refusal by MongoDB.
    """
    with translate_driver_errors():
        async with mongo.session() as session:
            writing = WriteSession(mongo, session)
            if transaction:
                result = await _transaction(session, lambda _session: work(writing))
                return result, session.operation_time
            result = await work(writing)
            return result, writing.main_write_time or session.operation_time


async def _transaction(session: Any, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run a transaction, and repeat it where its commit met a conflict.

    Motor commits outside the part that it repeats itself; a failed commit has written nothing.
    """
    deadline = time.monotonic() + _RETRIED_S
    while True:
        try:
            with _cancelled():
                return cast("T", await session.with_transaction(work))
        except pymongo.errors.PyMongoError as exc:
            transient = exc.has_error_label("TransientTransactionError")
            if not transient or time.monotonic() > deadline:
                raise


@contextmanager
def _cancelled() -> Iterator[None]:
    """Raise CancelledError in place of the error that Motor raises when it is cancelled.

    Motor, cancelled while its thread aborts a transaction, aborts it again, which is an invalid
    operation.
    """
    try:
        yield
    except pymongo.errors.InvalidOperation as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from exc
        raise


@dataclass(frozen=True, slots=True)
class BulkChangeResult:
    """Result of a bulk write.

    Attributes:
        matched: Number of documents that existed.
        changed: Number of documents that changed.
        conflicts: Indexes in the list of the writes to repeat.
    """

    matched: int
    changed: int
    conflicts: Sequence[int]


class WriteSession:
    """Operations within one `write`; documents are returned raw.

    Attributes:
        main_write_time: Cluster time of the main write, where later writes only complete it; None
            where the last write is the main one.
    """

    def __init__(self, mongo: Mongo, session: Any) -> None:
        self._mongo = mongo
        self._session = session
        self.main_write_time: Timestamp | None = None

    @property
    def in_transaction(self) -> bool:
        return bool(self._session.in_transaction)

    @property
    def session_id(self) -> Binary:
        """Return the `lsid.id` that the change events of a transaction carry."""
        found: Binary = self._session.session_id["id"]
        return found

    @property
    def cluster_time(self) -> Timestamp:
        """Return the cluster time of the last reply."""
        found: Timestamp = self._session.operation_time
        return found

    async def insert(self, collection: str, document: Mapping[str, Any]) -> RawBSONDocument:
        """Insert a document, and return it as it was sent; without an `_id` it gets one."""
        sent = RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)
        await self._mongo.raw(collection).insert_one(sent, session=self._session)
        return sent

    async def insert_unless(
        self, collection: str, document: Mapping[str, Any], unique: Sequence[str]
    ) -> RawBSONDocument | None:
        """Insert a document, or return None if another one has the same values in the `unique`
        fields.

        A transaction has to be aborted then.
        """
        try:
            return await self.insert(collection, document)
        except pymongo.errors.DuplicateKeyError as exc:
            if set((exc.details or {}).get("keyPattern") or ()) != set(unique):
                raise
            return None

    async def change(
        self,
        collection: str,
        query: Mapping[str, Any],
        change: Pipeline | Mapping[str, Any],
        *,
        upsert: bool = False,
    ) -> RawBSONDocument | None:
        """Change one document and return it as it is after the change; None if none matched."""
        found = await self._mongo.raw(collection).find_one_and_update(
            query,
            change,
            upsert=upsert,
            return_document=pymongo.ReturnDocument.AFTER,
            collation=COLLATION,
            session=self._session,
        )
        return _detached(found)

    async def remove(self, collection: str, query: Mapping[str, Any]) -> RawBSONDocument | None:
        """Delete one document and return it; None if none matched."""
        found = await self._mongo.raw(collection).find_one_and_delete(
            query, collation=COLLATION, session=self._session
        )
        return _detached(found)

    async def find(
        self,
        collection: str,
        query: Mapping[str, Any],
        *,
        limit: int = 0,
        only: Sequence[str] | None = None,
    ) -> list[RawBSONDocument]:
        """Return matching documents as this session sees them.

        Args:
            limit: Maximum number; 0 for all.
            only: Fields to read; None for all.
        """
        cursor = self._mongo.raw(collection).find(
            query, only, limit=limit, collation=COLLATION, session=self._session
        )
        return [each async for each in cursor]

    async def update_each(
        self,
        collection: str,
        updates: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | Pipeline]],
    ) -> int:
        """Run one update per (filter, update), in one command. Returns how many matched."""
        result = await self._mongo.raw(collection).bulk_write(
            [pymongo.UpdateOne(query, change) for query, change in updates],
            ordered=False,
            session=self._session,
        )
        return int(result.matched_count)

    async def change_all(
        self, collection: str, query: Mapping[str, Any], change: Mapping[str, Any]
    ) -> int:
        """Change all matching documents. Returns how many changed."""
        result = await self._mongo.raw(collection).update_many(
            query, change, collation=COLLATION, session=self._session
        )
        return int(result.modified_count)

    async def remove_all(self, collection: str, query: Mapping[str, Any]) -> int:
        """Delete all matching documents. Returns how many."""
        result = await self._mongo.raw(collection).delete_many(
            query, collation=COLLATION, session=self._session
        )
        return int(result.deleted_count)

    async def change_each(
        self, collection: str, changes: Sequence[tuple[Any, Pipeline]], *, upsert: bool
    ) -> BulkChangeResult:
        """Change documents by `_id`, in one command and no order.

        Args:
            upsert: Insert the pipeline's result where a document does not exist.

        Upserts that met another insert of the same `_id` are reported as `conflicts`, to be
        repeated.
        """
        updates = [
            pymongo.UpdateOne({"_id": key}, list(change), upsert=upsert, collation=COLLATION)
            for key, change in changes
        ]
        try:
            result = await self._mongo.raw(collection).bulk_write(
                updates, ordered=False, session=self._session
            )
        except pymongo.errors.BulkWriteError as exc:
            details: Mapping[str, Any] = exc.details
            errors = details.get("writeErrors") or []
            if not errors or not all(map(_met_another, errors)):
                raise
            changed = details["nModified"] + details["nUpserted"]
            again = [each["index"] for each in errors]
            return BulkChangeResult(details["nMatched"], changed, again)
        changed = result.modified_count + result.upserted_count
        return BulkChangeResult(result.matched_count, changed, ())


@dataclass(frozen=True, slots=True)
class MatchedChangeResult:
    """Number of changed documents, and the reasons of refused changes by their index in the
    list.
    """

    changed: int
    refused: Mapping[int, str]


def has_names_once(document: Any) -> dict[str, Any]:
    """Return an expression that is true of an object without repeated names.

    MongoDB 6.0 terminates when a pipeline changes a repeated field: an invariant in
    document_diff_serialization.cpp. As an object of names and values it would lose one of them.
    """
    once = {"$arrayToObject": [{"$objectToArray": [document]}]}
    return {"$eq": [{"$bsonSize": [document]}, {"$bsonSize": [once]}]}


async def change_matching(
    mongo: Mongo, collection: str, changes: Sequence[tuple[Mapping[str, Any], Pipeline]]
) -> MatchedChangeResult:
    """Change all documents that match each query, in one command and no order.

    A refusal because of one document (validator, unique index, size) ends that change only; the
    others
    are made.

    Raises:
        GatewayError: A refusal for another reason; some changes may have been made.
    """
    updates = [
        pymongo.UpdateMany(query, list(change), collation=COLLATION) for query, change in changes
    ]
    with translate_driver_errors():
        try:
            result = await mongo.raw(collection).bulk_write(updates, ordered=False)
        except pymongo.errors.BulkWriteError as exc:
            details: Mapping[str, Any] = exc.details
            errors = details.get("writeErrors") or []
            confirmed = not details.get("writeConcernErrors")
            if not confirmed or not errors or not all(e.get("code") in OF_DOCUMENT for e in errors):
                raise
            refused = {each["index"]: str(each.get("errmsg")) for each in errors}
            return MatchedChangeResult(details["nModified"], refused)
    return MatchedChangeResult(result.modified_count, {})


def _met_another(error: Mapping[str, Any]) -> bool:
    return error.get("code") == DUPLICATE_KEY and list(error.get("keyPattern") or ()) == ["_id"]


def _detached(document: RawBSONDocument | None) -> RawBSONDocument | None:
    """Return the document with bytes of its own: see
    `streams.recording.versions.last_version_cache`.
    """
    if document is None or not isinstance(document.raw, memoryview):
        return document
    return RawBSONDocument(bytes(document.raw), RAW)
