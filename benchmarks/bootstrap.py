"""The initial snapshot of a large collection, under load.

The oplog does not contain the inserts any more. Meanwhile one program updates random documents, and
another reads them through the gateway; their latency is measured without the snapshot, during it,
and after it.
"""

from __future__ import annotations

import contextlib
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pymongo
from pymongo.database import Database
from pymongo.errors import OperationFailure

from benchmarks.figures import Part, Table, percentile
from benchmarks.processes import Failed, Process
from benchmarks.products import COLLECTION, product
from benchmarks.stage import Document, Stage, archive_of

__all__ = ["OPLOG_MB", "run"]

_BYTES = 300
_WRITES_PER_S = 200
_READS_PER_S = 50
_BESIDE_S = 15.0
_LIMIT_S = 3600.0
_BATCH = 10_000
_MB = 1024 * 1024
OPLOG_MB = 16
"""Oplog size of the server at its start; small, so that it rolls over soon."""
# Large enough for the snapshot itself.
_LARGE_OPLOG_MB = 8192.0


@dataclass
class _Watched:
    """Measurements of a gateway during its initial snapshot."""

    took_s: float = 0.0
    lags_s: list[float] = field(default_factory=list)
    least_bytes: int = 0
    most_bytes: int = 0


def run(stage: Stage) -> list[Part]:
    documents = stage.scale.bootstrap
    times = Table(
        f"Bootstrap: latency at {_WRITES_PER_S} updates/s and {_READS_PER_S} reads/s of a product",
        "when",
        "update p50 ms",
        "update p99 ms",
        "read p50 ms",
        "read p99 ms",
    )
    with stage.database() as database:
        _fill(stage, database, documents)
        _roll_oplog(stage, database)
        with _steady(stage, "write", stage.uri, database.name, documents, _WRITES_PER_S) as writes:
            time.sleep(min(_BESIDE_S, stage.scale.writes_s))
        times.add("no gateway", *_percentiles(writes), "-", "-")
        updates = len(writes)
        with stage.gateway(database) as (gateway, address):
            with (
                _steady(stage, "write", stage.uri, database.name, documents, _WRITES_PER_S) as one,
                _steady(stage, "read", address, documents, _READS_PER_S) as two,
            ):
                watched = _watch(stage, gateway, address, documents)
            times.add("during the initial snapshot", *_percentiles(one), *_percentiles(two))
            with (
                _steady(stage, "write", stage.uri, database.name, documents, _WRITES_PER_S) as last,
                _steady(stage, "read", address, documents, _READS_PER_S) as after,
            ):
                time.sleep(min(_BESIDE_S, stage.scale.writes_s))
            times.add("after it, recording", *_percentiles(last), *_percentiles(after))
            _check(database, documents, len(one) + len(last), earlier=updates)
    table = Table(
        f"Bootstrap: initial snapshot of {documents:,} documents of {_BYTES} bytes",
        "seconds",
        "documents/s",
        "gateway MB before",
        "gateway MB at most",
        "lag of changes p50 s",
        "at most s",
    )
    table.add(
        f"{watched.took_s:,.0f}",
        documents / watched.took_s,
        watched.least_bytes / _MB,
        watched.most_bytes / _MB,
        percentile(watched.lags_s, 0.5),
        max(watched.lags_s, default=0.0),
    )
    times.note(
        "Latency since each request was due. Every document and every update is archived once."
    )
    return [table, times]


def _fill(stage: Stage, database: Database[Document], documents: int) -> None:
    images = {"enabled": True}
    database.create_collection(COLLECTION, changeStreamPreAndPostImages=images)
    for start in stage.track(range(0, documents, _BATCH), "writing documents"):
        numbers = range(start, min(start + _BATCH, documents))
        database[COLLECTION].insert_many(
            [product(n, size_bytes=_BYTES) for n in numbers], ordered=False
        )


def _roll_oplog(stage: Stage, database: Database[Document]) -> None:
    """Write other documents until the oplog contains none of the existing ones."""
    admin, oplog = stage.client.admin, stage.client.local["oplog.rs"]
    now = admin.command("hello")["operationTime"]
    filler = [{"text": "x" * _MB} for _ in range(4)]
    task = stage.progress.add_task("rolling the oplog over", total=None)
    while True:
        # The oldest entry may be deleted while it is read.
        with contextlib.suppress(OperationFailure):
            [oldest] = oplog.find().sort("$natural", 1).limit(1)
            if oldest["ts"] > now:
                break
        database["filler"].insert_many([dict(each) for each in filler], ordered=False)
        database["filler"].drop()
        # Only entries before the last checkpoint are deleted.
        admin.command("fsync")
    stage.progress.remove_task(task)
    admin.command("replSetResizeOplog", 1, size=_LARGE_OPLOG_MB)


@contextmanager
def _steady(stage: Stage, *arguments: object) -> Iterator[list[float]]:
    """Run a program during the context; afterwards the list has the latency of each of its
    turns.
    """
    took: list[float] = []
    with stage.program("steady", *arguments) as program:
        yield took
        took += program.finish()["took"]


def _percentiles(took: list[float]) -> tuple[float, float]:
    return percentile(took, 0.5) * 1000, percentile(took, 0.99) * 1000


def _watch(stage: Stage, gateway: Process, address: str, documents: int) -> _Watched:
    """Measure the gateway until the initial snapshot, which has just begun, is done."""
    started = time.monotonic()
    watched = _Watched(least_bytes=gateway.memory_bytes())
    task = stage.progress.add_task("first reading", total=documents)
    while True:
        figures = _figures(address)
        watched.lags_s.append(figures["lag_seconds"])
        stage.progress.update(task, completed=figures.get("first_reading_documents", 0))
        watched.took_s = time.monotonic() - started
        if figures.get("first_reading_done"):
            break
        if watched.took_s > _LIMIT_S:
            raise Failed(f"the initial snapshot has not ended after {_LIMIT_S:,.0f} s: {figures}")
        time.sleep(0.1)
    stage.progress.remove_task(task)
    watched.most_bytes = gateway.memory_bytes("VmHWM")
    return watched


def _figures(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        text = answer.read().decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^revstream_recorder_(\w+)\{[^}]*\} (\S+)$", text, re.M)
    }


def _check(database: Database[Document], documents: int, updates: int, *, earlier: int) -> None:
    """Check that each document, and each update since the gateway's start, is archived once.

    Raises:
        ValueError: one is not.
    """
    archive = archive_of(database)
    deadline = time.monotonic() + 60
    while True:
        # Earlier updates that are still in the oplog are recorded, too.
        found = archive.count_documents({"op": "UPDATE"})
        if updates <= found <= updates + earlier or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    first: Any = {"first": True}
    known = archive.count_documents(first, hint=[("doc", pymongo.ASCENDING)])
    if known != documents or not updates <= found <= updates + earlier:
        raise ValueError(
            f"{known:,} of {documents:,} documents and {found:,} of {updates:,} updates "
            f"(and at most {earlier:,} before) are archived"
        )
