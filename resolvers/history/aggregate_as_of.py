"""Aggregates of a collection as of a moment, over the versions that stood then.

MongoDB sweeps the archive, as for other reads of a collection as of a moment. Contents outside of
their records (`streams.versioning.content_encoding`) are put together here, reduced to the fields
that are measured, and given back to the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Any

import bson
from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.aggregates.pipeline import (
    AggregateResult,
    aggregate_result,
    aggregate_stages,
    translate_refusals,
)
from revstream.resolvers.aggregates.query import AggregateQuery
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

__all__ = ["CONTENT", "aggregate_as_of", "results_as_of"]

CONTENT = "full."

_PORTION = 500
"""Records that are put together at once."""

_MOST_BYTES = 8 * 1024 * 1024
"""Measured values that are given back to the server; a command may have 16 MB."""


async def aggregate_as_of(
    mongo: Mongo,
    archive: Archive,
    entity: Entity,
    at: Timestamp,
    where: Condition,
    query: AggregateQuery,
) -> AggregateResult:
    """Compute an aggregate of the documents that matched at a cluster time.

    Args:
        where: the filter, row rules included.

    Raises:
        HistoryLost: not all that stood then is known.
        LimitExceeded: too many groups, or too many contents outside of their records; or the
            operation has scanned more documents than its limit.
        BadUserInput: an unknown time zone.
    """
    measured = [*query.fields.values(), *(key.of for key in query.keys)]
    with translate_refusals():
        found = await results_as_of(
            mongo,
            archive,
            entity,
            at,
            where,
            aggregate_stages(query, prefix=CONTENT),
            measured={each.path for each in measured},
        )
    return aggregate_result(query, found)


async def results_as_of(
    mongo: Mongo,
    archive: Archive,
    entity: Entity,
    at: Timestamp,
    where: Condition,
    stages: Sequence[Mapping[str, Any]],
    *,
    measured: AbstractSet[str],
) -> list[Document]:
    """Return what stages make of the documents that matched at a cluster time.

    Args:
        where: the filter, row rules included.
        stages: on records, whose contents are below `CONTENT`.
        measured: the stored paths that the stages look at.

    Raises: see `aggregate_as_of`.
    """
    condition = to_record_condition(where, entity)
    seen = paths(condition) | {f"{CONTENT}{each}" for each in measured}
    names = frozenset(path.split(".")[1] for path in seen if path.startswith(CONTENT))
    matching = to_query(condition)
    mongo.count_scan(archive.collection)
    if names and await archive.has_packed():
        judging = ContentFilter(mongo, archive, matching, names)
        rows = await _measured_rows(mongo, archive, at, judging, names)
        # literal: values such as "$name" are no field paths
        given: list[Mapping[str, Any]] = [{"$documents": {"$literal": rows}}, *stages]
        found = await mongo.aggregate(None, given, in_memory=True) if rows else []
    else:
        # See `CollectionAsOf`.
        here = {"$and": [matching, {"packed": {"$ne": True}}]} if names else matching
        swept = [*standing_stages(at), {"$match": here}, *stages]
        found = await mongo.aggregate(archive.name, swept, hint=TIME_INDEX, in_memory=True)
    # After the read: see `streams.archive.horizon`.
    check_horizon(archive.collection, at, await CoverageStore(mongo).load(archive.collection))
    return found


async def _measured_rows(
    mongo: Mongo, archive: Archive, at: Timestamp, judging: ContentFilter, names: frozenset[str]
) -> Sequence[Document]:
    """Return the fields of the matching documents that are measured.

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
                if size > _MOST_BYTES:
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
    return rows
