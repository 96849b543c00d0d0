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

__all__ = [
    "compute_aggregate",
    "compute_aggregates_by_key",
    "read_aggregate",
    "read_aggregates_by_key",
]


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
    with translate_refusals(query):
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
    lookup, beginning = layout.lookup_stages(stored_field)
    rows = [{"n": n, "key": key} for n, key in enumerate(keys)]

    async def run(pipeline: Sequence[Document]) -> list[Any]:
        found: list[Any] = await layout.mongo.aggregate(
            None, pipeline, snapshot=layout.snapshot, at=at, in_memory=True
        )
        return found

    joined = lookup, [*beginning, {"$match": matching}]
    return await compute_aggregates_by_key(query, joined, rows, (), run, targets)


async def compute_aggregates_by_key(
    query: AggregateQuery,
    lookup: tuple[Mapping[str, Any], Sequence[Document]],
    rows: Sequence[Mapping[str, Any]],
    variables: Sequence[str],
    run: Callable[[Sequence[Document]], Awaitable[Sequence[Mapping[str, Any]]]],
    targets: ReadTargets,
    *,
    prefix: str = "",
) -> list[AggregateResult]:
    """Compute an aggregate of the documents of each of many keys.

    Args:
        lookup, rows, variables: see `stages_by_key`; the lookup finds the documents that match.
        run: runs a pipeline on the database.
        prefix: see `aggregate_stages`.

    Raises: see `compute_aggregate`.
    """
    names = [f"joined{n}" for n in range(len(query.joins))]
    wanted: list[Document] = [{**row, **{name: [] for name in names}} for row in rows]

    async def found_of(stages: Sequence[Document], *more: Document) -> Sequence[Mapping[str, Any]]:
        return await run([*stages_by_key(lookup, wanted, [*variables, *names], stages), *more])

    answers: list[list[Document]] = [[] for _ in wanted]
    with translate_refusals(query):
        for name, join in zip(names, query.joins, strict=True):
            stages = id_stages(join.hop, prefix=prefix)
            # The bound is on the ids of all keys together.
            held = [
                (each["n"], each["found"]["_id"])
                for each in await found_of(stages, stages[-1])
                if each["found"]["_id"] is not None
            ]
            check_target_count(join.hop, held)
            ids = {identity(id_): id_ for _, id_ in held}
            targets_by_id = {
                identity(each["id"]): each
                for each in await read_join(join, [*ids.values()], targets)
            }
            for n, id_ in held:
                if identity(id_) in targets_by_id:
                    wanted[n][name].append(targets_by_id[identity(id_)])
        joined = [f"$${name}" for name in names]
        for each in await found_of(aggregate_stages(query, joined, prefix=prefix)):
            answers[each["n"]].append(each["found"])
    return [aggregate_result(query, each) for each in answers]
