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

from model.entities import Entity
from resolvers.commits import ATTEMPTS, problem_of_document, restless
from resolvers.own_writes import OwnWrites
from streams.archive import Archive
from streams.deletions import Deletions
from streams.documents import Document
from streams.errors import DatabaseError, DuplicateKey
from streams.events import identity
from streams.mongo import Mongo
from streams.writing import EachChanged, Pipeline, Writing, write

__all__ = ["FencedEvent", "FirstEvents", "KeysMet", "is_stale"]


class FencedEvent(NamedTuple):
    """A document's state, and the update that makes it of an older one."""

    key: Any
    document: Document
    pipeline: Pipeline


class KeysMet(Exception):
    """First inserts of a transaction met others'."""

    def __init__(self, keys: Sequence[Any]) -> None:
        super().__init__(keys)
        self.keys = keys


class FirstEvents:
    """Of documents of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._deletions = Deletions(mongo)
        self._own_writes = own_writes

    async def apply(self, entity: Entity, events: Sequence[FencedEvent]) -> tuple[int, Timestamp]:
        """Apply events of which some documents are not there. Returns how many are now their
        document's state, and when.

        Raises:
            DuplicateKey, DatabaseError, KeysMet: one is refused; all others were applied.
        """
        try:
            return await self._inserted(entity, events)
        except (DuplicateKey, DatabaseError, KeysMet) as exc:
            if isinstance(exc, DatabaseError) and problem_of_document(entity, exc) is None:
                raise
            if len(events) == 1:
                raise
        # One of them has undone the transaction: of the halves it is in one.
        middle, changed, at = len(events) // 2, 0, None
        refused: Exception | None = None
        for half in (events[:middle], events[middle:]):
            try:
                first, at = await self.apply(entity, half)
                changed += first
            except (DuplicateKey, DatabaseError, KeysMet) as exc:
                refused = refused or exc
        if refused is not None:
            raise refused
        assert at is not None
        return changed, at

    async def _inserted(
        self, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[int, Timestamp]:
        changed, left = 0, events

        async def insert(writing: Writing) -> tuple[int, Sequence[FencedEvent]]:
            return await self._insert_absent(writing, entity, left)

        async def change(writing: Writing) -> EachChanged:
            pending = [(each.key, each.pipeline) for each in left]
            return await writing.change_each(entity.collection, pending, upsert=False)

        for _ in range(ATTEMPTS):
            (inserted, left), at = await write(self._mongo, insert, transaction=True)
            changed += inserted
            if not left:
                return changed, at
            # Others have come meanwhile, or were there before.
            result, at = await write(self._mongo, change)
            changed += result.changed
            if result.found == len(left):
                return changed, at
        raise restless(entity, left[0].key)

    async def _insert_absent(
        self, writing: Writing, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[int, Sequence[FencedEvent]]:
        """Within a transaction. Returns how many were inserted, and those whose documents are
        there."""
        there, first = await self.divided(writing, entity, events)
        if first:
            pending = [(each.key, each.pipeline) for each in first]
            result = await writing.change_each(entity.collection, pending, upsert=True)
            if result.again:
                raise KeysMet([first[place].key for place in result.again])
        return len(first), there

    async def divided(
        self, writing: Writing, entity: Entity, events: Sequence[FencedEvent]
    ) -> tuple[Sequence[FencedEvent], Sequence[FencedEvent]]:
        """Within a transaction that has written nothing, divide events into those whose documents
        are there, and first ones that are not stale.

        Raises: as `buried`.
        """
        found = await writing.found(
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
            self._archives[entity.collection].buried_fences(keys),
        )
        highest: dict[Any, Any] = {}
        for key, fence in (*lines, *records):
            value = fence_number(fence)
            if value is not None:
                highest[identity(key)] = max(value, highest.get(identity(key), value))
        return highest


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
