"""Aggregates of the documents that referred to other documents at a moment: one for each of them.

One command computes all of them. It finds the documents by the archive's index of the reference, as
`referring_documents` does. Without the index, or where contents lie outside of their records, the
documents that were current are read, once per moment, and those that refer are given to MongoDB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.reading import compute_aggregates_by_key
from revstream.resolvers.filters.expression import EVERYTHING, In, all_of
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.history.aggregates import read_past_targets
from revstream.resolvers.history.as_of.past_documents import CONTENT, PastDocuments
from revstream.resolvers.history.as_of.referring_documents import (
    WantedReferrers,
    lookup_referring,
    owners_by_key,
    owners_of,
)
from revstream.resolvers.history.collection_as_of import to_record_condition
from revstream.resolvers.history.versions import VersionHistory
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.horizon import checked_results
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["referring_aggregates_as_of"]


async def referring_aggregates_as_of(
    history: VersionHistory,
    entity: Entity,
    stored: str,
    wanted: Sequence[WantedReferrers],
    query: AggregateQuery,
) -> list[AggregateResult | HistoryLost | ArchiveBehind]:
    """Compute n aggregates of the documents that referred to others at moments, in that order.

    A moment at which not all of them are known has an error in place of its result.

    Args:
        stored: the stored field that holds the id.
        query: with groups by references, all moments are the same.

    Raises:
        BadUserInput: an unknown time zone.
        LimitExceeded: too many groups, or too many contents outside of their records.
        TimeLimit: the read took longer than it may.
    """
    archive, rows = history.readable(entity)
    condition = to_record_condition(rows.narrowed(query.where) or EVERYTHING, entity)
    given: list[Mapping[str, Any]] = [
        {"n": n, "key": list(each.keys), "keys": list(each.keys), "at": each.at}
        for n, each in enumerate(wanted)
    ]
    if await archive.has_packed() or not await archive.finds_references(stored):
        found = await _referring_rows(history, entity, stored, wanted, query)
        owned = {"$match": {"$expr": {"$in": ["$$n", "$owners"]}}}
        # literal: values such as "$name" are no field paths. MongoDB takes no empty list.
        source = {"$documents": {"$literal": found or [{"owners": []}]}}
        lookup: tuple[Document, list[Document]] = {}, [source, owned]
        given = [{"n": n} for n in range(len(wanted))]
        variables = ["n"]
    else:
        joined, beginning = lookup_referring(archive.name, stored)
        lookup = joined, [*beginning, {"$match": to_query(condition)}]
        variables = ["at", "keys"]
    targets = partial(read_past_targets, history, wanted[0].at)
    run = partial(history.mongo.aggregate, None, in_memory=True)
    results = await compute_aggregates_by_key(
        query, lookup, given, variables, run, targets, prefix=CONTENT
    )
    # After the read: see `streams.archive.horizon`.
    coverage = await CoverageStore(history.mongo).load(archive.collection)
    moments = [each.at for each in wanted]
    return checked_results(archive.collection, zip(moments, results, strict=True), coverage)


async def _referring_rows(
    history: VersionHistory,
    entity: Entity,
    stored: str,
    wanted: Sequence[WantedReferrers],
    query: AggregateQuery,
) -> list[Document]:
    """Return the matching documents, with the places of those that they referred to as `owners`."""
    archive, rules = history.readable(entity)
    by_moment: dict[Timestamp, list[int]] = {}
    for n, each in enumerate(wanted):
        by_moment.setdefault(each.at, []).append(n)
    found: list[Document] = []
    size = 0
    for at, places in by_moment.items():
        keys = [wanted[n].keys for n in places]
        owners = owners_by_key(keys)
        referring = In(stored, tuple(key for some in keys for key in some))
        where = all_of([rules.narrowed(query.where) or EVERYTHING, referring])
        documents = PastDocuments(history.mongo, archive, entity, at, where, query.paths | {stored})
        rows, added = await documents.read(beside=size)
        size += added
        for row in rows:
            own = owners_of(row["full"].get(stored), owners)
            found.append({**row, "owners": [places[n] for n in own]})
    return found
