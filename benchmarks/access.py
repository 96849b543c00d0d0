"""Cost of authentication and row rules for `product(id)`, beside the same gateway without them.

The token is verified once, a row rule is part of each read, and roles are checked.
"""

from __future__ import annotations

import json
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, Request, load, measure
from benchmarks.products import COLLECTION, MODEL, product
from benchmarks.stage import Stage, await_versions
from tests.support.issuer import Issuer

__all__ = ["run"]

_DOCUMENTS = 10_000
_CALLERS = 100
_QUERY = "query ($id: ID!) { product(id: $id) { id version sku name price stock } }"
_RULE = """@access(
  read: ["reader"], rows: "{ or: [{ supplier: { eq: $sub } }, { stock: { gte: $least } }] }")"""


def run(stage: Stage) -> list[Part]:
    dice = random.Random(1)
    ids = [dice.randrange(_DOCUMENTS) for _ in range(500)]
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        issuer = Issuer(folder / "jwks.json")
        guarded = folder / "schema.graphql"
        text = MODEL.read_text(encoding="utf-8")
        guarded.write_text(text.replace("@index", f"{_RULE} @index", 1), encoding="utf-8")
        database = opened.enter_context(stage.database())
        documents = [product(n) for n in stage.track(range(_DOCUMENTS), "documents")]
        database[COLLECTION].insert_many(documents)
        tokens = [
            issuer.token(f"caller-{n}", lasts_s=86_400, roles=["reader"], least=0)
            for n in range(_CALLERS)
        ]
        plain = [_request(each, "") for each in ids]
        signed = [_request(each, tokens[n % _CALLERS]) for n, each in enumerate(ids)]
        with stage.gateway(database):
            await_versions(database, _DOCUMENTS)
        # One process records for both, or each version number would need a read.
        options = ("--no-record", "--schema", str(guarded), *issuer.options())
        servers = {
            "open": (*opened.enter_context(stage.gateway(database)), plain),
            "signed in, with a row rule": (
                *opened.enter_context(stage.gateway(database, *options)),
                signed,
            ),
        }
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in servers}
        for _, address, requests in servers.values():
            load(stage, address, requests, stage.scale.requests_s / 3)
        for _ in stage.rounds("access"):
            for name, (server, address, requests) in servers.items():
                rows[name].append(measure(stage, server, address, requests))
    table = Table(
        f"product(id), {_CALLERS} callers, {CONNECTIONS} connections",
        "gateway",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server's CPU, µs each",
    )
    for name, measured in rows.items():
        table.add(name, *medians(measured))
    return [table]


def _request(number: int, token: str) -> Request:
    body = json.dumps({"query": _QUERY, "variables": {"id": str(number)}})
    return Request("/graphql", body, token)
