"""Time from the start of a process until it is ready for requests, with a recorded database, and
while other processes use the same one.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from pymongo.database import Database

from benchmarks.figures import Part, Table, medians
from benchmarks.peers.node import mercurius
from benchmarks.peers.shop import MODEL, PRODUCTS, stock_up
from benchmarks.processes import Process
from benchmarks.stage import Document, Stage, await_versions

__all__ = ["run"]

_POLL_S = 0.005
_MB = 1024 * 1024


def run(stage: Stage) -> list[Part]:
    table = Table(
        "From the start of the process to its first answer", "server", "s", "its CPU, s", "MB"
    )
    with stage.database() as database:
        stock_up(database)
        with stage.gateway(database, "--schema", str(MODEL)):
            await_versions(database, PRODUCTS)
        servers: dict[str, Callable[[], AbstractContextManager[tuple[Process, str]]]] = {
            "revstream, until /readyz says so": lambda: stage.gateway(
                database, "--schema", str(MODEL)
            ),
            "Mercurius": lambda: mercurius(stage, database),
            "bare route": lambda: _bare_server(stage, database),
        }
        asked = ("/readyz", "/graphql?query={__typename}", "/product/1")
        rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in servers}
        for _ in stage.rounds("startup"):
            for (name, opened), path in zip(servers.items(), asked, strict=True):
                began = time.monotonic()
                with opened() as (process, address):
                    _await_answer(address + path)
                    took_s = time.monotonic() - began
                    rows[name].append((took_s, process.cpu_s(), process.memory_bytes() / _MB))
    for name, measured in rows.items():
        table.add(name, *medians(measured))
    return [table]


@contextmanager
def _bare_server(stage: Stage, database: Database[Document]) -> Iterator[tuple[Process, str]]:
    with stage.program("bare_server", stage.uri, database.name, beside_load=False) as process:
        yield process, str(process.await_event("serving")["address"])


def _await_answer(address: str) -> None:
    while True:
        try:
            with urllib.request.urlopen(address):
                return
        except urllib.error.HTTPError:
            time.sleep(_POLL_S)
