"""Fenced upserts: writes of events that arrive in any order and more than once.

The state with the highest fence value stays. An event whose fence value is not higher changes
nothing; this includes the fence values of deleted documents.

An event, or batch, for existing documents is one round trip, without a prior read. Missing
documents are inserted by `resolvers.mutations.first_events`.
Does not guarantee: the comparison with a deletion that was not recorded, as without a recorder.
With a row rule the write is a transaction: the stored state before and after decides, since an
event may leave out fields that stay.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.errors import BadUserInput, Forbidden
from revstream.resolvers.mutations.document_input import parse_document
from revstream.resolvers.mutations.expected_version import (
    decode_content,
    not_found_error,
    outside_rows_error,
)
from revstream.resolvers.mutations.first_events import (
    FencedEvent,
    FirstEventInserts,
    InsertConflicts,
    is_stale,
)
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import (
    AlreadyExists,
    Author,
    InvalidDocument,
    StaleWrite,
    Written,
)
from revstream.resolvers.mutations.update_pipeline import attribution, fenced_pipeline
from revstream.resolvers.mutations.write_executor import ATTEMPTS, problem_of_document
from revstream.resolvers.mutations.writes import DocumentWrites
from revstream.resolvers.values.json_value import json_value
from revstream.resolvers.values.output import whole_number
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import DatabaseError, DuplicateKey, GatewayError
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.versioning.version import CHANGE_FIELD

__all__ = ["BatchOutcome", "FencedUpserts", "parse_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """Outcome of a batch of events.

    Attributes:
        applied: number of events that became the state of their document.
        stale: number of events that were stale.
        at: a cluster time at or after all these writes.
    """

    applied: int
    stale: int
    at: Timestamp


class _Absent(Exception):
    """Some documents do not exist and must be inserted in a transaction.

    Args:
        changed: number of other documents that were changed.
    """

    def __init__(self, changed: int = 0) -> None:
        super().__init__(changed)
        self.changed = changed


class FencedUpserts:
    """Fenced upserts of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        writes: DocumentWrites,
        own_writes: OwnWrites,
        repeats: IdempotencyStore,
    ) -> None:
        self._mongo = mongo
        self._first = FirstEventInserts(mongo, archives, own_writes)
        self._writes = writes
        self._own_writes = own_writes
        self._repeats = repeats
        self._scope = OPEN

    def within(self, scope: Scope, writes: DocumentWrites) -> FencedUpserts:
        """Return a copy for one caller, which refuses events of documents outside the caller's
        rows.

        The caller must be allowed to read the fence field, which results reveal, and to change the
        type of documents.

        Args:
            writes: limited to the same caller.
        """
        limited = copy.copy(self)
        limited._scope, limited._writes = scope, writes
        return limited

    def _rows(self, entity: Entity) -> RowFilter:
        assert entity.fence is not None
        self._scope.check_read(entity, entity.fence)
        self._scope.check_write(entity, entity.fence)
        for field in entity.member_fields:
            self._scope.check_write(entity, field)
        return self._scope.write_rows(entity)

    async def apply(self, entity: Entity, key: Any, document: Document, author: Author) -> Written:
        """Write an event as the document's state if its fence value is higher than the stored one.

        Raises:
            StaleWrite: it is not higher; nothing was changed.
            AlreadyExists: another document has a value of a unique field.
            InvalidDocument: MongoDB refuses the document.
            DocumentNotFound: the document is outside the caller's rows.
            Forbidden: the new state would be outside the caller's rows.
        """
        rows = self._rows(entity)
        await self._writes.before_insert(entity.collection)
        change = attribution(author, entity, key, op="REPLACE")
        pipeline = fenced_pipeline(self._scope.writable(entity), document, change)
        query = _within(rows, {"_id": key})

        async def work(writing: WriteSession) -> RawBSONDocument:
            found = await writing.change(entity.collection, query, pipeline)
            if found is None:
                if not writing.in_transaction:
                    raise _Absent
                await self._check_buried(entity, key, document)
                found = await writing.change(entity.collection, query, pipeline, upsert=True)
            assert found is not None
            applied_by = found.get(CHANGE_FIELD)
            if not isinstance(applied_by, Mapping) or applied_by.get("id") != change["id"]:
                raise _stale(entity, key, document, found)
            if rows.limits and not rows.allow({**decode_content(found), "_id": key}):
                # The transaction is aborted.
                raise outside_rows_error(entity, key)
            return found

        async def commit(transaction: bool) -> Written:
            return await self._writes.commits.commit(
                entity, key, change, author, work, None, transaction=transaction
            )

        async def applying() -> Written:
            transaction = rows.limits
            for _ in range(ATTEMPTS - 1):
                try:
                    return await commit(transaction)
                except _Absent:
                    transaction = True
                except AlreadyExists as exc:
                    # A concurrent insert was first: now there is a stored value to compare with.
                    if exc.path != "id":
                        raise
                    if rows.limits and not await self._mongo.find(
                        entity.collection, query, FindOptions(projection={"_id": 1}, limit=1)
                    ):
                        raise not_found_error(entity, key) from exc
            # Reached only if the collection's collation treats two ids as equal.
            return await commit(True)

        return await self._writes.once(entity, author, applying)

    async def apply_each(
        self, entity: Entity, events: Sequence[tuple[Any, Document]], author: Author
    ) -> BatchOutcome:
        """Write many events in one write, in no order; of several for one document only the newest.

        Raises:
            BadUserInput: another document has a value of a unique field; other events of the batch
                may have been applied.
            Forbidden: a document is, or would be, outside the caller's rows; nothing was applied.
        """
        rows = self._rows(entity)
        if not events:
            # MongoDB refuses an empty bulk write.
            return BatchOutcome(applied=0, stale=0, at=await self._mongo.operation_time())
        await self._writes.before_insert(entity.collection)
        newest = _newest(entity, events)
        writable = self._scope.writable(entity)
        fenced = [
            FencedEvent(
                key,
                document,
                fenced_pipeline(writable, document, attribution(author, entity, key, op="REPLACE")),
            )
            for key, document in newest
        ]

        async def work(writing: WriteSession) -> int:
            if not writing.in_transaction:
                pending = [(each.key, each.pipeline) for each in fenced]
                result = await writing.change_each(entity.collection, pending, upsert=False)
                if result.matched < len(pending):
                    raise _Absent(result.changed)
                return result.changed
            await self._check_found(writing, entity, rows, newest)
            # Before anything is written: it may wait, and others would wait for what is.
            there, first = await self._first.divided(writing, entity, fenced)
            pending = [(each.key, each.pipeline) for each in (*there, *first)]
            if not pending:
                return 0
            result = await writing.change_each(entity.collection, pending, upsert=True)
            if result.conflicts:
                # Which has ended the transaction.
                raise InsertConflicts([pending[place][0] for place in result.conflicts])
            await self._check_found(writing, entity, rows, newest)
            return result.changed

        async def applied() -> tuple[int, Timestamp]:
            met: Sequence[Any] = ()
            for _ in range(ATTEMPTS):
                try:
                    return await self._repeats.once(
                        author, work, lambda n: {"applied": n}, transaction=rows.limits
                    )
                except InsertConflicts as exc:
                    met = exc.keys
                except _Absent as exc:
                    try:
                        changed, at = await self._first.apply(entity, fenced)
                    except InsertConflicts as met_by:
                        done = "other events of the batch may have been applied"
                        raise _taken(entity, met_by.keys, done) from met_by
                    return exc.changed + changed, at
            raise _taken(entity, met, "nothing was applied")

        def note(at: Timestamp) -> None:
            for key, _ in newest:
                self._own_writes.note(entity.collection, key, at)

        async def applying() -> BatchOutcome:
            try:
                changed, at = await applied()
            except GatewayError as exc:
                if not isinstance(exc, Forbidden):
                    # Some of them may have been applied.
                    with suppress(GatewayError):
                        note(await self._mongo.operation_time())
                reason = self._reason(entity, exc)
                if reason is None:
                    raise
                raise BadUserInput(
                    f"events: {reason}; other events of the batch may have been applied, and can "
                    "be sent again",
                    argument="events",
                ) from exc
            note(at)
            # Where nothing was written, too: the reply says what the server has come to, which is
            # not behind what made these events stale.
            return BatchOutcome(applied=changed, stale=len(events) - changed, at=at)

        async def from_outcome(outcome: Mapping[str, Any]) -> BatchOutcome:
            changed = outcome["applied"]
            at = await self._mongo.operation_time()
            return BatchOutcome(applied=changed, stale=len(events) - changed, at=at)

        return await self._repeats.run_once(author, applying, from_outcome)

    def _reason(self, entity: Entity, exc: GatewayError) -> str | None:
        """Return why MongoDB has refused an event; None where it is not about one."""
        if isinstance(exc, DuplicateKey):
            return self._writes.commits.exists(entity, exc).message
        problem = problem_of_document(entity, exc) if isinstance(exc, DatabaseError) else None
        return None if problem is None else f"one document {problem}"

    async def _check_buried(self, entity: Entity, key: Any, document: Document) -> None:
        """Raises:
        StaleWrite: the document was deleted, with a fencing token that is not below this one.
        """
        fence = (await self._first.buried(entity, [key])).get(identity(key))
        if is_stale(entity, document, fence):
            assert entity.fence is not None
            raise _stale(entity, key, document, {entity.fence.stored: fence})

    async def _check_found(
        self,
        writing: WriteSession,
        entity: Entity,
        rows: RowFilter,
        events: Sequence[tuple[Any, Document]],
    ) -> None:
        """Check documents against the caller's rows before and after the write, in its transaction.

        Raises:
            Forbidden: A document exists outside of the caller's rows.
        """
        if not rows.limits:
            return
        keys = [key for key, _ in events]
        outside = {"$and": [{"_id": {"$in": keys}}, {"$nor": [rows.query]}]}
        for found in await writing.find(entity.collection, outside, limit=1):
            raise outside_rows_error(entity, found["_id"])


def _taken(entity: Entity, keys: Sequence[Any], done: str) -> BadUserInput:
    ids = ", ".join(str(json_value(key)) for key in keys[:5])
    return BadUserInput(
        f"events: ids that the collation of {entity.collection!r} does not distinguish from those "
        f"of other documents: {ids}; change them; {done}",
        argument="events",
    )


def _within(rows: RowFilter, query: Document) -> Document:
    # Not as it is: an upsert begins with what a query says is equal.
    return {"$and": [query, {"$nor": [{"$nor": [rows.query]}]}]} if rows.limits else query


def _newest(entity: Entity, events: Sequence[tuple[Any, Document]]) -> list[tuple[Any, Document]]:
    assert entity.fence is not None
    fence = entity.fence.stored
    found: dict[Any, tuple[Any, Document]] = {}
    for key, document in events:
        held = found.get(identity(key))
        if held is None or held[1][fence] < document[fence]:
            found[identity(key)] = (key, document)
    return list(found.values())


def _stale(entity: Entity, key: Any, document: Document, found: Mapping[str, Any]) -> StaleWrite:
    assert entity.fence is not None
    given = int(document[entity.fence.stored])
    held = whole_number(found[entity.fence.stored])
    return StaleWrite(
        f"{entity.name} {json_value(key)}: fence value {given}, expected more than "
        f"{json_value(found[entity.fence.stored])}, which is already applied",
        fence=given,
        applied=given if held is None else held,
    )


def parse_event(model: Model, entity: Entity, document: Mapping[str, Any]) -> Document:
    """Convert the document of an event, which has a fence value.

    Raises:
        InvalidDocument: a value that does not match the model, or no fence value.
    """
    found = parse_document(model, entity, document)
    assert entity.fence is not None
    if entity.fence.stored not in found:
        name = entity.fence.name
        raise InvalidDocument(
            f"{entity.name}.{name}: missing, expected the fence value of the event; pass one",
            path=name,
        )
    return found
