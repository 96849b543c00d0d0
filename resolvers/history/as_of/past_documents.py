"""Documents of a collection as of a moment, for stages of MongoDB.

MongoDB sweeps the archive, as for other reads of a collection as of a moment. Contents outside of
their records (`streams.versioning.content_encoding`) are put together here, reduced to the fields
that the stages look at, and given back to the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Any

import bson
from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.expression import Condition, paths
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.history.as_of.content_filter import ContentFilter
from revstream.resolvers.history.collection_as_of import standing_stages, to_record_condition
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.horizon import check_horizon
from revstream.streams.archive.indexes import TIME_INDEX
from revstream.streams.archive.store import Archive
from revstream.streams.core.operation import count_computed
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = ["CONTENT", "PastDocuments"]

CONTENT = "full."

_PORTION = 500
"""Records that are put together at once."""

_MOST_BYTES = 8 * 1024 * 1024
"""Measured values that are given back to the server; a command may have 16 MB."""


class PastDocuments:
    """Documents that matched at a cluster time, one or more times.

    Args:
        where: the filter, row rules included.
        measured: the stored paths that the stages look at.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        entity: Entity,
        at: Timestamp,
        where: Condition,
        measured: AbstractSet[str],
    ) -> None:
        condition = to_record_condition(where, entity)
        seen = paths(condition) | {f"{CONTENT}{each}" for each in measured}
        self._names = frozenset(path.split(".")[1] for path in seen if path.startswith(CONTENT))
        self._matching = to_query(condition)
        self._mongo = mongo
        self._archive = archive
        self._at = at
        self._rows: Sequence[Document] | None = None

    async def run(self, stages: Sequence[Mapping[str, Any]]) -> list[Document]:
        """Return what stages make of records, whose contents are below `CONTENT`.

        Raises:
            LimitExceeded: too many contents outside of their records; or the operation has scanned
                more documents than its limit.
            TimeLimit: the read took longer than it may.
        """
        if self._rows is None and self._names and await self._archive.has_packed():
            self._rows, _ = await self.read()
        if self._rows is not None:
            # literal: values such as "$name" are no field paths
            given: list[Mapping[str, Any]] = [{"$documents": {"$literal": self._rows}}, *stages]
            return await self._mongo.aggregate(None, given, in_memory=True) if self._rows else []
        self._mongo.count_scan(self._archive.collection)
        # See `CollectionAsOf`.
        packed = {"packed": {"$ne": True}}
        here = {"$and": [self._matching, packed]} if self._names else self._matching
        swept = [*standing_stages(self._at), {"$match": here}, *stages]
        return await self._mongo.aggregate(
            self._archive.name, swept, hint=TIME_INDEX, in_memory=True
        )

    async def read(self, *, beside: int = 0) -> tuple[Sequence[Document], int]:
        """Return the fields that the filter and the stages look at, below `full`, and their size.

        Args:
            beside: size in bytes of what is given to the server together with them.

        Raises:
            LimitExceeded: see `run`.
        """
        self._mongo.count_scan(self._archive.collection)
        judging = ContentFilter(self._mongo, self._archive, self._matching, self._names)
        return await _measured_rows(
            self._mongo, self._archive, self._at, judging, self._names, _MOST_BYTES - beside
        )

    async def check_known(self) -> None:
        """Check that all that stood is known; after the reads: see `streams.archive.horizon`.

        Raises:
            HistoryLost, ArchiveBehind: it is not.
        """
        coverage = await CoverageStore(self._mongo).load(self._archive.collection)
        check_horizon(self._archive.collection, self._at, coverage)


async def _measured_rows(
    mongo: Mongo,
    archive: Archive,
    at: Timestamp,
    judging: ContentFilter,
    names: frozenset[str],
    most: int,
) -> tuple[Sequence[Document], int]:
    """Return the fields of the matching documents that are measured, and their size in bytes.

    Raises:
        LimitExceeded: they are too large for one command.
    """
    rows: list[Document] = []
    size = 0
    pages = mongo.aggregate_pages(archive.name, standing_stages(at), size=_PORTION, hint=TIME_INDEX)
    async with aclosing(pages) as opened:
        async for page in opened:
            before, kept = size, len(rows)
            for record in await judging.matching(page):
                content = record.get("full") or {}
                row = {"full": {name: content[name] for name in names if name in content}}
                size += len(bson.encode(row, codec_options=DECODED))
                if size > most:
                    raise LimitExceeded(
                        "values of documents that are stored as patches, in bytes: more than "
                        f"{_MOST_BYTES:,}, which is the maximum of an aggregate as of a moment; "
                        "filter with `where`, or measure fewer fields",
                        limit="memory",
                        bound=_MOST_BYTES,
                    )
                rows.append(row)
            # A row is two documents, however small they are.
            await count_computed(size - before, 2 * (len(rows) - kept))
    return rows, size
