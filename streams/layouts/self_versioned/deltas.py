"""DELTAS layout: each version is a document `{docId, v, …}`, unique on both, with its changes only.

It has the changed top-level fields, and the names of removed ones in `unset`. A version results
from
merging all deltas since the last one that is `whole`, or since the first; a deletion discards
everything before. The gateway writes every twentieth version as a whole one, so that a read costs a
bounded number of deltas. A write is one insert, which the unique index refuses to the second of two
writers, so there is nothing to recover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import identity
from revstream.streams.layouts.core.stored_version import (
    ConcurrentWrite,
    LogicalWrite,
    StoredVersion,
    valid_id_query,
)
from revstream.streams.layouts.self_versioned.document_per_version import DocumentPerVersionLayout
from revstream.streams.layouts.self_versioned.engine import Stages
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.raw_bson.fields import document_from_elements, iterate_elements

__all__ = ["WHOLE_EVERY", "DeltasLayout"]

WHOLE_EVERY = 20
"""Number of versions from one whole version to the next."""


class DeltasLayout(DocumentPerVersionLayout):
    """Layout whose stored versions are deltas."""

    def _own(self) -> tuple[str, ...]:
        return (*super()._own(), self.names.unset, self.names.whole)

    async def create_indexes(self) -> None:
        await super().create_indexes()
        await self.mongo.create_index(
            self.collection,
            [(self.names.document, 1), (self.names.number, -1)],
            partialFilterExpression={self.names.whole: True},
            collation={"locale": "simple"},
        )

    def _current(self) -> Stages:
        names = self.names
        state, row = "$$value", "$$this"
        gone = f"{row}.{names.unset}"
        afresh = {
            "$or": [
                {"$eq": [f"{row}.{names.whole}", True]},
                {"$eq": [f"{state}.{names.deleted}", True]},
            ]
        }
        left = {
            "$arrayToObject": {
                "$filter": {
                    "input": {"$objectToArray": state},
                    "as": "field",
                    "cond": {"$not": {"$in": ["$$field.k", gone]}},
                }
            }
        }
        before = {"$cond": [afresh, {}, {"$cond": [{"$isArray": gone}, left, state]}]}
        merged = {"$mergeObjects": [before, row]}
        return [
            {"$sort": {names.document: 1, names.number: 1}},
            {"$group": {"_id": f"${names.document}", "rows": {"$push": "$$ROOT"}}},
            {"$replaceWith": {"$reduce": {"input": "$rows", "initialValue": {}, "in": merged}}},
            {"$match": {names.deleted: {"$ne": True}, **valid_id_query(names.document)}},
            {"$set": {"_id": f"${names.document}"}},
            {"$unset": list(self.own)},
        ]

    def _versions(self, rows: Iterable[RawBSONDocument]) -> list[StoredVersion]:
        """Return the versions that result from merging each delta with the earlier ones."""
        names = self.names
        made: list[StoredVersion] = []
        fields: dict[bytes, bytes] = {}
        for row in rows:
            kept = self.rows.to_version(row)
            if kept.number is None:
                continue
            last = made[-1] if made else None
            follows = last is not None and identity(last.key) == identity(kept.key)
            there = follows and last is not None and last.content is not None
            if not there or row.get(names.whole) is True:
                fields = {}
            for name in _names_in(row.get(names.unset)):
                fields.pop(name.encode(), None)
            if kept.content is not None:
                fields |= dict(iterate_elements(bytes(kept.content.raw)))
                content = RawBSONDocument(document_from_elements(fields.values()), RAW)
                kept = replace(kept, content=content)
            made.append(kept)
        return made

    def _logical_write(self, kept: StoredVersion) -> LogicalWrite:
        # The content of a delta depends on the earlier versions.
        version = kept if kept.content is None else None
        return LogicalWrite(key=kept.key, number=kept.number, version=version)

    async def last(self, key: Any) -> StoredVersion | None:
        row = await self.rows.last(key)
        number = None if row is None else self.rows.to_version(row).number
        if number is None:
            return None
        found = await self.versions([(key, number)])
        return found.get((identity(key), number))

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        if not wanted:
            return {}
        wholes = await self.rows.find_below(wanted, match={self.names.whole: True}, inclusive=True)
        ranges: dict[tuple[Any, int], tuple[Any, int]] = {}
        for (key, number), whole in zip(wanted, wholes, strict=True):
            start = 0 if whole is None else self.rows.to_version(whole).number or 0
            place = (identity(key), start)
            ranges[place] = (key, max(number, ranges.get(place, (None, 0))[1]))
        names = self.names
        queries = [
            {names.document: {"$eq": key}, names.number: {"$gte": start, "$lte": end}}
            for (_, start), (key, end) in ranges.items()
        ]
        sort = [(names.document, 1), (names.number, 1)]
        found = await self.mongo.find(
            self.collection, {"$or": queries}, FindOptions(sort=sort, raw=True)
        )
        asked = {(identity(key), number) for key, number in wanted}
        return {
            place: each
            for each in self._versions(found)
            if (place := (identity(each.key), each.number or 0)) in asked
        }

    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        found = await super().before(wanted)
        places = [(each.key, each.number or 0) for each in found if each is not None]
        versions = await self.versions(places)
        return [
            None if each is None else versions.get((identity(each.key), each.number or 0))
            for each in found
        ]

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        row = self._delta(last, made)
        if await writing.insert_unless(self.collection, row, self.rows.unique) is None:
            raise ConcurrentWrite

    def _delta(self, last: StoredVersion | None, made: StoredVersion) -> RawBSONDocument:
        """Return the row that turns the last version into a new one."""
        if made.content is None:
            return self.rows.to_row(made)
        assert made.number is not None
        if last is None or last.content is None or made.number % WHOLE_EVERY == 1:
            return self.rows.to_row(made, **{self.names.whole: True})
        before = dict(iterate_elements(bytes(last.content.raw)))
        after = dict(iterate_elements(bytes(made.content.raw)))
        always = (b"_id", self.names.number.encode())
        changed = [e for name, e in after.items() if name in always or before.get(name) != e]
        gone = [name.decode(errors="replace") for name in before if name not in after]
        content = RawBSONDocument(document_from_elements(changed), RAW)
        more: Document = {self.names.unset: gone} if gone else {}
        return self.rows.to_row(
            StoredVersion(key=made.key, number=made.number, content=content), **more
        )


def _names_in(unset: Any) -> list[str]:
    """Return the names in a list; nothing where an application has stored another value."""
    return [each for each in unset if isinstance(each, str)] if isinstance(unset, list) else []
