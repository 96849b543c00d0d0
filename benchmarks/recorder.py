"""Versions a second that the recorder archives in a burst.

Documents are written and recorded; the recorder is stopped; a burst of updates is written; the
recorder is started again and catches up. The time counts from the end of its first batch, when
everything is warm, to the last version; the burst is so long that versions built ahead by then do
not matter. Beside it: the same records inserted by the bare driver into a collection with the same
indexes, from the same core, without reading.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from benchmarks.charts import bars
from benchmarks.figures import Part, Table, medians
from benchmarks.processes import pinned
from benchmarks.products import COLLECTION, change, product
from benchmarks.stage import Document, Stage, archive_of, await_versions

__all__ = ["run"]

_BATCH = 1000
"""Events in a batch of the recorder, as in `streams.changefeed.source.SourceOptions`."""

_LONG = 4
_DRIVERS = ("motor", "pymongo")


def run(stage: Stage) -> list[Part]:
    updates = _LONG * stage.scale.updates
    documents = max(1, updates // 10)
    table = Table(
        f"Recorder: {updates:,} updates of {documents:,} documents of 2.5 KB, in random order",
        "what",
        "versions/s",
        "its CPU, µs each",
        "mongod's CPU, µs each",
    )
    recorded: dict[str, list[tuple[float, ...]]] = {driver: [] for driver in _DRIVERS}
    bare = []
    # By turns, so that compared figures are close together in time: a machine's speed changes
    # within minutes.
    for _ in stage.rounds("recorder"):
        for driver, rows in recorded.items():
            with stage.database() as database:
                _write(stage, database, documents, updates, driver)
                rows.append(_measure(stage, database, documents + updates, driver))
                records = _read_back(database, updates)
                indexes = dict(archive_of(database).index_information())
        with stage.database() as database:
            bare.append(_insert_bare(stage, database["bare"], records, indexes))
    for driver, rows in recorded.items():
        table.add(f"revstream record, {driver}", *medians(rows))
    table.add("bare insert_many of the same records, pymongo", *medians(bare))
    per_second = {f"revstream, {driver}": medians(rows)[0] for driver, rows in recorded.items()}
    per_second["insert_many"] = medians(bare)[0]
    return [table, bars("versions a second", per_second)]


def _write(
    stage: Stage, database: Database[Document], documents: int, updates: int, driver: str
) -> None:
    """Write documents, which are recorded, then a burst of updates, which is not recorded yet."""
    with stage.gateway(database, "--driver", driver, command="record"):
        database[COLLECTION].insert_many([product(n) for n in range(documents)])
        await_versions(database, documents)
    dice = random.Random(1)
    burst = [
        pymongo.UpdateOne({"_id": dice.randrange(documents)}, change(n)) for n in range(updates)
    ]
    for start in range(0, updates, _BATCH):
        database[COLLECTION].bulk_write(burst[start : start + _BATCH])


def _measure(
    stage: Stage, database: Database[Document], versions: int, driver: str
) -> tuple[float, float, float]:
    """Return versions a second, and CPU microseconds per version of the recorder and of mongod."""
    before = archive_of(database).estimated_document_count()
    _settle(stage)
    with stage.gateway(database, "--driver", driver, command="record") as (process, _):
        first = await_versions(database, before + _BATCH)
        started, cpu_s, mongod_s = time.perf_counter(), process.cpu_s(), stage.mongod_cpu_s()
        last = await_versions(database, versions)
        took_s = time.perf_counter() - started
        cpu_s = process.cpu_s() - cpu_s
        mongod_s = stage.mongod_cpu_s() - mongod_s
    counted = last - first
    return counted / took_s, cpu_s / counted * 1e6, mongod_s / counted * 1e6


def _settle(stage: Stage) -> None:
    """Flush earlier writes to disk: that is not part of the measurement."""
    stage.client.admin.command("fsync")


def _read_back(database: Database[Document], updates: int) -> list[RawBSONDocument]:
    options = database.codec_options.with_options(document_class=RawBSONDocument)
    archive = archive_of(database).with_options(codec_options=options)
    return list(archive.find({"op": "UPDATE"}, limit=updates).sort("_id", 1))


def _insert_bare(
    stage: Stage,
    collection: Collection[Document],
    records: Sequence[RawBSONDocument],
    indexes: Document,
) -> tuple[float, float, float]:
    for name, index in indexes.items():
        if name != "_id_":
            options = {k: v for k, v in index.items() if k not in ("v", "key")}
            collection.create_index(index["key"], name=name, **options)
    _settle(stage)
    with pinned(stage.gateway_cores):
        started, cpu_s = time.perf_counter(), time.process_time()
        mongod_s = stage.mongod_cpu_s()
        for start in range(0, len(records), _BATCH):
            collection.insert_many(records[start : start + _BATCH])
        took_s = time.perf_counter() - started
        cpu_s = time.process_time() - cpu_s
        mongod_s = stage.mongod_cpu_s() - mongod_s
    return (
        len(records) / took_s,
        cpu_s / len(records) * 1e6,
        mongod_s / len(records) * 1e6,
    )
