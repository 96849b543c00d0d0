"""Time and memory to update the copies of one supplier's name in all of its products, and the delay
for a supplier of a single product meanwhile.

Beside it: the same documents changed by the bare driver in one `update_many`, without a
listener.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from pymongo.database import Database

from benchmarks.figures import Part, Table, medians, percentile
from benchmarks.processes import Failed, Process
from benchmarks.products import COLLECTION, SMALL_BYTES, product
from benchmarks.stage import Document, Stage, await_versions

__all__ = ["run"]

_MODEL = """
type Supplier @collection(name: "suppliers") { id: ID! name: String }
type Product @collection(name: "products") {
  id: Int!
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
}
"""
_LIMIT_S = 900.0
_MB = 1024 * 1024


def run(stage: Stage) -> list[Part]:
    count = stage.scale.copies
    table = Table(
        f"Copies: a supplier with {count:,} products of 0.5 KB is renamed",
        "what",
        "s",
        "writes/s",
        "peak MB",
        "MB before",
        "another supplier's copy, p50 s",
        "at most",
    )
    rows, bare = [], []
    for _ in stage.rounds("copies"):
        with stage.database() as database, tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "schema.graphql"
            model.write_text(_MODEL)
            rows.append(_measure(stage, database, count, str(model)))
            bare.append(_bare(database, count))
    table.add("revstream record", *medians(rows))
    table.add("bare update_many, no listener", *medians(bare), "-", "-", "-", "-")
    return [table]


def _measure(
    stage: Stage, database: Database[Document], count: int, model: str
) -> tuple[float, ...]:
    database["suppliers"].insert_many([{"_id": "many", "name": "0"}, {"_id": "one", "name": "0"}])
    for start in range(0, count, 10_000):
        several = range(start, min(count, start + 10_000))
        database[COLLECTION].insert_many(
            [product(n, size_bytes=SMALL_BYTES) | {"supplierId": "many"} for n in several]
        )
    database[COLLECTION].insert_one({"_id": -1, "supplierId": "one"})
    with stage.gateway(database, "--schema", model, command="record") as (gateway, _):
        _await_copies(gateway, database, count + 1, "0")
        # Documents, copies and their versions, all recorded.
        await_versions(database, 2 * (count + 1))
        _await_rest(database)
        before = gateway.memory_bytes()
        started = time.perf_counter()
        database["suppliers"].update_one({"_id": "many"}, {"$set": {"name": "1"}})
        waits = _await_copies(gateway, database, count, "1", probing=True)
        took_s = time.perf_counter() - started
        most = gateway.memory_bytes("VmHWM")
    worst = max(waits, default=float("nan"))
    middle = percentile(waits, 0.5)
    return took_s, count / took_s, most / _MB, before / _MB, middle, worst


def _await_copies(
    gateway: Process,
    database: Database[Document],
    count: int,
    name: str,
    *,
    probing: bool = False,
) -> list[float]:
    """Wait for `count` copies of a name; returns the delays of the other supplier's renames."""
    waits: list[float] = []
    deadline = time.monotonic() + _LIMIT_S
    products, probe = database[COLLECTION], 0
    renamed_at = 0.0
    while time.monotonic() < deadline:
        renamed = {"_id": -1, "supplierName": f"p{probe}"}
        if probing and (not probe or products.count_documents(renamed)):
            if probe:
                waits.append(time.perf_counter() - renamed_at)
            probe += 1
            renamed_at = time.perf_counter()
            database["suppliers"].update_one({"_id": "one"}, {"$set": {"name": f"p{probe}"}})
        # The copies are updated in the order of ids.
        last = products.find_one({"_id": {"$gte": 0}}, {"supplierName": 1}, sort=[("_id", -1)])
        if last and last.get("supplierName") == name:
            found = products.count_documents({"supplierName": name})
            if found >= count:
                return waits
        time.sleep(0.02)
    gateway.memory_bytes()
    raise Failed(f"not all of {count} copies say {name!r} after {_LIMIT_S:g} s")


def _await_rest(database: Database[Document]) -> None:
    """Wait until no checkpoint of a listener changes for a while."""
    seen, since = None, time.monotonic()
    while time.monotonic() - since < 3.0:
        now = [
            database[f"{name}.versions"].estimated_document_count()
            for name in ("suppliers", COLLECTION)
        ]
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.1)


def _bare(database: Database[Document], count: int) -> tuple[float, float]:
    took = []
    for name in ("a", "b", "c"):
        started = time.perf_counter()
        database[COLLECTION].update_many(
            {"supplierId": "many"}, {"$set": {"supplierName": name}, "$inc": {"version": 1}}
        )
        took.append(time.perf_counter() - started)
    return median(took), count / median(took)
