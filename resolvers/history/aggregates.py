"""Aggregates of documents as of a moment, for one caller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.reading import compute_aggregate
from revstream.resolvers.filters.expression import EVERYTHING
from revstream.resolvers.history.as_of.past_documents import CONTENT, PastDocuments
from revstream.resolvers.history.versions import VersionHistory
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["aggregate_as_of"]


async def aggregate_as_of(
    history: VersionHistory, entity: Entity, at: Timestamp, query: AggregateQuery
) -> AggregateResult:
    """Compute an aggregate of the documents that matched at a cluster time.

    The archives of the entity and of the targets of its references must have reached it.

    Raises:
        HistoryLost: not all that stood then is known.
        BadUserInput: an unknown time zone.
        LimitExceeded, TimeLimit: see `PastDocuments.run`; or there are too many groups.
    """
    archive, rows = history.readable(entity)
    where = rows.narrowed(query.where) or EVERYTHING
    documents = PastDocuments(history.mongo, archive, entity, at, where, query.paths)
    targets = partial(_targets, history, at)
    result = await compute_aggregate(query, documents.run, targets, prefix=CONTENT)
    await documents.check_known()
    return result


async def _targets(
    history: VersionHistory,
    at: Timestamp,
    entity: Entity,
    ids: Sequence[Any],
    fields: frozenset[str],
) -> Sequence[Document | None]:
    """Return the documents as they were.

    Raises:
        HistoryLost, ArchiveBehind: it is not known whether one was there.
    """
    states = await history.as_of(entity, [(each, at) for each in ids], fields)
    found: list[Document | None] = []
    for each in states:
        if isinstance(each, HistoryLost | ArchiveBehind):
            raise each
        found.append(None if each is None else each.full)
    return found
