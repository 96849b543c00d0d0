"""Throughput and latency of `updateProduct`, beside the same update by a bare route and by the
driver alone.

The alternatives set the same two fields and increment the version, in a database that is not
recorded. The gateway's figures include its recorder, which archives on the same core; one row is of
a gateway that leaves recording to another process.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pymongo.database import Database

from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, Request, load
from benchmarks.processes import Failed, Process
from benchmarks.products import COLLECTION, product
from benchmarks.stage import Document, Stage, await_versions

__all__ = ["run"]

_DOCUMENTS = 1000
# Each request with an expected version can succeed once: more than one measurement sends.
_MOST_PER_S = 4000

_UPDATE = """
mutation ($id: ID!, $expected: Int, $stock: Int!, $price: Float!) {
  updateProduct(id: $id, expectedVersion: $expected, patch: {stock: $stock, price: $price}) {
    __typename ... on ProductWritten { %s product { id sku name price stock } }
  }
}
"""

Row = tuple[float, float, float, float]
Make = Callable[[Database[Document], float], Sequence[Request]]


def run(stage: Stage) -> list[Part]:
    table = Table(
        f"Writes: {_DOCUMENTS:,} documents of 2.5 KB, {CONNECTIONS} connections",
        "write",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server's CPU, µs each",
    )
    conflicts = 0
    with ExitStack() as opened:

        def filled() -> Database[Document]:
            database = opened.enter_context(stage.database())
            database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
            return database

        recorded, unrecorded, bare = filled(), filled(), filled()
        gateway = opened.enter_context(stage.gateway(recorded))
        writer = opened.enter_context(stage.gateway(unrecorded, "--no-record"))
        program = opened.enter_context(
            stage.program("bare_server", stage.uri, bare.name, beside_load=False)
        )
        bare_server = program, str(program.await_event("serving")["address"])
        writes: list[tuple[str, Database[Document], tuple[Process, str], Make]] = [
            ("updateProduct", recorded, gateway, _plain),
            ("updateProduct, with `version`", recorded, gateway, _numbered),
            ("updateProduct, with expectedVersion", recorded, gateway, _compared),
            ("updateProduct, --no-record", unrecorded, writer, _plain),
            ("bare route", bare, bare_server, _bare),
        ]
        await_versions(recorded, _DOCUMENTS)
        rows: dict[str, list[Row]] = {}
        for name, database, server, make in writes:
            rows[name] = []
            _measure(stage, database, server, make, stage.scale.requests_s / 3)
            _settle(recorded)
        for _ in stage.rounds("writes"):
            for name, database, server, make in writes:
                row, missed = _measure(stage, database, server, make, stage.scale.requests_s)
                rows[name].append(row)
                conflicts += missed
                _settle(recorded)
            rows.setdefault("find_one_and_update, driver alone", []).append(_driven(stage, bare))
    for name, measured in rows.items():
        table.add(name, *medians(measured))
    if conflicts:
        table.note(f"{conflicts:,} of the requests with expectedVersion were in conflict.")
    return [table]


def _measure(
    stage: Stage,
    database: Database[Document],
    server: tuple[Process, str],
    make: Make,
    seconds: float,
) -> tuple[Row, int]:
    """Return a row, and the number of requests that have written nothing."""
    process, address = server
    requests, before = make(database, seconds), _written(database)
    cpu_s = process.cpu_s()
    done = load(stage, address, requests, seconds)
    cpu_s = process.cpu_s() - cpu_s
    # Requests in progress at the end are executed and not counted.
    missed = max(0, done.requests - (_written(database) - before))
    if missed == done.requests:
        raise Failed(f"nothing was written by {requests[0]}")
    return (done.per_second, done.p50_ms, done.p99_ms, cpu_s / done.requests * 1e6), missed


def _driven(stage: Stage, database: Database[Document]) -> Row:
    """Run the driver on the gateway's core, with as many concurrent updates as connections."""
    arguments = (stage.uri, database.name, _DOCUMENTS, CONNECTIONS, stage.scale.requests_s)
    with stage.program("driver", *arguments, beside_load=False) as driver:
        said = driver.await_event("result", timeout_s=stage.scale.requests_s + 60)
    return said["per_second"], said["p50_ms"], said["p99_ms"], said["cpu_us"]


def _written(database: Database[Document]) -> int:
    """Return the number of writes that the documents have counted."""
    [found] = database[COLLECTION].aggregate([{"$group": {"_id": 0, "n": {"$sum": "$version"}}}])
    return int(found["n"])


def _settle(database: Database[Document]) -> None:
    """Wait until all writes are archived, so that they do not burden the next measurement."""
    await_versions(database, _written(database))


def _plain(_database: Database[Document], _seconds: float) -> list[Request]:
    return [_update("", id=n) for n in _drawn()]


def _numbered(_database: Database[Document], _seconds: float) -> list[Request]:
    return [_update("version", id=n) for n in _drawn()]


def _compared(database: Database[Document], seconds: float) -> list[Request]:
    """Return a request for each document in turn, with the version after its previous turn.

    There are enough documents that the previous request of one has been answered by then.
    """
    versions = {each["_id"]: each["version"] for each in database[COLLECTION].find({}, ["version"])}
    turns = max(2, round(seconds) * _MOST_PER_S // _DOCUMENTS)
    return [
        _update("", id=n, expected=version + turn)
        for turn in range(turns)
        for n, version in versions.items()
    ]


def _bare(_database: Database[Document], _seconds: float) -> list[Request]:
    return [Request(f"/product/{n}", json.dumps({"stock": n, "price": n / 100})) for n in _drawn()]


def _drawn() -> list[int]:
    dice = random.Random(1)
    return [dice.randrange(_DOCUMENTS) for _ in range(500)]


def _update(more: str, *, id: int, **variables: Any) -> Request:
    body = {
        "query": _UPDATE % more,
        "variables": {"id": str(id), "stock": id, "price": id / 100, **variables},
    }
    return Request("/graphql", json.dumps(body))
