"""First events of documents: inserts, unless a deleted document had the same or a higher fence
value.

They are inserted in a transaction. Its snapshot defines the time up to which all deletions must be
recorded; then the fence values of deleted documents are read. A later change of such an `_id` makes
MongoDB refuse the insert (write conflict), and the whole step is repeated.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isnan
from typing import Any, NamedTuple

from bson import Decimal128, Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.mutations.write_executor import (
    ATTEMPTS,
    problem_of_document,
    too_many_conflicts,
)
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import DatabaseError, DuplicateKey
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import BulkChangeResult, Pipeline, WriteSession, write
from revstream.streams.recording.versions.delete_attribution import DeleteAttributions

__all__ = ["FencedEvent", "FirstEventInserts", "InsertConflicts", "is_stale"]

_MOST_REFUSALS = 30
"""Maximum number of refused inserts per batch; each takes two more transactions."""


class FencedEvent(NamedTuple):
    """State of a document, and the update pipeline that writes it over an older one."""

    key: Any
    document: Document
    pipeline: Pipeline


class InsertConflicts(Exception):
    """First inserts of a transaction that conflict with concurrent ones."""

    def __init__(self, keys: Sequence[Any]) -> None:
        super().__init__(keys)
        self.keys = keys


class _Refused(Exception):
    """Events that MongoDB refuses because of their content.

    Either the transaction was aborted by one of them, or all others were applied.
    """

    def __init__(self, keys: Sequence[Any], refusal: Exception) -> None:
        super().__init__(keys)
        self.keys = keys
        self.refusal = refusal


class FirstEventInserts:
    """Inserts of first events for all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._deletions = DeleteAttributions(mongo)
        self._own_writes = own_writes

    async def apply(self, entity: Entity, events: Sequence[FencedEvent]) -> tuple[int, Timestamp]:
        """Apply events some of whose documents do not exist.

        Returns:
            The number of events that became their document's state, and the cluster time.

        Raises:
            DuplicateKey, DatabaseError, InsertConflicts: some events are refused. All others were
                applied, unless `_MOST_REFUSALS` was reached: then only those before.
        """
        changed, at = 0, None
        refusals: list[Exception] = []
        waiting = [events]
        while waiting and len(refusals) < _MOST_REFUSALS:
            part = waiting.pop()
            try:
                first, at = await self._inserted(entity, part)
                changed += first
            except _Refused as exc:
                refusals.append(exc.refusal)
                # The events before it were not refused: no event is written more than twice.
                waiting += [each for each in _around(part, exc.keys) if each]
        if refusals:
            raise refusals[0]
        assert at is not None
        return changed, at

    async def _inserted(
        self, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[int, Timestamp]:
        """Insert the missing documents and change the existing ones.

        Raises:
            _Refused: some events are refused; nothing was applied if that was in the transaction.
        """
        changed, left = 0, events
        sent: Sequence[FencedEvent] = ()

        async def insert(writing: WriteSession) -> tuple[int, Sequence[FencedEvent]]:
            nonlocal sent
            there, sent = await self.divided(writing, entity, left)
            if sent:
                pending = [(each.key, each.pipeline) for each in sent]
                result = await writing.change_each(entity.collection, pending, upsert=True)
                if result.conflicts:
                    raise InsertConflicts([sent[place].key for place in result.conflicts])
            return len(sent), there

        async def change(writing: WriteSession) -> BulkChangeResult:
            nonlocal sent
            sent = left
            pending = [(each.key, each.pipeline) for each in sent]
            return await writing.change_each(entity.collection, pending, upsert=False)

        for _ in range(ATTEMPTS):
            try:
                (inserted, left), at = await write(self._mongo, insert, transaction=True)
                changed += inserted
                if not left:
                    return changed, at
                # Documents that were inserted concurrently, or existed before.
                result, at = await write(self._mongo, change)
            except (DuplicateKey, DatabaseError, InsertConflicts) as exc:
                keys = _refused_keys(entity, sent, exc)
                if not keys:
                    raise
                raise _Refused(keys, exc) from exc
            changed += result.changed
            if result.matched == len(left):
                return changed, at
        raise too_many_conflicts(entity, left[0].key)

    async def divided(
        self, writing: WriteSession, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[Sequence[FencedEvent], Sequence[FencedEvent]]:
        """Divide events into those whose document exists, and first events that are not stale.

        Must run in a transaction that has written nothing. Raises as `buried`.
        """
        found = await writing.find(
            entity.collection, {"_id": {"$in": [each.key for each in events]}}, only=("_id",)
        )
        there = {identity(each["_id"]) for each in found}
        absent = [each for each in events if identity(each.key) not in there]
        if not absent:
            return events, ()
        buried = await self.buried(entity, [each.key for each in absent])
        first = [
            each
            for each in absent
            if not is_stale(entity, each.document, buried.get(identity(each.key)))
        ]
        return [each for each in events if identity(each.key) in there], first

    async def buried(self, entity: Entity, keys: Sequence[Any]) -> dict[Any, Any]:
        """Return the highest fence values of deleted documents, by `identity`.

        Raises:
            ArchiveBehind: deletions up to now were not recorded in time.
        """
        now = await self._mongo.operation_time()
        await self._own_writes.deletions(entity.collection, keys, now)
        lines, records = await asyncio.gather(
            self._deletions.fences(entity.collection, keys),
            self._archives[entity.collection].fences_of_deleted(keys),
        )
        highest: dict[Any, Any] = {}
        for key, fence in (*lines, *records):
            value = fence_number(fence)
            if value is not None:
                highest[identity(key)] = max(value, highest.get(identity(key), value))
        return highest


def _around(
    events: Sequence[FencedEvent], keys: Sequence[Any]
) -> tuple[Sequence[FencedEvent], Sequence[FencedEvent]]:
    """Split events at the first refused one: return those after it without refused keys, and those
    before.
    """
    refused = {identity(each) for each in keys}
    places = [place for place, each in enumerate(events) if identity(each.key) in refused]
    behind = (each for each in events[places[0] :] if identity(each.key) not in refused)
    return list(behind), events[: places[0]]


def _refused_keys(
    entity: Entity, sent: Sequence[FencedEvent], exc: DuplicateKey | DatabaseError | InsertConflicts
) -> Sequence[Any]:
    """Return the keys of events that were refused because of their content; empty for other
    errors.
    """
    if isinstance(exc, InsertConflicts):
        return exc.keys
    if isinstance(exc, DatabaseError) and problem_of_document(entity, exc) is None:
        return ()
    return [sent[place].key for place in exc.places]


def fence_number(value: Any) -> Any:
    """Return the fence value as a Python number; None if it is not a comparable number."""
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    # math.isnan and comparisons raise on a signaling NaN.
    nan = value.is_nan() if isinstance(value, Decimal) else isnan(value)
    return None if nan else value


def is_stale(entity: Entity, document: Document, fence: Any) -> bool:
    """Return whether the document's fence value is at or below `fence`."""
    assert entity.fence is not None
    given = fence_number(document[entity.fence.stored])
    return fence is not None and given is not None and given <= fence
