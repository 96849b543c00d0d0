"""Aggregates as a pipeline of MongoDB, and its result.

The pipeline follows stages that yield the matching documents. It first reduces each document to the
values that are measured, so that each is converted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Field, Scalar
from revstream.resolvers.aggregates.expressions import Expression, unknown_time_zone
from revstream.resolvers.aggregates.measure import KEY, Measure, Measured
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.references import join_stages
from revstream.resolvers.aggregates.rows import ITEM_KEY, ROW, key_value, needs_rows, row_stages
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.mongo_query import to_query
from revstream.streams.core.errors import DatabaseError
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "NO_RESULT",
    "OUT_OF_MEMORY",
    "AggregateResult",
    "aggregate_result",
    "aggregate_stages",
    "stages_by_key",
    "translate_refusals",
]

_MEMORY_BYTES = 100 * 1024 * 1024
"""Memory of a stage that MongoDB allows without the use of disks."""

_UNKNOWN_TIME_ZONE = 40485
OUT_OF_MEMORY = frozenset({146, 292})
"""Codes of MongoDB's errors for a stage that exceeds its memory."""
_TOO_LARGE = 10334
_LARGEST_BYTES = 16 * 1024 * 1024

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class AggregateResult:
    """Result of an aggregate.

    Attributes:
        totals: `count`, and the results of each measure by its name; fields are nested as in the
            API.
        groups: the same for each group, with its key.
        has_more: True if there are more groups than requested.
        group_count: number of all groups; None if it was not requested.
    """

    totals: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]]
    has_more: bool
    group_count: int | None


NO_RESULT = AggregateResult(totals=_NOTHING, groups=(), has_more=False, group_count=0)
"""Result over no documents."""


def aggregate_stages(
    query: AggregateQuery, joined: Sequence[Expression] = (), *, prefix: str = ""
) -> list[Document]:
    """Return the stages that compute an aggregate of the documents before them.

    Args:
        joined: the values of each of the query's joins: see `references.join_stages`.
        prefix: where the documents lie in what the stages before yield, "full." in the archive.
    """
    selection = query.selection
    places = {names: f"f{n}" for n, names in enumerate(query.fields)}
    shared = row_stages(query, places, prefix, grouped=False)
    own = row_stages(query, places, prefix, grouped=True)
    # A list that makes groups has other rows for groups than for totals.
    before = [] if query.list_key is not None else shared
    results: dict[str, list[Document]] = {}
    if selection.totals:
        accumulators, result = _measures(query, selection.total, places)
        totals = [{"$group": {"_id": None, **accumulators}}, {"$replaceWith": result}]
        results["totals"] = totals if before else [*shared, *totals]
    if selection.groups:
        having = [] if query.having is None else [{"$match": to_query(query.having)}]
        grouping = [*_grouping(query, places, joined), *having]
        if not before:
            grouping = [*own, *grouping]
        results["groups"] = [
            *grouping,
            {"$sort": dict(query.order)},
            {"$limit": query.first + 1},
        ]
        if selection.group_count:
            results["groupCount"] = [*grouping, {"$count": "n"}]
    if len(results) == 1:
        return [*before, *next(iter(results.values()))]
    return [*before, {"$facet": results}]


def aggregate_result(query: AggregateQuery, found: Sequence[Mapping[str, Any]]) -> AggregateResult:
    """Return the result that the rows of the pipeline contain."""
    selection = query.selection
    if selection.totals + selection.groups + selection.group_count > 1:
        parts = found[0] if found else {}
    else:
        parts = {"totals" if selection.totals else "groups": found}
    totals, groups = parts.get("totals", ()), parts.get("groups", ())
    count = None
    if selection.group_count:
        counted = parts.get("groupCount")
        count = int(counted[0]["n"]) if counted else 0
    return AggregateResult(
        totals=totals[0] if totals else _NOTHING,
        groups=groups[: query.first],
        has_more=len(groups) > query.first,
        group_count=count,
    )


def stages_by_key(
    lookup: tuple[Mapping[str, Any], Sequence[Document]],
    rows: Sequence[Mapping[str, Any]],
    variables: Sequence[str],
    stages: Sequence[Document],
) -> list[Document]:
    """Return a pipeline on the database that runs stages for each of many keys.

    Args:
        lookup: the `$lookup` that finds the documents of a key: see `Layout.lookup_stages`.
        rows: `n` and `key` of each, and the variables.
        stages: they follow the documents, and have the variables.

    Returns:
        Stages that yield `{n, found}`: the index of a key, and a row of the stages.
    """
    joined, beginning = lookup
    let = {**joined.get("let", {}), **{name: f"${name}" for name in variables}}
    return [
        # literal: an id such as "$name" is a value, not a field path
        {"$documents": {"$literal": rows}},
        {"$lookup": {**joined, "let": let, "pipeline": [*beginning, *stages], "as": "found"}},
        {"$unwind": "$found"},
        {"$project": {"n": 1, "found": 1}},
    ]


@contextmanager
def translate_refusals(query: AggregateQuery) -> Iterator[None]:
    """Turn refusals of MongoDB that the request causes into errors of the request.

    Raises:
        BadUserInput: an unknown time zone.
        LimitExceeded: the groups need more memory than is allowed, or more than one document.
    """
    try:
        yield
    except DatabaseError as exc:
        if exc.number == _UNKNOWN_TIME_ZONE:
            zones = [each.bucket.time_zone for each in query.keys if each.bucket is not None]
            raise unknown_time_zone(zones) from exc
        if exc.number in OUT_OF_MEMORY:
            raise LimitExceeded(
                f"memory of the groups: more than {_MEMORY_BYTES:,} bytes, which is the maximum; "
                "group by fields with fewer values, remove distinctCount, or filter with `where`",
                limit="memory",
                bound=_MEMORY_BYTES,
            ) from exc
        if exc.number == _TOO_LARGE:
            raise LimitExceeded(
                f"size of the groups: more than {_LARGEST_BYTES:,} bytes, which is the maximum; "
                "request fewer (first), group by shorter values, or request totals and totalGroups "
                "apart from groups",
                limit="memory",
                bound=_LARGEST_BYTES,
            ) from exc
        raise


def _grouping(
    query: AggregateQuery, places: Mapping[tuple[str, ...], str], joined: Sequence[Expression]
) -> list[Document]:
    """Return the stages that group, and give each group the form of the API."""
    accumulators, result = _measures(query, query.grouped, places)
    for n, key in enumerate(query.keys):
        _place(result, (KEY, *key.of.names), f"$_id.k{n}")
    by = {
        f"k{n}": f"${'' if key.of.items is None else ITEM_KEY}k{n}"
        for n, key in enumerate(query.keys)
        if not key.through
    }
    by |= {f"r{n}": f"$r{n}" for n in range(len(query.joins))}
    stages: list[Document] = [{"$group": {"_id": by, **accumulators}}]
    for n, values in enumerate(joined):
        stages += join_stages(n, values)
    if query.joins:
        stages += _merging(query, accumulators)
    return [*stages, {"$replaceWith": result}]


def _merging(query: AggregateQuery, accumulators: Document) -> list[Document]:
    """Return the stages that merge the groups by ids into groups by the values of targets."""
    by: Document = {}
    for number, join in enumerate(query.joins):
        by |= {
            f"k{n}": key_value(key, f"to{number}.k{n}")
            for n, key in enumerate(query.keys)
            if key.through and key.through[0] == join.hop
        }
    by |= {f"k{n}": f"$_id.k{n}" for n, key in enumerate(query.keys) if not key.through}
    sets = [name for name, each in accumulators.items() if "$addToSet" in each]
    single = {name: f"${name}" for name in accumulators if name not in sets}
    # A set becomes one row for each item, beside one row with the other results.
    items = [{"$map": {"input": f"${name}", "in": {name: "$$this"}}} for name in sets]
    merged = {
        name: {operator: f"$part.{name}"}
        for name, each in accumulators.items()
        for operator in each
    }
    return [
        {"$project": {"_id": by, "part": {"$concatArrays": [[single], *items]}}},
        {"$unwind": "$part"},
        {"$group": {"_id": "$_id", **merged}},
    ]


def _measures(
    query: AggregateQuery, measures: Iterable[Measured], places: Mapping[tuple[str, ...], str]
) -> tuple[Document, Document]:
    """Return the accumulators of a group, by name, and its form in the API."""
    rows = needs_rows(query)
    accumulators: Document = {"count": {"$sum": f"${ROW}one" if rows else 1}}
    result: Document = {"count": "$count"}
    for each in sorted(measures, key=lambda each: (each.measure.value, each.names)):
        place, field = places[each.names], query.fields[each.names].field
        made, value = _accumulated(each.measure, field, place, f"${ROW if rows else ''}{place}")
        accumulators |= made
        _place(result, (each.measure.value, *each.names), value)
    return accumulators, result


def _place(result: Document, names: Sequence[str], value: Expression) -> None:
    for name in names[:-1]:
        result = result.setdefault(name, {})
    result[names[-1]] = value


def _accumulated(
    measure: Measure, field: Field, place: str, value: Expression
) -> tuple[Document, Expression]:
    """Return the accumulators of a measure, by name, and the expression of its result."""
    match measure:
        case Measure.MIN | Measure.MAX:
            name = f"{measure.value}_{place}"
            return {name: {f"${measure.value}": value}}, f"${name}"
        case Measure.DISTINCT:
            name = f"set_{place}"
            present = {"$ifNull": [value, "$$REMOVE"]}
            return {name: {"$addToSet": present}}, {"$size": f"${name}"}
    summed, count = f"sum_{place}", f"n_{place}"
    # The server adds longs exactly up to 64 bits only.
    exact = {"$toDecimal": value} if field.type is Scalar.LONG else value
    accumulators = {
        summed: {"$sum": exact},
        # A missing value is below null, as nothing else that fits is.
        count: {"$sum": {"$cond": [{"$gt": [value, None]}, 1, 0]}},
    }
    result: Expression = f"${summed}"
    if measure is Measure.AVERAGE:
        if field.type is Scalar.INT:
            result = {"$toDecimal": result}
        result = {"$divide": [result, f"${count}"]}
        if field.type in (Scalar.INT, Scalar.LONG):
            result = {"$toDouble": result}
    return accumulators, {"$cond": [{"$gt": [f"${count}", 0]}, result, None]}
