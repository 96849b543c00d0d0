"""Comparison of the layouts: the same documents and versions in each, served by the same gateway.

Programs of that layout write them before a gateway runs; the gateway records them; then requests
are measured one after the other. Updates that a crash has interrupted between two writes are
planted in many documents, and the time to repair them is measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pymongo
from pymongo.database import Database

from benchmarks.charts import bars
from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, Request, load
from benchmarks.products import product
from benchmarks.stage import Document, Stage, await_versions
from revstream.model.compiler.loader import read_model
from revstream.model.definition import HistoryKind
from revstream.streams.layouts.factory import create_layout
from revstream.streams.layouts.self_versioned.deltas import WHOLE_EVERY
from revstream.streams.mongo.database import Mongo

__all__ = ["SHAPES", "Shape", "run"]

_BYTES = 300
_CRASHED = 1000
_COLUMNS = (
    "one/s",
    "many by a filter/s",
    "update/s",
    "version n/s",
    "whole history, ms",
    "page as of, ms",
    "bytes a version",
    "recovery, ms a document",
)
_CHARTED = (0, 1, 2, 3)
_MODEL = """
type Product @collection(name: "products", history: %s, version: "v") @index(fields: ["stock"]) {
  id: Int!
  sku: String!
  name: String!
  price: Float!
  stock: Int!
  description: String
}
"""
_ONE = "query ($id: ID!) { product(id: $id) { id sku name price stock } }"
_MANY = """
query ($stock: Int!) {
  products(where: { stock: { eq: $stock } }, first: 20) { nodes { id sku name price stock } }
}
"""
_UPDATE = """
mutation ($id: ID!, $price: Float!) {
  updateProduct(id: $id, patch: { price: $price }) { __typename }
}
"""
_VERSION = """
query ($id: ID!, $n: Int!) {
  productVersion(id: $id, version: $n) { operation document { sku name price stock } }
}
"""
_HISTORY = """
query ($id: ID!, $after: String) {
  product(id: $id) {
    history(first: 100, after: $after) {
      nodes { version operation document { name price stock } }
      pageInfo { hasNextPage endCursor }
    }
  }
}
"""
_AS_OF = """
query ($at: ResumeToken!) {
  productsAsOf(asOf: { token: $at }, first: 20) { nodes { documentId document { name stock } } }
}
"""


@dataclass(frozen=True, slots=True)
class Shape:
    documents: int
    versions: int

    @property
    def total(self) -> int:
        return self.documents * self.versions

    def __str__(self) -> str:
        return f"{self.documents:,} documents with {self.versions:,} versions of {_BYTES} bytes"


SHAPES = (Shape(10_000, 20), Shape(100, 2000))
Row = tuple[float, ...]


def run(stage: Stage) -> list[Part]:
    quick = stage.scale.requests_s < 1
    parts: list[Part] = []
    for shape in (Shape(200, 5), Shape(5, 200)) if quick else SHAPES:
        table = Table(f"{shape}, {CONNECTIONS} connections", "layout", *_COLUMNS)
        found: dict[str, list[float]] = {}
        for history in HistoryKind:
            rows = []
            for _ in stage.rounds(f"layouts {history.value}"):
                with stage.database() as database:
                    rows.append(_measure(stage, database, history, shape))
            found[history.value] = medians(rows)
            table.add(history.value, *found[history.value])
        parts.append(table)
        for n in _CHARTED:
            heights = {_short(name): row[n] for name, row in found.items()}
            parts.append(bars(f"{_COLUMNS[n]}: {shape}", heights))
    return parts


def _short(name: str) -> str:
    return name.replace("DOCUMENT_PER_VERSION", "PER_VERSION")


def _measure(stage: Stage, database: Database[Document], history: HistoryKind, shape: Shape) -> Row:
    dice = random.Random(7)
    _fill(database, history, shape)
    with tempfile.TemporaryDirectory() as folder:
        path, model = Path(folder) / "schema.graphql", _MODEL % history.value
        path.write_text(model)
        with (
            stage.gateway(database, "--schema", str(path)) as (_, address),
            httpx.Client(base_url=address, timeout=60) as client,
        ):
            await_versions(database, shape.total)
            used = _bytes(stage, database) / shape.total
            at = _asked(client, "{ resumeToken }")["resumeToken"]
            keys = [dice.randrange(shape.documents) for _ in range(500)]
            numbers = [dice.randint(1, shape.versions) for _ in keys]

            def per_second(query: str, variables: Sequence[Mapping[str, Any]]) -> float:
                requests = [_request(query, each) for each in variables]
                load(stage, address, requests, stage.scale.requests_s / 6)
                return load(stage, address, requests, stage.scale.requests_s / 2).per_second

            one = per_second(_ONE, [{"id": str(key)} for key in keys])
            many = per_second(_MANY, [{"stock": n} for n in range(200)])
            version = per_second(
                _VERSION,
                [{"id": str(key), "n": n} for key, n in zip(keys, numbers, strict=True)],
            )
            whole = _milliseconds(
                [partial(_history, client, key, shape.versions) for key in keys[:5]]
            )
            update = per_second(
                _UPDATE, [{"id": str(key), "price": n / 7} for n, key in enumerate(keys)]
            )
            as_of = _milliseconds([lambda: _page(client, at)] * 20)
        recovery = asyncio.run(_recovered(stage, database, history, model))
    return one, many, update, version, whole, as_of, used, recovery


def _request(query: str, variables: Mapping[str, Any]) -> Request:
    return Request("/graphql", json.dumps({"query": query, "variables": variables}))


def _asked(client: httpx.Client, query: str, **variables: Any) -> Any:
    answer = client.post("/graphql", json={"query": query, "variables": variables}).json()
    if answer.get("errors"):
        raise ValueError(answer["errors"])
    return answer["data"]


def _history(client: httpx.Client, key: int, versions: int) -> None:
    """Read the whole history of a document and check it."""
    after, count = None, 0
    while True:
        found = _asked(client, _HISTORY, id=str(key), after=after)["product"]["history"]
        count += len(found["nodes"])
        if not found["pageInfo"]["hasNextPage"]:
            break
        after = found["pageInfo"]["endCursor"]
    if count < versions:
        raise ValueError(f"product {key} has {count} versions of {versions}")


def _page(client: httpx.Client, at: str) -> None:
    found = _asked(client, _AS_OF, at=at)["productsAsOf"]["nodes"]
    if not found or any(each["document"] is None for each in found):
        raise ValueError(f"the page as of {at} is {found}")


def _milliseconds(steps: Sequence[Callable[[], None]]) -> float:
    """Return the median duration of several steps."""
    took = []
    for step in steps:
        started = time.perf_counter()
        step()
        took.append((time.perf_counter() - started) * 1000)
    return medians([[each] for each in took])[0]


def _bytes(stage: Stage, database: Database[Document]) -> float:
    stage.client.admin.command("fsync")
    names = [each for each in database.list_collection_names() if each.startswith("products")]
    stats = [database.command("collStats", each) for each in names]
    return float(sum(each["storageSize"] + each["totalIndexSize"] for each in stats))


async def _recovered(
    stage: Stage, database: Database[Document], history: HistoryKind, model: str
) -> float:
    """Return the time to repair a document whose update a crash has interrupted between two
    writes.
    """
    count = _crash(database, history)
    if not count:
        return 0.0
    entity = read_model(model).entities[0]
    async with Mongo.connect(stage.uri, database.name) as mongo:
        layout = create_layout(mongo, entity)
        started = time.perf_counter()
        # No waiting time before the repair: only the work is measured.
        mended = await layout.recover(settle_s=0)
        took_s = time.perf_counter() - started
    if mended != count:
        raise ValueError(f"{history.value}: {mended} of {count} documents were mended")
    return took_s / count * 1000


def _crash(database: Database[Document], history: HistoryKind) -> int:
    """Leave updates as if they had ended after their first write; returns how many."""
    products = database["products"]
    if history is HistoryKind.CURRENT_FLAG:
        current = list(products.find({"current": True}).limit(_CRASHED))
        for each in current:
            del each["_id"]
            each["v"] += 1
        products.insert_many(current)
        return len(current)
    if history is HistoryKind.SEPARATE:
        current = list(products.find().limit(_CRASHED))
        for each in current:
            each["docId"] = each.pop("_id")
        database["products.previous"].insert_many(current)
        return len(current)
    return 0


def _fill(database: Database[Document], history: HistoryKind, shape: Shape) -> None:
    """Write every version of every document, as programs of that layout do."""
    products = database["products"]
    if history is HistoryKind.ARCHIVE:
        # By updates: the history consists of the writes.
        products.insert_many(_body(n, 1) | {"_id": n, "v": 1} for n in range(shape.documents))
        for number in range(2, shape.versions + 1):
            products.bulk_write(
                [
                    pymongo.UpdateOne({"_id": n}, {"$set": _changed(n, number) | {"v": number}})
                    for n in range(shape.documents)
                ]
            )
        return
    if history in (HistoryKind.DOCUMENT_PER_VERSION, HistoryKind.CURRENT_FLAG, HistoryKind.DELTAS):
        products.create_index([("docId", 1), ("v", 1)], unique=True)
    some = max(1, 20_000 // shape.versions)
    for start in range(0, shape.documents, some):
        keys = range(start, min(start + some, shape.documents))
        rows = [row for n in keys for row in _rows(history, n, shape.versions)]
        products.insert_many([row for row in rows if "of" not in row])
        beside = [row for row in rows if row.pop("of", None)]
        if beside:
            database["products.previous"].insert_many(beside)


def _rows(history: HistoryKind, n: int, versions: int) -> Iterator[Document]:
    bodies = [{"v": number, **_body(n, number)} for number in range(1, versions + 1)]
    *before, last = bodies
    match history:
        case HistoryKind.DOCUMENT_PER_VERSION:
            yield from ({"docId": n, **each} for each in bodies)
        case HistoryKind.CURRENT_FLAG:
            yield from ({"docId": n, **each} for each in before)
            yield {"docId": n, **last, "current": True}
        case HistoryKind.EMBEDDED:
            yield {"_id": n, "current": last, "prev": before}
        case HistoryKind.SEPARATE:
            yield {"_id": n, **last}
            yield from ({"of": "previous", "docId": n, **each} for each in before)
        case HistoryKind.DELTAS:
            for number, body in enumerate(bodies, 1):
                whole = number % WHOLE_EVERY == 1
                said = body | {"whole": True} if whole else {"v": number, **_changed(n, number)}
                yield {"docId": n, **said}
        case _:
            raise ValueError(history)


def _body(n: int, number: int) -> Document:
    made = product(n, size_bytes=_BYTES)
    content = {name: made[name] for name in ("sku", "name", "price", "description")}
    return {**content, "stock": n % 200, **_changed(n, number)}


def _changed(n: int, number: int) -> Document:
    """Return the fields that a version changes."""
    return {"price": (n * 31 + number) % 100_000 / 100}
