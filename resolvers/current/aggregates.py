"""Aggregates of current documents, for one caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.access.cluster_time import at_one_time
from revstream.resolvers.aggregates.pipeline import AggregateResult
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.reading import read_aggregate, read_aggregates_by_key
from revstream.resolvers.current.documents import Current

__all__ = ["aggregate", "aggregates_by_parent"]


async def aggregate(current: Current, entity: Entity, query: AggregateQuery) -> AggregateResult:
    """Compute an aggregate of the documents that match a filter.

    Raises: see `read_aggregate` and `Current.page`.
    """
    layout, matching = await current.select(entity, query.where)
    read = partial(read_aggregate, layout, matching, query, partial(_targets, current))
    # Without references there is only one read.
    return await (at_one_time(layout.mongo, read) if query.joins else read())


async def aggregates_by_parent(
    current: Current,
    entity: Entity,
    stored_field: str,
    parents: Sequence[Any],
    query: AggregateQuery,
) -> list[AggregateResult]:
    """Compute an aggregate for each of many parents; see `Current.pages_by_parent`."""
    layout, matching = await current.select(entity, query.where)

    async def read(at: Timestamp | None = None) -> list[AggregateResult]:
        targets = partial(_targets, current)
        return await read_aggregates_by_key(
            layout, stored_field, parents, matching, query, targets, at
        )

    return await (at_one_time(layout.mongo, read) if query.joins else read())


async def _targets(
    current: Current, entity: Entity, ids: Sequence[Any], fields: frozenset[str]
) -> Sequence[Mapping[str, Any] | None]:
    return await current.by_ids(entity, ids, fields)
