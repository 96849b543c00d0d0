"""Size and cost of `storage: DELTA` beside `FULL`: a version history recorded in either storage.

The history is the real one where REVSTREAM_REAL_DATA names its folder (lines of `{doc, seq, body}`
in caniuse-history.jsonl.gz), else updates of the benchmarks' documents. It is written without a
recorder; then a recorder catches up. Sizes are MongoDB's figures after a checkpoint, of data on
disk (compressed by snappy), without indexes.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymongo
from pymongo.database import Database

from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import Request, load
from benchmarks.products import change, product
from benchmarks.stage import Document, Stage, archive_of, await_versions

__all__ = ["run"]

_REAL = "caniuse-history.jsonl.gz"
_MODEL = """
type Product @collection(name: "products", storage: {storage}) {{ id: {id}! title: String }}
"""
_ONE = """
query One($id: ID!, $n: Int!) {
  productVersion(id: $id, version: $n) { operation document { title } }
}
"""


def run(stage: Stage) -> list[Part]:
    real = os.environ.get("REVSTREAM_REAL_DATA")
    writes = list(_real(Path(real)) if real else _random_updates(stage.scale.updates))
    name = "a real history" if real else "updates of documents of 2.5 KB"
    table = Table(
        f"Storage: {len(writes):,} versions, {name}",
        "storage",
        "versions/s",
        "recorder's CPU, µs each",
        "bytes a version on disk",
        "bytes a version before compression",
        "requests/s for a version",
    )
    for storage in ("FULL", "DELTA"):
        rows = []
        for _ in stage.rounds(f"storage {storage}"):
            with stage.database() as database, tempfile.TemporaryDirectory() as folder:
                model = Path(folder) / "schema.graphql"
                scalar = "String" if real else "Int"
                model.write_text(_MODEL.format(storage=storage, id="ID" if real else scalar))
                rows.append(_measure(stage, database, writes, str(model)))
        table.add(storage, *medians(rows))
    return [table]


def _measure(
    stage: Stage, database: Database[Document], writes: Sequence[Any], model: str
) -> tuple[float, ...]:
    # So that history begins with these writes.
    with stage.gateway(database, "--schema", model, command="record"):
        pass
    for start in range(0, len(writes), 1000):
        database["products"].bulk_write(writes[start : start + 1000])
    with stage.gateway(database, "--schema", model, command="record") as (process, _):
        first = await_versions(database, 1000)
        started, cpu_s = time.perf_counter(), process.cpu_s()
        last = await_versions(database, len(writes))
        took_s, cpu_s = time.perf_counter() - started, process.cpu_s() - cpu_s
    stage.client.admin.command("fsync")
    stats = database.command("collStats", archive_of(database).name)
    counted = last - first
    return (
        counted / took_s,
        cpu_s / counted * 1e6,
        stats["storageSize"] / last,
        stats["size"] / last,
        _reads_s(stage, database, model),
    )


def _reads_s(stage: Stage, database: Database[Document], model: str) -> float:
    """Return the requests a second for one version of a random document."""
    keys = [(each["doc"], each["v"]) for each in archive_of(database).find({}, {"doc": 1, "v": 1})]
    requests = [
        Request("/graphql", json.dumps({"query": _ONE, "variables": {"id": str(key), "n": number}}))
        for key, number in random.Random(5).choices(keys, k=500)
    ]
    with stage.gateway(database, "--schema", model) as (_, address):
        return load(stage, address, requests, stage.scale.requests_s / 3).per_second


def _real(folder: Path) -> Iterator[Any]:
    with gzip.open(folder / _REAL, "rt", encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            key = {"_id": event["doc"]}
            if event["body"] is None:
                yield pymongo.DeleteOne(key)
            else:
                content = {**key, "version": event["seq"], **event["body"]}
                yield pymongo.ReplaceOne(key, content, upsert=True)


def _random_updates(updates: int) -> Iterator[Any]:
    documents = max(1, updates // 10)
    dice = random.Random(1)
    yield from (pymongo.InsertOne(product(n)) for n in range(documents))
    yield from (
        pymongo.UpdateOne({"_id": dice.randrange(documents)}, change(n)) for n in range(updates)
    )
