"""Time in which revstream catches up with writes that were made while no gateway ran.

The writes are as fast as MongoDB accepts them, or, with `--paced`, at their rate: for catching up
only their number counts. The time counts from the start of the gateway's process to the last
version.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pymongo
from pymongo.database import Database

from benchmarks.figures import Part, Table, medians
from benchmarks.products import COLLECTION, change, product
from benchmarks.stage import Document, Stage, archive_of, await_versions

__all__ = ["run"]

_DOCUMENTS = 20_000
_BATCH = 500


def run(stage: Stage) -> list[Part]:
    scale = stage.scale
    updates = round(scale.downtime_s * scale.rate)
    how = "at that pace" if scale.paced else "written faster than that"
    table = Table(
        f"Recovery: {scale.downtime_s:g} s without a gateway at {scale.rate:g} updates/s "
        f"({updates:,}, {how})",
        "what",
        "s to start",
        "s to catch up",
        "versions/s",
        "times the rate",
    )
    rows = []
    for _ in stage.rounds("recovery"):
        with stage.database() as database:
            rows.append(_measure(stage, database, updates))
    started_s, caught_up_s, per_s = medians(rows)
    table.add("revstream serve", started_s, caught_up_s, per_s, per_s / scale.rate)
    table.note(
        f"Of {_DOCUMENTS:,} documents of 2.5 KB, in random order. "
        "Starting: until the first version; catching up: from there to the last one, on all cores."
    )
    return [table]


def _measure(
    stage: Stage, database: Database[Document], updates: int
) -> tuple[float, float, float]:
    with stage.gateway(database):
        for start in range(0, _DOCUMENTS, 1000):
            database[COLLECTION].insert_many([product(start + n) for n in range(1000)])
        await_versions(database, _DOCUMENTS)
    _write(stage, database, updates)
    before = archive_of(database).estimated_document_count()
    started = time.perf_counter()
    with stage.on_all_cores() as spread, spread.gateway(database):
        first = await_versions(database, before + 1)
        began = time.perf_counter()
        last = await_versions(database, _DOCUMENTS + updates)
        ended = time.perf_counter()
    return began - started, ended - began, (last - first) / (ended - began)


def _write(stage: Stage, database: Database[Document], updates: int) -> None:
    dice = random.Random(1)
    beginning = time.monotonic()
    for batch in stage.track(list(_batches(updates)), "writing while no gateway runs"):
        if stage.scale.paced:
            time.sleep(max(0.0, beginning + batch.start / stage.scale.rate - time.monotonic()))
        database[COLLECTION].bulk_write(
            [pymongo.UpdateOne({"_id": dice.randrange(_DOCUMENTS)}, change(n)) for n in batch]
        )


def _batches(updates: int) -> Iterator[range]:
    for start in range(0, updates, _BATCH):
        yield range(start, min(start + _BATCH, updates))
