"""Documents that referred to other documents at a moment: a page for each of them.

With the archive's index of the reference, one command reads all pages: it finds the documents that
have ever referred, looks up the version of each at the moment, and keeps those that still did. It
costs as much as there are such documents, 35 µs each. Without the index, or where contents lie
outside of their records, every document that was current is read, once per moment.

Source: docs/decisions/0049-references-as-of.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.filters.expression import Condition, paths
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.history.as_of.content_filter import ContentFilter
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.order_by import order_keys
from revstream.resolvers.pagination.page import Page, Window, and_queries
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.pages_by_parent import pages_by_key
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.indexes import ALL_DOCUMENTS, TIME_INDEX, last_version_stages
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = [
    "ReferringDocuments",
    "WantedReferrers",
    "lookup_referring",
    "owners_by_key",
    "owners_of",
]

# Records that are read at once without the index; documents that wait for being sorted.
_PORTION = 500
_MOST_UNSORTED = 1000


@dataclass(frozen=True, slots=True)
class WantedReferrers:
    """Request for the documents that referred to one of `keys` at a cluster time."""

    keys: Sequence[Any]
    at: Timestamp


class ReferringDocuments:
    """Reads of the documents of one archive that hold an id in one field.

    Args:
        stored: the stored name of the field.
        condition: the filter, on records of the archive.
        query: the page of each; its `where` is not used.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        entity: Entity,
        stored: str,
        condition: Condition,
        query: PageQuery[Condition],
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._stored = stored
        self._path = f"full.{stored}"
        self._where = to_query(condition)
        self._query = query
        keys = order_keys(entity, query.order, id_path="doc", version_path="v", prefix="full.")
        # The keyset's kind excludes the parent and the moment: one cursor applies to all.
        self._keyset = Keyset(f"as of {entity.name} by {stored}", keys)
        looked_at = {self._path, *paths(condition), *(path for path, _ in keys)}
        self._names = frozenset(p.split(".")[1] for p in looked_at if p.startswith("full."))

    async def pages(self, wanted: Sequence[WantedReferrers]) -> list[Page[Version]]:
        """Read n pages of versions, in the order of `wanted`."""
        window = Window(self._keyset, self._query.page)
        packed = await self._archive.has_packed()
        if packed or not await self._archive.finds_references(self._stored):
            by_moment: dict[Timestamp, list[int]] = {}
            for n, each in enumerate(wanted):
                by_moment.setdefault(each.at, []).append(n)
            found: dict[int, Page[Version]] = {}
            for at, places in by_moment.items():
                pages = await self._swept(window, at, [wanted[n].keys for n in places])
                found.update(zip(places, pages, strict=True))
            return [found[n] for n in range(len(wanted))]

        def read(beside: Mapping[str, Any]) -> Awaitable[list[Page[Version]]]:
            return self._looked_up(window, wanted, beside)

        pages, unordered = await window.read(read)
        return [replace(each, unordered=unordered) for each in pages] if unordered else pages

    async def _looked_up(
        self, window: Window, wanted: Sequence[WantedReferrers], beside: Mapping[str, Any]
    ) -> list[Page[Version]]:
        """Read all pages with one command, by the index of the reference."""
        return await pages_by_key(
            self._mongo,
            lookup_referring(self._archive.name, self._stored),
            [list(each.keys) for each in wanted],
            query=and_queries(self._where, beside),
            window=window,
            projection=record_projection(self._query.fields, frozenset()),
            make=Version.from_record,
            total=self._query.total,
            variables=[{"at": each.at, "keys": list(each.keys)} for each in wanted],
            most=self._query.most,
        )

    async def _swept(
        self, window: Window, at: Timestamp, wanted: Sequence[Sequence[Any]]
    ) -> list[Page[Version]]:
        """Read every document that was current, and the pages of those that refer.

        Raises:
            LimitExceeded: the operation has scanned more documents than its limit.
        """
        self._mongo.count_scan(self._archive.collection)
        referring = {self._path: {"$in": [key for keys in wanted for key in keys]}}
        owners = owners_by_key(wanted)
        judging = ContentFilter(
            self._mongo, self._archive, and_queries(self._where, referring), self._names
        )
        stages = [
            {"$match": ALL_DOCUMENTS},
            *last_version_stages(at),
            {"$match": {"op": {"$ne": "DELETE"}}},
        ]
        kept: list[list[Document]] = [[] for _ in wanted]
        totals = [0] * len(wanted)
        left_out: set[str] = set()

        async def cut() -> int:
            """Keep the first documents of each page, and return the number of all of them."""
            for places in _batches(kept):
                rows = [*{id(row): row for n in places for row in kept[n]}.values()]

                def read(beside: Mapping[str, Any], rows: Any = rows) -> Awaitable[list[Document]]:
                    place = and_queries(window.query, beside)
                    return judging.first(rows, place, window.keys, len(rows))

                ordered, unordered = await window.read(read)
                left_out.update(unordered)
                for n in places:
                    own = [
                        each
                        for each in ordered
                        if n in owners_of(each["full"].get(self._stored), owners)
                    ]
                    kept[n] = own[: window.limit]
            return sum(map(len, kept))

        pages = self._mongo.aggregate_pages(
            self._archive.name, stages, size=_PORTION, hint=TIME_INDEX
        )
        first = 0
        async with aclosing(pages) as portions:
            async for portion in portions:
                for record in await judging.matching(portion):
                    for n in owners_of(record["full"].get(self._stored), owners):
                        kept[n].append(record)
                        totals[n] += 1
                if self._query.most is not None and sum(totals) >= self._query.most:
                    break
                if sum(map(len, kept)) > first + _MOST_UNSORTED:
                    first = await cut()
        await cut()
        return [
            window.page(
                rows,
                Version.from_record,
                total=totals[n] if self._query.total else None,
                unordered=sorted(left_out),
            )
            for n, rows in enumerate(kept)
        ]


def owners_by_key(wanted: Sequence[Sequence[Any]]) -> Mapping[Any, Sequence[int]]:
    """Return the places of the lists with a key, by its `identity`."""
    owners: dict[Any, list[int]] = {}
    for n, keys in enumerate(wanted):
        for key in keys:
            owners.setdefault(identity(key), []).append(n)
    return owners


def owners_of(held: Any, owners: Mapping[Any, Sequence[int]]) -> list[int]:
    """Return the places of the lists with a key that a document holds: an id, or a list of ids."""
    values = held if isinstance(held, list) else [held]
    return sorted({n for value in values for n in owners.get(identity(value), ())})


def lookup_referring(archive: str, stored: str) -> tuple[Document, list[Document]]:
    """Return a `$lookup` of documents that referred to one of `$$keys` at `$$at`, and its stages.

    It needs the archive's index of the reference.
    """
    until = {"$lte": ["$at", "$$at"]}
    last: list[Document] = [
        {"$match": {"$expr": {"$and": [{"$eq": ["$doc", "$$doc"]}, until]}}},
        {"$sort": {"doc": 1, "at": -1, "v": -1}},
        {"$limit": 1},
    ]
    held = f"$full.{stored}"
    held_list = {"$cond": [{"$isArray": held}, held, [held]]}
    still = {"$gt": [{"$size": {"$setIntersection": [held_list, "$$keys"]}}, 0]}
    stages: list[Document] = [
        {"$match": {"$expr": until}},
        {"$group": {"_id": "$doc"}},
        {
            "$lookup": {
                "from": archive,
                "let": {"doc": "$_id"},
                "pipeline": last,
                "as": "last",
            }
        },
        {"$unwind": "$last"},
        {"$replaceWith": "$last"},
        # A content that came to lie elsewhere since that was asked cannot be judged here.
        {"$match": {"op": {"$ne": "DELETE"}, "packed": {"$ne": True}, "$expr": still}},
    ]
    lookup = {"from": archive, "localField": "key", "foreignField": f"full.{stored}"}
    return lookup, stages


def _batches(kept: Sequence[Sequence[Document]]) -> Iterable[list[int]]:
    """Yield places of pages whose documents are sorted with one command."""
    places: list[int] = []
    count = 0
    for n, rows in enumerate(kept):
        if places and count + len(rows) > 2 * _MOST_UNSORTED:
            yield places
            places, count = [], 0
        if rows:
            places.append(n)
            count += len(rows)
    if places:
        yield places
