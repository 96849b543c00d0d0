"""Write documents of the modelled collections: one write, or several in a transaction, and the
cluster time at which they happened.

Guarantees: `at` is the cluster time of the change event that the write makes (measured on one that
is a document's and on transactions), so that a resume token made of it stands right behind it.
Does not guarantee: that after an election, where the driver has sent a write again, it is not a
little later.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pymongo
import pymongo.errors
from bson import Binary, Timestamp
from bson.raw_bson import RawBSONDocument

from streams.documents import RAW
from streams.mongo import COLLATION, Mongo
from streams.refusals import DUPLICATE_KEY, translated

__all__ = ["EachChanged", "Pipeline", "Writing", "write"]

T = TypeVar("T")
Pipeline = Sequence[Mapping[str, Any]]


async def write(
    mongo: Mongo, work: Callable[[Writing], Awaitable[T]], *, transaction: bool = False
) -> tuple[T, Timestamp]:
    """What `work` returns, and the cluster time of the last write that it made.

    Args:
        work: in a transaction it is run again where another one got in its way; what it raises
            undoes what it has written.

    Raises:
        DuplicateKey: says of which fields; and what MongoDB refuses otherwise.
    """
    with translated():
        async with mongo.session() as session:
            writing = Writing(mongo, session)
            if transaction:
                result = await session.with_transaction(lambda _session: work(writing))
            else:
                result = await work(writing)
            return result, session.operation_time


@dataclass(frozen=True, slots=True)
class EachChanged:
    """What became of a write of many: how many documents differ now, and the places in the list of
    those to be tried again."""

    changed: int
    again: Sequence[int]


class Writing:
    """What may be written within one `write`; documents come back raw."""

    def __init__(self, mongo: Mongo, session: Any) -> None:
        self._mongo = mongo
        self._session = session

    @property
    def session_id(self) -> Binary:
        """Of the change events of a transaction, `lsid.id`."""
        found: Binary = self._session.session_id["id"]
        return found

    @property
    def at(self) -> Timestamp:
        """The cluster time that the last reply told."""
        found: Timestamp = self._session.operation_time
        return found

    async def insert(self, collection: str, document: Mapping[str, Any]) -> None:
        await self._mongo.raw(collection).insert_one(document, session=self._session)

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

    async def change_each(
        self, collection: str, changes: Sequence[tuple[Any, Pipeline]]
    ) -> EachChanged:
        """Change documents by `_id`, or insert what the pipeline makes of nothing; in one command
        and no order.

        Those whose first insert met another one's are to be tried again.
        """
        updates = [
            pymongo.UpdateOne({"_id": key}, list(change), upsert=True, collation=COLLATION)
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
            return EachChanged(changed, [each["index"] for each in errors])
        return EachChanged(result.modified_count + result.upserted_count, ())


def _met_another(error: Mapping[str, Any]) -> bool:
    return error.get("code") == DUPLICATE_KEY and list(error.get("keyPattern") or ()) == ["_id"]


def _detached(document: RawBSONDocument | None) -> RawBSONDocument | None:
    """With bytes of its own: see `streams.memory`."""
    if document is None or not isinstance(document.raw, memoryview):
        return document
    return RawBSONDocument(bytes(document.raw), RAW)
