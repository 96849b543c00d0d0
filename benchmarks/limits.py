"""Cost of the limits for `product(id)`: a gateway with the default limits, beside one without
limits.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import fields

from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, load, measure
from benchmarks.products import COLLECTION, product
from benchmarks.reads import FIELDS, one
from benchmarks.stage import Stage
from revstream.gql.runtime.configuration.settings import Settings

__all__ = ["run"]

_DOCUMENTS = 10_000


def run(stage: Stage) -> list[Part]:
    dice = random.Random(1)
    unnumbered = FIELDS.replace("version ", "")
    requests = [one(unnumbered, dice.randrange(_DOCUMENTS)) for _ in range(500)]
    table = Table(
        f"Limits: product(id) of {_DOCUMENTS:,} documents, {CONNECTIONS} connections",
        "limits",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server's CPU, µs each",
    )
    none = [
        part
        for each in fields(Settings)
        if each.name.startswith("max_")
        for part in (f"--{each.name.replace('_', '-')}", "0")
    ]
    with ExitStack() as opened:
        database = opened.enter_context(stage.database())
        database[COLLECTION].insert_many(
            [product(n) for n in stage.track(range(_DOCUMENTS), "documents")]
        )
        # On one core, by turns: an idle gateway takes no CPU time.
        gateways = {
            name: opened.enter_context(stage.gateway(database, *options))
            for name, options in (("as they are", []), ("none", ["--no-record", *none]))
        }
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in gateways}
        for _, address in gateways.values():
            load(stage, address, requests, stage.scale.requests_s / 3)
        for _ in stage.rounds("limits"):
            for name, (gateway, address) in gateways.items():
                rows[name].append(measure(stage, gateway, address, requests))
        for name, measured in rows.items():
            table.add(name, *medians(measured))
    return [table]
