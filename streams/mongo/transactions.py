"""Write documents of the modelled collections: one write, or several in a transaction, and the
cluster time at which they happened.

Guarantees: `at` is the cluster time of the change event that the write makes (measured on one that
is a document's and on transactions), so that a resume token made of it stands right behind it.
Does not guarantee: that after an election, where the driver has sent a write again, it is not a
little later.
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

# As long as the drivers repeat a transaction.
_RETRIED_S = 120.0

T = TypeVar("T")
Pipeline = Sequence[Mapping[str, Any]]


async def write(
    mongo: Mongo, work: Callable[[WriteSession], Awaitable[T]], *, transaction: bool = False
) -> tuple[T, Timestamp]:
    """What `work` returns, and the cluster time of the last write that it made.

    Args:
        work: in a transaction it is run again where another one got in its way; what it raises
            undoes what it has written.

    Raises:
        DuplicateKey: says of which fields; and what MongoDB refuses otherwise.
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
    """Motor commits outside of the part that it repeats: where another one gets in the way of the
    commit itself, nothing has happened, and it is repeated here."""
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
    """Motor, cancelled while a thread of its undoes a transaction, undoes it a second time, and
    tells of that instead."""
    try:
        yield
    except pymongo.errors.InvalidOperation as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from exc
        raise


@dataclass(frozen=True, slots=True)
class BulkChangeResult:
    """What became of a write of many.

    Attributes:
        matched: how many documents were there. changed: how many differ now.
        conflicts: the places in the list of those to be tried again.
    """

    matched: int
    changed: int
    conflicts: Sequence[int]


class WriteSession:
    """What may be written within one `write`; documents come back raw.

    Attributes:
        main_write_time: when the write was made that the others only go with; None for the
            last one.
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
        """Of the change events of a transaction, `lsid.id`."""
        found: Binary = self._session.session_id["id"]
        return found

    @property
    def cluster_time(self) -> Timestamp:
        """The cluster time that the last reply told."""
        found: Timestamp = self._session.operation_time
        return found

    async def insert(self, collection: str, document: Mapping[str, Any]) -> RawBSONDocument:
        """The document as it is sent; without an `_id` it gets one."""
        sent = RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)
        await self._mongo.raw(collection).insert_one(sent, session=self._session)
        return sent

    async def insert_unless(
        self, collection: str, document: Mapping[str, Any], unique: Sequence[str]
    ) -> RawBSONDocument | None:
        """The same, or None where another document has these values of the fields that are unique
        together; a transaction has then to be given up."""
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
        """The document after it, or None where none matched."""
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
        """The document that was there, or None where none matched."""
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
        """Documents that match, as this write sees them.

        Args:
            limit: 0 for all of them. only: the fields that are read; None for all.
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
        """One update per (filter, update), in one command. Returns how many matched."""
        result = await self._mongo.raw(collection).bulk_write(
            [pymongo.UpdateOne(query, change) for query, change in updates],
            ordered=False,
            session=self._session,
        )
        return int(result.matched_count)

    async def change_all(
        self, collection: str, query: Mapping[str, Any], change: Mapping[str, Any]
    ) -> int:
        """How many differ now."""
        result = await self._mongo.raw(collection).update_many(
            query, change, collation=COLLATION, session=self._session
        )
        return int(result.modified_count)

    async def remove_all(self, collection: str, query: Mapping[str, Any]) -> int:
        """How many there were."""
        result = await self._mongo.raw(collection).delete_many(
            query, collation=COLLATION, session=self._session
        )
        return int(result.deleted_count)

    async def change_each(
        self, collection: str, changes: Sequence[tuple[Any, Pipeline]], *, upsert: bool
    ) -> BulkChangeResult:
        """Change documents by `_id`; in one command and no order.

        Args:
            upsert: insert what the pipeline makes of nothing.

        Those whose first insert met another one's are to be tried again.
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
    """How many documents differ now, and why a change was refused, by its place in the list."""

    changed: int
    refused: Mapping[int, str]


def has_names_once(document: Any) -> dict[str, Any]:
    """An expression that is true of an object in which no name stands twice.

    MongoDB 6.0 ends itself where a pipeline changes a field that stands twice: an invariant in
    document_diff_serialization.cpp. As an object of names and values it would lose one of them.
    """
    once = {"$arrayToObject": [{"$objectToArray": [document]}]}
    return {"$eq": [{"$bsonSize": [document]}, {"$bsonSize": [once]}]}


async def change_matching(
    mongo: Mongo, collection: str, changes: Sequence[tuple[Mapping[str, Any], Pipeline]]
) -> MatchedChangeResult:
    """Change all documents that each query finds; in one command and no order. What is refused for
    the sake of a document (by a validator, a unique index, its size) does not keep the others from
    being made, but ends its own change.

    Raises:
        GatewayError: what is refused for another reason; some of it may have been made.
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
    """With bytes of its own: see `streams.recording.versions.last_version_cache`."""
    if document is None or not isinstance(document.raw, memoryview):
        return document
    return RawBSONDocument(bytes(document.raw), RAW)
