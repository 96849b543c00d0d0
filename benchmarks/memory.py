"""Peak memory of a gateway without and with many idle subscribers, beside a bare WebSocket route
with as many connections.
"""

from __future__ import annotations

import re
import time
import urllib.request
from statistics import median

from benchmarks.figures import Part, Table
from benchmarks.processes import Process, allow_sockets
from benchmarks.products import COLLECTION, product
from benchmarks.stage import Stage, await_versions

__all__ = ["run"]

_DOCUMENTS = 1000
_SUBSCRIPTION = (
    "subscription { productChanges { operation version product { id name price stock } } }"
)
_MB = 1024 * 1024


def run(stage: Stage) -> list[Part]:
    allow_sockets()
    subscribers = stage.scale.subscribers
    table = Table(
        f"Memory: {subscribers:,} idle subscribers, each on a WebSocket of its own",
        "process",
        "MB without",
        "MB with, at most",
        "KB each",
    )
    rows: dict[str, list[tuple[float, float]]] = {"revstream serve": [], "bare WebSocket route": []}
    with stage.database() as database:
        database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
        for _ in stage.rounds("memory"):
            with stage.gateway(database) as (gateway, address):
                await_versions(database, _DOCUMENTS)
                alone = _settled(gateway)
                subscriber = stage.program(
                    "subscriber", f"{address}/graphql", subscribers, _SUBSCRIPTION
                )
                with subscriber:
                    subscriber.await_event("subscribed", timeout_s=300)
                    _await_subscribers(address, subscribers)
                    _settled(gateway)
                    rows["revstream serve"].append((alone, gateway.memory_bytes("VmHWM")))
            bare_server = stage.program("bare_server", stage.uri, database.name, beside_load=False)
            with bare_server:
                address = bare_server.await_event("serving")["address"]
                alone = _settled(bare_server)
                with stage.program("subscriber", f"{address}/listen", subscribers, "") as listener:
                    listener.await_event("subscribed", timeout_s=300)
                    _settled(bare_server)
                    rows["bare WebSocket route"].append((alone, bare_server.memory_bytes("VmHWM")))
    for name, measured in rows.items():
        without, most = (median(column) for column in zip(*measured, strict=True))
        each = (most - without) / subscribers
        table.add(name, without / _MB, most / _MB, each / 1024)
    return [table]


def _settled(process: Process) -> int:
    """Return the memory of a process once it no longer changes."""
    last, same = 0, 0
    while same < 3:
        now = process.memory_bytes()
        same = same + 1 if abs(now - last) < _MB // 4 else 0
        last = now
        time.sleep(0.3)
    return last


def _await_subscribers(address: str, wanted: int) -> None:
    """Wait until all subscriptions have begun, which is later than the open sockets."""
    while True:
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            told = answer.read().decode()
        found = re.search(r"^revstream_subscriptions{.*} ([\d.]+)", told, re.M)
        if found and float(found[1]) >= wanted:
            return
        time.sleep(0.1)
