"""Environment of the benchmarks: a mongod of their own, and processes on assigned cores.

The gateway, or its alternative, has the first core to itself; mongod, the load and the benchmark
use the last one. With one core all share it. Everything is removed at the end.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pymongo
from pymongo.collection import Collection
from pymongo.database import Database
from rich.console import Console
from rich.progress import Progress

from benchmarks.processes import Failed, Process, cpu_s, pinned, python, spread
from benchmarks.products import COLLECTION, MODEL
from revstream.gql.runtime.embedded.embedded_mongod import embedded_mongod

__all__ = ["Scale", "Stage", "archive_of", "await_versions", "open_stage"]

Document = dict[str, Any]

_QUIET_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Size of the measurements; `quick` only shows that everything runs.

    Args:
        repeat: repetitions of each measurement, whose median is printed.
        round_: the number of earlier rounds, where other benchmarks are measured in between.
        compiling_s: warm-up time of each request for servers with a JIT compiler.
        audience, fan_out_s: subscribers and writing time of the fan-out benchmark.
        storm: subscribers that reconnect at once.
        minutes: duration of the steady load.
        sockets, sockets_s: number and duration of misbehaving sockets.
        documents: of the as-of benchmark, with `versions` each.
        aggregated: documents of the aggregates benchmark.
        bootstrap: documents of the bootstrap benchmark.
        copies: products of one supplier, in the copies benchmark.
        downtime_s, rate, paced: of the recovery benchmark: time without a gateway, updates a
            second, and whether they are written at that rate.
    """

    repeat: int = 3
    round_: int = 0
    updates: int = 30_000
    writes_s: float = 20.0
    requests_s: float = 6.0
    compiling_s: float = 15.0
    documents: int = 100_000
    versions: int = 20
    pages: int = 15
    aggregated: int = 1_000_000
    subscribers: int = 1000
    audience: int = 2000
    fan_out_s: float = 15.0
    storm: int = 10_000
    minutes: float = 30.0
    sockets: int = 5000
    sockets_s: float = 40.0
    bootstrap: int = 200_000
    copies: int = 100_000
    downtime_s: float = 60.0
    rate: float = 500.0
    paced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running environment."""

    uri: str
    scale: Scale
    gateway_cores: set[int]
    load_cores: set[int]
    client: pymongo.MongoClient[Document]
    mongod_pid: int
    progress: Progress

    @contextmanager
    def database(self) -> Iterator[Database[Document]]:
        """Yield an empty database, which is dropped at the end."""
        name = f"benchmark_{os.urandom(4).hex()}"
        try:
            yield self.client[name]
        finally:
            self.client.drop_database(name)

    @contextmanager
    def gateway(
        self, database: Database[Document], *options: str, command: str = "serve"
    ) -> Iterator[tuple[Process, str]]:
        """Run a gateway or a recorder; yields its process and address."""
        port = ("--port", "0") if command == "serve" else ()
        arguments = [
            command,
            *("--mongodb-uri", self.uri, "--database", database.name),
            *("--schema", str(MODEL), "--log-json", *port, *options),
        ]
        command_line = python("revstream", *arguments)
        with Process(command_line, cores=self.gateway_cores, log=True) as process:
            said = process.await_event("serving", "recording")
            yield process, said.get("address", "")

    @contextmanager
    def on_all_cores(self) -> Iterator[Stage]:
        """Yield the same environment with processes on any core, as outside of benchmarks.

        For work of revstream and MongoDB alone, without a load.
        """
        cores = self.gateway_cores | self.load_cores
        spread(self.mongod_pid, cores)
        try:
            yield replace(self, gateway_cores=cores, load_cores=cores)
        finally:
            spread(self.mongod_pid, self.load_cores)

    def program(self, name: str, *arguments: object, beside_load: bool = True) -> Process:
        """Start a program of `benchmarks.programs` on the load's core, or on the gateway's."""
        cores = self.load_cores if beside_load else self.gateway_cores
        return Process(python(f"benchmarks.programs.{name}", *map(str, arguments)), cores=cores)

    def mongod_cpu_s(self) -> float:
        return cpu_s(self.mongod_pid)

    def rounds(self, text: str) -> Iterator[int]:
        """Yield 0, 1, 2, … for each repetition, with progress."""
        yield from self.track(range(self.scale.repeat), text)

    def track(self, items: Sequence[Any] | range, text: str) -> Iterator[Any]:
        """Yield the items, with progress."""
        task = self.progress.add_task(text, total=len(items))
        try:
            for item in items:
                yield item
                self.progress.advance(task)
        finally:
            self.progress.remove_task(task)


@contextmanager
def open_stage(scale: Scale, *, oplog_mb: int = 2048) -> Iterator[Stage]:
    """Start everything that all benchmarks share."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    gateway_cores, load_cores = {cores[0]}, {cores[-1]}
    with (
        pinned(load_cores),
        tempfile.TemporaryDirectory(prefix="revstream-benchmarks-") as directory,
        _mongod(Path(directory), oplog_mb) as uri,
        pymongo.MongoClient[Document](uri, tz_aware=True) as client,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        yield Stage(
            uri=uri,
            scale=scale,
            gateway_cores=gateway_cores,
            load_cores=load_cores,
            client=client,
            mongod_pid=int(Path(directory, "mongod.pid").read_text()),
            progress=progress,
        )


def archive_of(database: Database[Document]) -> Collection[Document]:
    return database[f"{COLLECTION}.versions"]


def await_versions(database: Database[Document], wanted: int) -> int:
    """Wait until there are `wanted` versions; returns how many there are.

    Raises:
        Failed: none was added for a long time.
    """
    moved_at, seen = time.monotonic(), -1
    while True:
        # From the collection's metadata; 200 times a second it takes 5% of mongod's core.
        count = archive_of(database).estimated_document_count()
        if count >= wanted:
            return count
        if count != seen:
            moved_at, seen = time.monotonic(), count
        elif time.monotonic() - moved_at > _QUIET_S:
            raise Failed(f"the recorder has stopped at {count} of {wanted} versions")
        time.sleep(0.02)


@contextmanager
def _mongod(directory: Path, oplog_mb: int) -> Iterator[str]:
    # A realistic cache: with the 0.25 GB of the demo this would measure the disk.
    server = embedded_mongod(directory, cache_gb=2, oplog_mb=oplog_mb)
    with asyncio.Runner() as runner:
        uri = runner.run(_entered(server))
        try:
            yield uri
        finally:
            runner.run(_left(server))


async def _entered(server: Any) -> str:
    uri: str = await server.__aenter__()
    return uri


async def _left(server: Any) -> None:
    await server.__aexit__(None, None, None)
