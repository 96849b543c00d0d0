"""Throughput and latency of the most common reads of a frontend, beside a bare route that reads the
same with Motor and serializes with orjson.
"""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, Request, load, measure
from benchmarks.processes import Failed
from benchmarks.products import COLLECTION, product
from benchmarks.stage import Stage, await_versions

__all__ = ["FIELDS", "one", "run"]

_DOCUMENTS = 10_000
FIELDS = "id version sku name price stock"

_ONE = "query ($id: ID!) { product(id: $id) { %s } }"
_PAGE = "query { products(first: 20) { nodes { %s } } }"

# Gateways that read through a driver's cursors instead.
_DRIVERS = {"Motor": (), "PyMongo Async": ("--driver", "pymongo")}

Read = tuple[str, str, Sequence[Request]]


def run(stage: Stage) -> list[Part]:
    dice = random.Random(1)
    ids = [dice.randrange(_DOCUMENTS) for _ in range(500)]
    unnumbered = FIELDS.replace("version ", "")
    lookups = [one(FIELDS, each) for each in ids]
    reads: list[Read] = [
        ("product(id)", "revstream", lookups),
        ("product(id), without `version`", "revstream", [one(unnumbered, each) for each in ids]),
        *((f"product(id), {each} without wire", each, lookups) for each in _DRIVERS),
        ("product(id), bare route", "bare_server", [Request(f"/product/{each}") for each in ids]),
        ("products(first: 20)", "revstream", [_page(FIELDS)]),
        ("products(first: 20), without `version`", "revstream", [_page(unnumbered)]),
        *(
            (f"products(first: 20), {each} without wire", each, [_page(FIELDS)])
            for each in _DRIVERS
        ),
        ("products(first: 20), bare route", "bare_server", [Request("/products?first=20")]),
    ]
    table = Table(
        f"Reads: {_DOCUMENTS:,} documents of 2.5 KB, {CONNECTIONS} connections",
        "read",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server's CPU, µs each",
    )
    with ExitStack() as opened:
        database = opened.enter_context(stage.database())
        documents = [product(n) for n in stage.track(range(_DOCUMENTS), "documents")]
        database[COLLECTION].insert_many(documents)
        bare_server = opened.enter_context(
            stage.program("bare_server", stage.uri, database.name, beside_load=False)
        )
        servers = {
            "revstream": opened.enter_context(stage.gateway(database)),
            "bare_server": (bare_server, str(bare_server.await_event("serving")["address"])),
        }
        for name, options in _DRIVERS.items():
            gateway = stage.gateway(database, "--no-wire", "--no-record", *options)
            servers[name] = opened.enter_context(gateway)
        await_versions(database, _DOCUMENTS)
        _check_alike(servers["revstream"][1], servers["bare_server"][1])
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name, _, _ in reads}
        for _, server, requests in reads:
            load(stage, servers[server][1], requests, stage.scale.requests_s / 3)
        for _ in stage.rounds("reads"):
            for name, server, requests in reads:
                rows[name].append(measure(stage, *servers[server], requests))
        for name, measured in rows.items():
            table.add(name, *medians(measured))
    return [table]


def one(fields: str, number: int) -> Request:
    return _graphql(_ONE % fields, {"id": str(number)})


def _page(fields: str) -> Request:
    return _graphql(_PAGE % fields, {})


def _graphql(query: str, variables: dict[str, str]) -> Request:
    return Request("/graphql", json.dumps({"query": query, "variables": variables}))


def _check_alike(address: str, bare_server: str) -> None:
    """Check that both return the same documents, or the comparison has no meaning."""
    ours = _ask(address, one(FIELDS, 7))["data"]["product"]
    theirs = _ask(bare_server, Request("/product/7"))["product"]
    page = _ask(address, _page(FIELDS))["data"]["products"]["nodes"]
    bare_page = _ask(bare_server, Request("/products?first=20"))["products"]
    for our, other in zip([ours, *page], [theirs, *bare_page], strict=True):
        if our != {**{k: other[k] for k in other if k != "_id"}, "id": str(other["_id"])}:
            raise Failed(f"{our} and {other} differ")


def _ask(address: str, request: Request) -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(
            address + request.path,
            data=request.body.encode() or None,
            headers={"Content-Type": "application/json"},
        )
    ) as answer:
        return json.load(answer)
