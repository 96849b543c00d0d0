"""First events of documents: inserted unless they are stale beside one that was deleted.

They are inserted in a transaction. What it sees is the moment up to which deletions, by whomever,
have to be recorded; then the fencing tokens of deleted documents are looked for. Whatever happens
to such an `_id` behind that moment makes MongoDB refuse the insert (a write conflict), and all of
it is done again.
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
"""Each of them takes two transactions more."""


class FencedEvent(NamedTuple):
    """A document's state, and the update that makes it of an older one."""

    key: Any
    document: Document
    pipeline: Pipeline


class InsertConflicts(Exception):
    """First inserts of a transaction met others'."""

    def __init__(self, keys: Sequence[Any]) -> None:
        super().__init__(keys)
        self.keys = keys


class _Refused(Exception):
    """Events with these keys, for what they are; one of them has undone a transaction, or all
    others were applied."""

    def __init__(self, keys: Sequence[Any], refusal: Exception) -> None:
        super().__init__(keys)
        self.keys = keys
        self.refusal = refusal


class FirstEventInserts:
    """Of documents of all entities.

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
        """Apply events of which some documents are not there. Returns how many are now their
        document's state, and when.

        Raises:
            DuplicateKey, DatabaseError, KeysMet: some are refused; all others were applied, unless
                `_MOST_REFUSALS` have undone a transaction each: then those before them.
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
                # Those before it were not refused: nothing is written more than twice.
                waiting += [each for each in _around(part, exc.keys) if each]
        if refusals:
            raise refusals[0]
        assert at is not None
        return changed, at

    async def _inserted(
        self, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[int, Timestamp]:
        """Raises:
        _Refused: some are; where that was in the transaction, nothing was applied.
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
                # Others have come meanwhile, or were there before.
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
        """Within a transaction that has written nothing, divide events into those whose documents
        are there, and first ones that are not stale.

        Raises: as `buried`.
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
        """By `identity`, the highest fencing tokens of documents that were deleted, by now and by
        anybody.

        Raises:
            ArchiveBehind: one may have been, and is not recorded within the bound.
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
    """Return the events behind the first one that has one of the keys, without any that has, and
    those before it."""
    refused = {identity(each) for each in keys}
    places = [place for place, each in enumerate(events) if identity(each.key) in refused]
    behind = (each for each in events[places[0] :] if identity(each.key) not in refused)
    return list(behind), events[: places[0]]


def _refused_keys(
    entity: Entity, sent: Sequence[FencedEvent], exc: DuplicateKey | DatabaseError | InsertConflicts
) -> Sequence[Any]:
    """Return the keys of the events that were refused for what they are; none where it was for
    another reason."""
    if isinstance(exc, InsertConflicts):
        return exc.keys
    if isinstance(exc, DatabaseError) and problem_of_document(entity, exc) is None:
        return ()
    return [sent[place].key for place in exc.places]


def fence_number(value: Any) -> Any:
    """As Python compares it; None where MongoDB calls it no number, or it is none that compares."""
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    # math.isnan raises on a signaling one, and so does a comparison.
    nan = value.is_nan() if isinstance(value, Decimal) else isnan(value)
    return None if nan else value


def is_stale(entity: Entity, document: Document, fence: Any) -> bool:
    assert entity.fence is not None
    given = fence_number(document[entity.fence.stored])
    return fence is not None and given is not None and given <= fence
