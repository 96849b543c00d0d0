"""Delivery of every write to thousands of subscribers, each on a WebSocket of its own.

Beside it: Mercurius, and a program that writes ready frames to every socket, which is the least
possible cost. Writers, subscribers and mongod share the other core. Subscribers count every frame;
for some of them, whose frames are read first, the time since the write's acknowledgement is
measured. Frames of the others wait for 12 to 18 ms in seconds in which that core is full.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pymongo
from pymongo.database import Database

from benchmarks.charts import bars
from benchmarks.figures import Part, Table, medians, percentile
from benchmarks.peers.node import mercurius
from benchmarks.peers.shop import MODEL, PRODUCTS, SHELVES, stock_up
from benchmarks.processes import Failed, Process, allow_sockets
from benchmarks.products import COLLECTION, change, touched
from benchmarks.socket_load import BIN_NS
from benchmarks.stage import Document, Stage, await_versions

__all__ = ["ALL", "awaken", "run"]

_PRODUCT = "{ product { id version name sku price stock } }"
ALL = f"subscription {{ productChanges {_PRODUCT} }}"
_SHELF = (
    "subscription ($below: Int!) "
    f"{{ productChanges(where: {{ shelf: {{ lt: $below }} }}) {_PRODUCT} }}"
)
_OWN = f"subscription ($id: ID!) {{ productChanges(id: $id) {_PRODUCT} }}"

_LOOKS_UP = "Mercurius"
"""Reads the document again for each event: of two writes in a row the later may come twice."""
_KEPT = 100
_LATEST_S = 120.0
_WARM = 0.2
"""The first share of the writing time, in which nothing is measured."""

Server = AbstractContextManager[tuple[Process, str]]


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of the benchmark.

    Args:
        rate: writes a second, to `documents`.
        variables: those of the subscribers, assigned in turn.
        told: the number of subscribers, of all, that receive a write to a document.
        kept: whether the time of each delivery is recorded, or those of `_KEPT` sockets.
    """

    name: str
    query: str
    rate: int
    variables: Callable[[int], Sequence[Mapping[str, Any]]]
    told: Callable[[int, int], float]
    documents: Callable[[int], int] = lambda _: PRODUCTS
    kept: Callable[[int], int] = lambda audience: min(_KEPT, audience)
    peers: tuple[str, ...] = ("revstream", "Mercurius", "ready frames")


_CASES = (
    _Case("the same for all", ALL, 50, lambda _: [{}], lambda _, audience: audience),
    _Case(
        f"{SHELVES} filters, of which half match",
        _SHELF,
        50,
        lambda _: [{"below": n + 1} for n in range(SHELVES)],
        lambda document, audience: audience * (SHELVES - document % SHELVES) / SHELVES,
        peers=("revstream", "Mercurius"),
    ),
    _Case(
        "each one product",
        _OWN,
        200,
        lambda audience: [{"id": str(n)} for n in range(audience)],
        lambda _document, _audience: 1,
        documents=lambda audience: audience,
        kept=lambda audience: audience,
    ),
)


def run(stage: Stage) -> list[Part]:
    allow_sockets()
    audience = stage.scale.audience
    parts: list[Part] = []
    servers: dict[str, Callable[[Database[Document]], Server]] = {
        "revstream": lambda database: stage.gateway(database, "--schema", str(MODEL)),
        "Mercurius": lambda database: mercurius(stage, database),
        "ready frames": lambda database: _frame_server(stage, database),
    }
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {
        (case.name, name): [] for case in _CASES for name in case.peers
    }
    with stage.database() as database:
        stock_up(database)
        with servers["revstream"](database):
            await_versions(database, PRODUCTS)
        first = stage.scale.round_
        turns = _in_turn(list(servers), range(first, first + stage.scale.repeat))
        for name, case in stage.track(turns, "fan-out"):
            with servers[name](database) as (process, address):
                row, twice = _measure(stage, database, case, process, address)
                if twice and name != _LOOKS_UP:
                    raise Failed(
                        f"{name}, {case.name}: received twice, by socket and step: {twice[:9]}"
                    )
                rows[case.name, name].append(row)
    for case in _CASES:
        table = Table(
            f"{audience:,} subscribers, {case.name}, {case.rate} writes/s",
            "server",
            "offered/s",
            "delivered/s",
            "its CPU, ms per 1,000",
            "p50 ms",
            "p99 ms",
            "came in the end, %",
        )
        found = {name: medians(rows[case.name, name]) for name in case.peers}
        for name, figures in found.items():
            table.add(name, *figures)
        parts += [
            table,
            bars(
                f"{case.name}: CPU, ms per 1,000", {name: each[2] for name, each in found.items()}
            ),
        ]
    return parts


def _in_turn(servers: Sequence[str], turns: range) -> list[tuple[str, _Case]]:
    """Yield the cases of each server in turn.

    The cases of one server are compared with each other, so they run close together in time.
    """
    return [
        (name, case)
        for turn in turns
        for name in servers[:: -1 if turn % 2 else 1]
        for case in _CASES
        if name in case.peers
    ]


@contextmanager
def _frame_server(stage: Stage, database: Database[Document]) -> Iterator[tuple[Process, str]]:
    with stage.program("frame_server", stage.uri, database.name, beside_load=False) as process:
        yield process, str(process.await_event("serving")["address"])


def _measure(
    stage: Stage, database: Database[Document], case: _Case, server: Process, address: str
) -> tuple[tuple[float, ...], list[tuple[int, int]]]:
    """Return a row of the table, and the repeated events: sockets and steps."""
    count, seconds = stage.scale.audience, stage.scale.fan_out_s
    documents = case.documents(count)
    with stage.program("audience", address, count, case.kept(count)) as audience:
        audience.send_json(query=case.query, variables=case.variables(count))
        audience.await_event("subscribed", timeout_s=300)
        # The first document matches every filter.
        awaken(database, audience, range(documents if case.query == _OWN else 1))
        writing = ("write", stage.uri, database.name, documents, case.rate)
        with stage.program("steady", *writing) as writer:
            writer.await_event("begun")
            time.sleep(seconds * _WARM)
            first, cpu_s = _bin(), server.cpu_s()
            time.sleep(seconds)
            last, cpu_s = _bin(), server.cpu_s() - cpu_s
            written = dict(writer.finish()["times"])
        heard = audience.finish()
    took_s = (last - first) * BIN_NS / 1e9
    counts = dict(heard["counts"])
    delivered = sum(texts for at, texts in counts.items() if first <= at < last)
    meant = {step: case.told(touched(step, documents), count) for step in written}
    offered = sum(meant[step] for step, at in written.items() if first <= at // BIN_NS < last)
    latencies = [
        (at - written[step]) / 1e6
        for _, step, at in heard["kept"]
        if step in written and first <= written[step] // BIN_NS < last
    ]
    came = Counter((socket, step) for socket, step, _ in heard["kept"] if step in written)
    row = (
        offered / took_s,
        delivered / took_s,
        cpu_s * 1000 / (delivered / 1000),
        percentile(latencies, 0.5),
        percentile(latencies, 0.99),
        sum(counts.values()) / sum(meant.values()) * 100,
    )
    return row, [each for each, times in came.items() if times > 1]


def awaken(database: Database[Document], audience: Process, ids: Iterable[int]) -> None:
    """Write to these documents until every subscriber has received an event.

    Only then is it certain that all subscriptions have begun. The writes are step 0, which `Links`
    does not count.

    Raises:
        Failed: a subscriber has received none for a long time.
    """
    writes = [pymongo.UpdateOne({"_id": n}, change(0)) for n in ids]
    until = time.monotonic() + _LATEST_S
    while not audience.has_event("live"):
        if time.monotonic() > until:
            raise Failed(f"not every subscriber received an event within {_LATEST_S:g} s")
        database[COLLECTION].bulk_write(writes)
        time.sleep(0.5 + len(writes) / 1000)
    # Nor is its cost measured.
    audience.await_event("quiet", timeout_s=_LATEST_S)


def _bin() -> int:
    return time.monotonic_ns() // BIN_NS
