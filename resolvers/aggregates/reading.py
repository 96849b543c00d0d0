"""Reads of aggregates of current documents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bson import Timestamp

from revstream.resolvers.aggregates.pipeline import (
    AggregateResult,
    aggregate_result,
    aggregate_stages,
    stages_by_key,
    translate_refusals,
)
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.references import (
    ReadTargets,
    check_target_count,
    id_stages,
    read_join,
)
from revstream.streams.changefeed.event import identity
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["compute_aggregate", "read_aggregate", "read_aggregates_by_key"]


async def compute_aggregate(
    query: AggregateQuery,
    run: Callable[[Sequence[Document]], Awaitable[Sequence[Mapping[str, Any]]]],
    targets: ReadTargets | None = None,
    *,
    prefix: str = "",
) -> AggregateResult:
    """Compute an aggregate of documents.

    Args:
        run: runs stages after the documents; with groups by references once for each of these, too.
        targets: reads the targets of references, if the query has any.
        prefix: see `aggregate_stages`.

    Raises:
        BadUserInput, LimitExceeded: see `translate_refusals` and `read_join`.
    """
    joined = []
    with translate_refusals():
        for join in query.joins:
            assert targets is not None
            ids = [each["_id"] for each in await run(id_stages(join.hop, prefix=prefix))]
            joined.append({"$literal": await read_join(join, ids, targets)})
        return aggregate_result(query, await run(aggregate_stages(query, joined, prefix=prefix)))


async def read_aggregate(
    layout: Layout,
    matching: Mapping[str, Any],
    query: AggregateQuery,
    targets: ReadTargets,
    at: Timestamp | None = None,
) -> AggregateResult:
    """Compute an aggregate of the documents of a layout that match a filter.

    Args:
        at: the cluster time of all reads, so that no id is added between them.

    Raises: see `compute_aggregate`.
    """

    async def run(stages: Sequence[Document]) -> Sequence[Mapping[str, Any]]:
        return await layout.aggregate(matching, stages, at=at)

    return await compute_aggregate(query, run, targets)


async def read_aggregates_by_key(
    layout: Layout,
    stored_field: str,
    keys: Sequence[Any],
    matching: Mapping[str, Any],
    query: AggregateQuery,
    targets: ReadTargets,
    at: Timestamp | None = None,
) -> list[AggregateResult]:
    """Compute an aggregate of the documents that refer to each of many keys, with one command.

    With groups by references there is one more command for each of these.

    Raises: see `read_aggregate`.
    """
    rows: list[Document] = [{"n": n, "key": key} for n, key in enumerate(keys)]
    lookup = layout.lookup_stages(stored_field)
    variables = [f"joined{n}" for n in range(len(query.joins))]

    async def run(stages: Sequence[Document], more: Sequence[Document] = ()) -> list[Any]:
        inner = [{"$match": matching}, *stages]
        pipeline = [*stages_by_key(lookup, rows, variables, inner), *more]
        found: list[Any] = await layout.mongo.aggregate(
            None, pipeline, snapshot=layout.snapshot, at=at, in_memory=True
        )
        return found

    with translate_refusals():
        for variable, join in zip(variables, query.joins, strict=True):
            for row in rows:
                row[variable] = []
            stages = id_stages(join.hop)
            # The bound is on the ids of all keys together.
            held = [
                each for each in await run(stages, stages[1:]) if each["found"]["_id"] is not None
            ]
            check_target_count(join.hop, [each["found"]["_id"] for each in held])
            ids = {identity(each["found"]["_id"]): each["found"]["_id"] for each in held}
            found = await read_join(join, [*ids.values()], targets)
            by_id = {identity(each["id"]): each for each in found}
            for each in held:
                value = by_id.get(identity(each["found"]["_id"]))
                if value is not None:
                    rows[each["n"]][variable].append(value)
        answers: list[list[Document]] = [[] for _ in keys]
        joined = [f"$${each}" for each in variables]
        for each in await run(aggregate_stages(query, joined)):
            answers[each["n"]].append(each["found"])
    return [aggregate_result(query, each) for each in answers]
