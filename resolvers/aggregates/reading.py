"""Reads of aggregates of current documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from revstream.resolvers.aggregates.pipeline import (
    AggregateResult,
    aggregate_result,
    aggregate_stages,
    aggregate_stages_by_key,
    translate_refusals,
)
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["read_aggregate", "read_aggregates_by_key"]


async def read_aggregate(
    layout: Layout, matching: Mapping[str, Any], query: AggregateQuery
) -> AggregateResult:
    """Compute an aggregate of the documents of a layout that match a filter.

    Raises:
        BadUserInput, LimitExceeded: see `translate_refusals`.
    """
    with translate_refusals():
        found = await layout.aggregate(matching, aggregate_stages(query))
    return aggregate_result(query, found)


async def read_aggregates_by_key(
    layout: Layout,
    stored_field: str,
    keys: Sequence[Any],
    matching: Mapping[str, Any],
    query: AggregateQuery,
) -> list[AggregateResult]:
    """Compute an aggregate of the documents that refer to each of many keys, with one command.

    Raises: see `read_aggregate`.
    """
    stages = aggregate_stages_by_key(layout.lookup_stages(stored_field), keys, matching, query)
    rows: list[list[Document]] = [[] for _ in keys]
    with translate_refusals():
        found = await layout.mongo.aggregate(None, stages, snapshot=layout.snapshot, in_memory=True)
    for each in found:
        rows[each["n"]].append(each["found"])
    return [aggregate_result(query, each) for each in rows]
