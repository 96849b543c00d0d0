"""Groups over a million documents, now and as of a time point.

Beside revstream: the same groups as a hand-written pipeline, through PyMongo and behind Mercurius;
for the past, a hand-written pipeline over the versions. One request after the other, each on a
connection of its own: others close while a pipeline runs for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from bson import Timestamp
from pymongo.database import Database

from benchmarks.as_of import deployment_tag, moments
from benchmarks.figures import Part, Table
from benchmarks.graphql_client import connect
from benchmarks.long_history import write_long_history
from benchmarks.peers.node import mercurius, node_versions
from benchmarks.processes import Failed
from benchmarks.products import COLLECTION
from benchmarks.stage import Document, Stage, archive_of

__all__ = ["run"]

_VERSIONS = 2
_CHEAP = 10.0
_MOMENT = "middle"
_SHARE = {"middle": 0.5}

# [key, count, result] of each group, the keys as JSON.
Groups = list[tuple[Any, int, float]]


@dataclass(frozen=True, slots=True)
class _Query:
    """Groups of products.

    Args:
        arguments: of `productsAggregate`.
        key: the field that groups.
        result: the result of each group, and its field.
        match, group: the pipeline's stages.
        peer: the field of Mercurius that returns the same.
    """

    arguments: str
    key: str
    result: tuple[str, str]
    match: Document
    group: Document
    peer: str

    def ours(self, address: str, as_of: dict[str, str] | None = None) -> Groups:
        operation, field = self.result
        declared, given = ("($asOf: TimePoint!)", ", asOf: $asOf") if as_of else ("", "")
        found = connect(address).ask(
            f"query {declared} {{ found: productsAggregate(first: 1000, {self.arguments}{given}) "
            f"{{ groups {{ key {{ {self.key} }} count {operation} {{ {field} }} }} }} }}",
            **({"asOf": as_of} if as_of else {}),
        )["found"]["groups"]
        return [(each["key"][self.key], each["count"], each[operation][field]) for each in found]

    def theirs(self, address: str) -> Groups:
        found = connect(address).ask(f"{{ found: {self.peer} {{ key count result }} }}")["found"]
        return [(each["key"], each["count"], each["result"]) for each in found]

    def by_hand(self, database: Database[Document]) -> Groups:
        return self._groups(
            database[COLLECTION].aggregate([{"$match": self.match}, self.group, _BY_KEY])
        )

    def over_versions(self, database: Database[Document], at: Timestamp) -> Groups:
        """Compute the groups of the last version of each document at a cluster time."""
        standing: list[Document] = [
            {"$match": {"at": {"$lte": at}}},
            {"$sort": {"doc": 1, "v": -1}},
            {"$group": {"_id": "$doc", "op": {"$first": "$op"}, "full": {"$first": "$full"}}},
            {"$match": {"op": {"$ne": "DELETE"}}},
            {"$replaceWith": "$full"},
        ]
        stages = [*standing, {"$match": self.match}, self.group, _BY_KEY]
        return self._groups(archive_of(database).aggregate(stages, allowDiskUse=True))

    @staticmethod
    def _groups(found: Any) -> Groups:
        return [(_shown(each["_id"]), each["count"], each["result"]) for each in found]


_BY_KEY = {"$sort": {"_id": 1}}
_BY_STOCK = {"$group": {"_id": "$stock", "count": {"$sum": 1}, "result": {"$sum": "$price"}}}
_BY_WEEK = {
    "$group": {
        "_id": {"$dateTrunc": {"date": "$updatedAt", "unit": "week", "startOfWeek": "monday"}},
        "count": {"$sum": 1},
        "result": {"$avg": "$price"},
    }
}
_QUERIES = {
    "by stock": _Query(
        "groupBy: {stock: true}", "stock", ("sum", "price"), {}, _BY_STOCK, "byStock"
    ),
    "by week": _Query(
        "groupBy: {updatedAt: {by: WEEK}}", "updatedAt", ("avg", "price"), {}, _BY_WEEK, "byWeek"
    ),
    "1 in 100, by stock": _Query(
        f"where: {{price: {{lt: {_CHEAP}}}}}, groupBy: {{stock: true}}",
        "stock",
        ("sum", "price"),
        {"price": {"$lt": _CHEAP}},
        _BY_STOCK,
        f"byStock(below: {_CHEAP})",
    ),
}


def run(stage: Stage) -> list[Part]:
    count = stage.scale.aggregated
    stage = replace(stage, scale=replace(stage.scale, documents=count, versions=_VERSIONS))
    now = Table(
        f"Groups of {count:,} documents, median ms",
        "groups",
        "driver",
        "Mercurius",
        "revstream",
        "revstream against driver",
    )
    past = Table(
        f"Groups of {count:,} documents with {_VERSIONS} versions each, median ms",
        "groups",
        "revstream, now",
        "by hand over the versions",
        "revstream, as of a moment",
        "as of against now",
    )
    with stage.database() as database:
        history = write_long_history(stage, database)
        at = history.moment(_SHARE[_MOMENT])
        with (
            stage.gateway(database) as (_, ours),
            mercurius(stage, database) as (_, theirs),
        ):
            as_of = moments(history, deployment_tag(connect(ours)))[_MOMENT]
            for name, query in _QUERIES.items():
                took = _times(
                    stage,
                    name,
                    {
                        "driver": partial(query.by_hand, database),
                        "Mercurius": partial(query.theirs, theirs),
                        "revstream": partial(query.ours, ours),
                    },
                )
                now.add(name, *took.values(), f"{took['revstream'] / took['driver']:.2f} x")
                then = _times(
                    stage,
                    f"{name}, as of",
                    {
                        "by hand": partial(query.over_versions, database, at),
                        "revstream": partial(query.ours, ours, as_of),
                    },
                )
                past.add(
                    name,
                    took["revstream"],
                    *then.values(),
                    f"{then['revstream'] / took['revstream']:.1f} x",
                )
    now.note(f"{node_versions()}.")
    return [now, past]


def _times(stage: Stage, text: str, asked: dict[str, Callable[[], Groups]]) -> dict[str, float]:
    """Return the median milliseconds of each, asked by turns, after one request of each that finds
    the documents in memory; all must return the same groups.

    Raises:
        Failed: they do not.
    """
    _check_alike({name: ask() for name, ask in asked.items()})
    took: dict[str, list[float]] = {name: [] for name in asked}
    for _ in stage.rounds(text):
        for name, ask in asked.items():
            started = time.perf_counter()
            ask()
            took[name].append((time.perf_counter() - started) * 1000)
    return {name: median(each) for name, each in took.items()}


def _check_alike(found: dict[str, Groups]) -> None:
    first, *rest = found.items()
    for name, groups in rest:
        if len(groups) != len(first[1]) or not groups:
            raise Failed(f"{name} returns {len(groups)} groups, and {first[0]} {len(first[1])}")
        for one, other in zip(groups, first[1], strict=True):
            # Sums of doubles depend on their order.
            if one[:2] != other[:2] or abs(one[2] - other[2]) > abs(other[2]) * 1e-9:
                raise Failed(f"{name} returns {one}, and {first[0]} {other}")


def _shown(key: Any) -> Any:
    return f"{key:%Y-%m-%dT%H:%M:%S}.000Z" if hasattr(key, "isoformat") else key
