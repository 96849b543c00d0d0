"""Events a second that a sink delivers to a receiver on the same machine, beside a loop that posts
the same bytes with the same HTTP client.

The versions exist before the sink begins: the cost of recording is not part of it.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pymongo
from pymongo.database import Database

from benchmarks.figures import Part, Table, medians
from benchmarks.processes import Failed, Process
from benchmarks.products import COLLECTION, MODEL, change, product
from benchmarks.stage import Document, Stage, await_versions
from revstream.streams.listeners.webhooks.sink import SinkOptions

__all__ = ["run"]

_DOCUMENTS = 1000
_SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
_LIMIT_S = 300.0
_PLAIN = "one loop that posts the same bytes, unsigned"


def run(stage: Stage) -> list[Part]:
    events = stage.scale.updates
    table = Table(
        f"Sink: {events:,} changes of {_DOCUMENTS:,} documents of 2.5 KB, to a receiver that only "
        "counts",
        "what",
        "events/s",
        "CPU of its process, µs each",
        "peak memory of its process, MB",
    )
    signed, plain = [], []
    for _ in stage.rounds("sink"):
        with stage.database() as database, stage.program("receiver") as receiver:
            address = f"http://127.0.0.1:{receiver.await_event('serving')['port']}"
            signed.append(_delivered(stage, database, address, events))
            plain.append(_posted(stage, address, events))
    table.add("sink, signed", *medians(signed))
    table.add(_PLAIN, *medians(plain))
    return [table]


def _delivered(
    stage: Stage, database: Database[Document], address: str, events: int
) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "schema.graphql"
        entity = f'@collection(name: "{COLLECTION}")'
        sink = f'{entity} @sink(url: "{address}/changes")'
        text = MODEL.read_text()
        assert entity in text
        model.write_text(text.replace(entity, sink))
        options = ("--schema", str(model), "--sink-secrets", _SECRET)
        # Once, so that it has a checkpoint.
        with stage.gateway(database, *options, command="record"):
            _await_place(database)
        _write(stage, database, events)
        with stage.gateway(database, command="record"):
            await_versions(database, _DOCUMENTS + events)
        with stage.gateway(database, *options, command="record") as (process, _):
            return _watched(process, address, _DOCUMENTS + events)


def _watched(process: Process, address: str, events: int) -> tuple[float, float, float]:
    until = time.monotonic() + _LIMIT_S
    first, cpu_s = 0, 0.0
    while time.monotonic() < until:
        figures = json.loads(_get(address))
        if not first and figures["count"]:
            first, cpu_s = figures["count"], process.cpu_s()
        if figures["count"] >= events:
            if figures["disorder"]:
                raise Failed(f"{figures['disorder']} events arrived out of order or twice")
            return (
                events / (figures["last_s"] - figures["first_s"]),
                (process.cpu_s() - cpu_s) / max(1, events - first) * 1e6,
                process.memory_bytes("VmHWM") / 2**20,
            )
        time.sleep(0.05)
    raise Failed(f"the receiver has {json.loads(_get(address))['count']} of {events} events")


def _posted(stage: Stage, address: str, events: int) -> tuple[float, float, float]:
    arguments = (address, events, SinkOptions().documents)
    with stage.program("poster", *arguments, beside_load=False) as program:
        said = program.await_event("result", timeout_s=_LIMIT_S)
    return (
        events / said["took_s"],
        said["cpu_s"] / events * 1e6,
        said["memory_bytes"] / 2**20,
    )


def _write(stage: Stage, database: Database[Document], events: int) -> None:
    dice = random.Random(1)
    database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
    for start in range(0, events, 1000):
        database[COLLECTION].bulk_write(
            [
                pymongo.UpdateOne({"_id": dice.randrange(_DOCUMENTS)}, change(start + n))
                for n in range(min(1000, events - start))
            ]
        )


def _await_place(database: Database[Document]) -> None:
    begun = {"_id": {"$regex": "^sink:"}}
    until = time.monotonic() + 60
    while database["revstream.checkpoints"].find_one(begun) is None:
        if time.monotonic() > until:
            raise Failed("the sink has not begun within 60 s")
        time.sleep(0.05)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        found: Any = response.read()
    return bytes(found)
