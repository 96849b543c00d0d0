"""Collection as of a moment: filtered, sorted and paged like the current one.

Two ways lead to the same page. A *walk* reads the documents in id order and looks up the version of
each. It costs as much as the page, however many documents and versions there are, as long as few
documents are left out. A *sweep* reads every version that was current, from one document to the
next in an index. It costs as many reads as there were documents. Pages in id order walk first, and
sweep if too many documents are left out; any other order sweeps.

If contents lie outside of their records (`streams.versioning.content_encoding`), and the filter or
the order needs them, they are evaluated separately: a walk then goes on to the end of the page, and
a sweep reads every version that was current.

Guarantees: a document appears once, also if a crash left two versions of it open.
Source, with measurements: docs/decisions/0008-as-of.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    All,
    AnyOf,
    Condition,
    Not,
    Search,
    all_of,
    paths,
)
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.history.as_of.content_filter import ContentFilter
from revstream.resolvers.history.as_of.id_walk import IdWalk
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.order_by import order_keys
from revstream.resolvers.pagination.page import Page, PageRequest, Window, and_queries
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.coverage import Coverage, CoverageStore
from revstream.streams.archive.horizon import check_horizon
from revstream.streams.archive.indexes import ALL_DOCUMENTS, TIME_INDEX, last_version_stages
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["CollectionAsOf", "standing_stages", "to_record_condition"]

_WALK_MOST = 2000
"""Documents that a walk passes before it gives up: 20 ms, as much as a sweep of 4,000."""

_PORTION = 500
"""Records that are judged apart at once."""


class CollectionAsOf:
    """Reads of one collection at one cluster time, with one filter and order."""

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        entity: Entity,
        at: Timestamp,
        query: PageQuery[Condition],
    ) -> None:
        self._mongo = mongo
        self._coverages = CoverageStore(mongo)
        self._archive = archive
        self._name = archive.name
        self._at = at
        self._query = query
        self._make = None if query.for_output else Version.from_record
        where = EVERYTHING if query.where is None else query.where
        condition = to_record_condition(where, entity)
        self._where = to_query(condition)
        where_id = to_query(_of_id(condition))
        self._walk = IdWalk(mongo, archive, at, where_id=where_id, naive=query.for_output)
        keys = order_keys(entity, query.order, id_path="doc", version_path="v", prefix="full.")
        self._keyset = Keyset(f"as of {entity.name}", keys)
        looked_at = {path for path, _ in keys} | paths(condition)
        names = frozenset(p.split(".")[1] for p in looked_at if p.startswith("full."))
        self._judging = ContentFilter(mongo, archive, self._where, names)
        self._looks_inside = bool(names)
        # A content that came to lie elsewhere since that was asked is none that could be judged
        # in its record, nor one that was there then.
        here = [self._where, {"packed": {"$ne": True}}]
        self._where_here = {"$and": here} if names else self._where

    async def page(self, request: PageRequest | None = None) -> Page[Any]:
        """Read a page.

        Args:
            request: another page than the query's.

        Raises:
            BadUserInput: A cursor of another list.
            HistoryLost: Not all that was current then is known.
            ArchiveBehind: The moment lies in a window of lost history whose end is not known yet.
        """
        query = self._query
        window = Window(self._keyset, request or query.page)
        projection = window.projected(record_projection(query.fields, query.facts))
        apart = self._looks_inside and await self._archive.has_packed()

        async def read() -> tuple[list[Document], Coverage | None, Sequence[str]]:
            if apart:
                found, unordered = await self._read_apart(window)
                return found, None, unordered
            return await self._read(window, projection)

        count = None
        if query.total:
            counting = self._count_apart() if apart else self._count()
            (rows, coverage, unordered), count = await asyncio.gather(read(), counting)
        else:
            rows, coverage, unordered = await read()
        if coverage is None or query.total:
            # After the reads: see `streams.archive.horizon`.
            coverage = await self._coverages.load(self._archive.collection)
        check_horizon(self._archive.collection, self._at, coverage)
        if query.fields is not None and not apart:
            rows = await self._archive.contents.fill(rows)
        return window.page(rows, self._make, total=count, unordered=unordered)

    def cursor(self, key: Any) -> str:
        """Return the place of the document with an `_id`, in the order of ids."""
        return self._keyset.cursor({"doc": key})

    async def _read(
        self, window: Window, projection: Mapping[str, Any]
    ) -> tuple[list[Document], Coverage | None, Sequence[str]]:
        """Read at most `window.limit` records in the window's order.

        Returns also the coverage, if it was read after them, and the order's paths, if records
        were left out: see `Window.read`.
        """

        def sweep(beside: Mapping[str, Any]) -> Awaitable[list[Document]]:
            return self._sweep(window, and_queries(window.query, beside), projection, window.limit)

        if len(self._keyset.keys) > 1:
            swept, unordered = await window.read(sweep)
            return swept, None, unordered
        rows: list[Document] = []
        place = window.query
        walked, step = 0, window.limit
        while walked < _WALK_MOST:
            passed = await self._walk.step(window, place, step, self._where_here, projection)
            rows += passed.found
            missing = window.limit - len(rows)
            if missing <= 0 or not passed.more:
                return rows[: window.limit], passed.coverage, ()
            walked += step
            place = window.query_after({"doc": passed.last})
            # As many as will do if they drop out as they did so far, and not too many on a few.
            step = min(missing * walked // (len(rows) + 1) + missing, 8 * step, _WALK_MOST)
        rows += await self._sweep(window, place, projection, window.limit - len(rows))
        return rows, None, ()

    async def _sweep(
        self, window: Window, place: Mapping[str, Any], projection: Mapping[str, Any], limit: int
    ) -> list[Document]:
        """Read at most `limit` records after a place, in the window's order."""
        stages = [
            *standing_stages(self._at),
            {"$match": {"$and": [self._where_here, place]}},
            {"$sort": window.sort},
            {"$limit": limit},
            {"$project": {**projection, **window.placing}},
        ]
        return await self._mongo.aggregate(self._name, stages, hint=TIME_INDEX)

    async def _read_apart(self, window: Window) -> tuple[list[Document], Sequence[str]]:
        if len(self._keyset.keys) > 1:
            return await window.read(partial(self._first_apart, window))
        rows: list[Document] = []
        step, place = window.limit, window.query
        while True:
            passed = await self._walk.step(window, place, step, {}, None)
            rows += await self._judging.matching(passed.found)
            if len(rows) >= window.limit or not passed.more:
                return rows[: window.limit], ()
            place = window.query_after({"doc": passed.last})
            step = min(2 * step, _WALK_MOST)

    async def _first_apart(self, window: Window, beside: Mapping[str, Any]) -> list[Document]:
        """The first of all that stood, read portion by portion."""
        query = and_queries(window.query, beside)
        first: list[Document] = []
        async with aclosing(self._standing()) as pages:
            async for page in pages:
                first = await self._judging.first([*first, *page], query, window.keys, window.limit)
        return first

    async def _count_apart(self) -> int:
        count = 0
        async with aclosing(self._standing()) as pages:
            async for page in pages:
                count += len(await self._judging.matching(page))
        return count

    def _standing(self) -> AsyncGenerator[list[Document]]:
        self._mongo.count_scan(self._archive.collection)
        return self._mongo.aggregate_pages(
            self._name, standing_stages(self._at), size=_PORTION, hint=TIME_INDEX
        )

    async def _count(self) -> int:
        stages = [*standing_stages(self._at), {"$match": self._where_here}, {"$count": "n"}]
        found = await self._mongo.aggregate(self._name, stages, hint=TIME_INDEX)
        return int(found[0]["n"]) if found else 0


def standing_stages(at: Timestamp) -> list[Mapping[str, Any]]:
    """Return stages that leave the versions that stood at a moment, deletions left out.

    They read all documents: with most conditions on ids 6.0.5 reads all of their versions.
    """
    return [
        {"$match": ALL_DOCUMENTS},
        *last_version_stages(at),
        {"$match": {"op": {"$ne": "DELETE"}}},
    ]


def to_record_condition(condition: Condition, entity: Entity) -> Condition:
    """A condition on documents, as one on the archive's records of them.

    The id and the number are the record's own, which indexes know; the rest lies under `full`.
    """
    if condition is EVERYTHING:
        return condition
    match condition:
        case All(conditions):
            return All(tuple(to_record_condition(each, entity) for each in conditions))
        case AnyOf(conditions):
            return AnyOf(tuple(to_record_condition(each, entity) for each in conditions))
        case Not(inner):
            return Not(to_record_condition(inner, entity))
        case Search(text):
            raise AssertionError(f"search as of a moment: {text}")
        case _:
            names = {"_id": "doc", entity.version: "v"}
            path = names.get(condition.path, f"full.{condition.path}")
            return replace(condition, path=path)


def _of_id(condition: Condition) -> Condition:
    """Return the part of a condition that concerns the id alone, which narrows a walk."""
    parts = condition.conditions if isinstance(condition, All) else (condition,)
    return all_of([each for each in parts if paths(each) == {"doc"}])
