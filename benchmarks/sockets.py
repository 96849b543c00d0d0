"""Peak memory of a gateway while thousands of WebSockets connect, send garbage, or never read; and
the latency of `product(id)` over HTTP for other clients meanwhile.

Beside it: without those WebSockets. The limit is explained in docs/decisions/0024-sockets.md.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from urllib.parse import urlsplit

from pymongo.database import Database

from benchmarks.figures import Part, Table, percentile
from benchmarks.processes import Failed, Process, allow_sockets
from benchmarks.products import COLLECTION, change, product
from benchmarks.stage import Document, Stage, await_versions
from revstream.gql.runtime.configuration.settings import Settings

__all__ = ["run"]

_DOCUMENTS = 1000
_QUERY = json.dumps({"query": '{ product(id: "1") { id name price stock } }'})
_PAUSE_S = 0.02
_MB = 1024 * 1024
_EACH_BYTES = 100 * 1024
_KINDS = {"nobody": "", "connect": "idle", "send garbage": "garbage", "never read": "silent"}


def run(stage: Stage) -> list[Part]:
    allow_sockets()
    count = stage.scale.sockets
    bound = (Settings().sockets_bytes + count * _EACH_BYTES) / _MB
    table = Table(
        f"{count:,} WebSockets for {stage.scale.sockets_s:g} s each, beside one client over HTTP",
        "what they do",
        "MB before",
        "MB at most",
        "its p50 ms",
        "its p99 ms",
        "requests that failed",
    )
    with stage.database() as database:
        database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
        for name, kind in _KINDS.items():
            with stage.gateway(database) as (gateway, address):
                await_versions(database, _DOCUMENTS)
                table.add(name, *_measure(stage, database, gateway, address, kind))
    table.note(
        f"Bound: {bound:,.0f} MB more than before (--sockets-bytes, and {_EACH_BYTES // 1024} KB "
        "for each socket), and what the ring holds of the writes."
    )
    return [table]


def _measure(
    stage: Stage, database: Database[Document], gateway: Process, address: str, kind: str
) -> tuple[float, float, float, float, int]:
    # The first request runs code for the first time.
    with _client(address):
        time.sleep(1)
    before = gateway.memory_bytes()
    sockets = (
        stage.program("misbehaving_sockets", address, stage.scale.sockets, kind)
        if kind
        else nullcontext()
    )
    with sockets, _client(address) as client:
        if isinstance(sockets, Process):
            sockets.await_event("gathered", timeout_s=300)
        until = time.monotonic() + stage.scale.sockets_s
        step = 0
        while time.monotonic() < until:
            step += 1
            database[COLLECTION].update_one({"_id": step % _DOCUMENTS}, change(step))
            time.sleep(0.5)
        most = gateway.memory_bytes("VmHWM")
    return (
        before / _MB,
        most / _MB,
        percentile(client.times_ms, 0.5),
        percentile(client.times_ms, 0.99),
        client.failed,
    )


class _Client:
    """A client that repeats one request over one connection."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._at = parts.hostname or "", parts.port
        self.times_ms: list[float] = []
        self.failed = 0
        self.stopped = threading.Event()

    def ask(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self.stopped.wait(_PAUSE_S):
            began = time.perf_counter()
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(*self._at, timeout=60)
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/graphql", _QUERY, headers)
                answer = json.loads(connection.getresponse().read())
                self.failed += "errors" in answer
            except (OSError, http.client.HTTPException):
                self.failed += 1
                connection = None
            self.times_ms.append((time.perf_counter() - began) * 1000)


@contextmanager
def _client(address: str) -> Iterator[_Client]:
    client = _Client(address)
    thread = threading.Thread(target=client.ask)
    thread.start()
    try:
        yield client
    finally:
        client.stopped.set()
        thread.join()
        if not client.times_ms:
            raise Failed("no request was answered")
