"""Time from a write's acknowledgement to its event over WebSocket, at 200 writes/s.

Once with the fields of the document alone, which the change stream carries, and once with
`version`, which waits for the recorder. Beside it: a bare change stream in a process of its own,
with no gateway running. Writer and receivers share a core with mongod.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.database import Database

from benchmarks.figures import Part, Table, medians, percentile
from benchmarks.processes import Process
from benchmarks.products import COLLECTION, change, product
from benchmarks.stage import Document, Stage

__all__ = ["run"]

_RATE = 200
_DOCUMENTS = 1000

_PLAIN = "subscription { productChanges { operation product { id name price stock } } }"
_NUMBERED = "subscription { productChanges { version operation product { id name price stock } } }"


def run(stage: Stage) -> list[Part]:
    table = Table(
        f"Latency: a write's acknowledgement to its event's receipt, {_RATE} writes/s",
        "receiver",
        "p50 ms",
        "p90 ms",
        "p99 ms",
    )
    with stage.database() as database:
        images = {"enabled": True}
        database.create_collection(COLLECTION, changeStreamPreAndPostImages=images)
        database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
        receivers = {
            "revstream, fields of the document": _PLAIN,
            "revstream, with `version`": _NUMBERED,
            "bare change stream with fullDocument, pymongo": "",
        }
        for name, subscription in receivers.items():
            rows = []
            for _ in stage.rounds(f"latency: {name}"):
                with _receiver(stage, database, subscription) as receiver:
                    rows.append(_measure(stage, database, receiver))
            table.add(name, *medians(rows))
    table.note("A negative time: the event arrived before the acknowledgement.")
    return [table]


@contextmanager
def _receiver(stage: Stage, database: Database[Document], subscription: str) -> Iterator[Process]:
    if not subscription:
        with stage.program("watcher", stage.uri, database.name) as watcher:
            watcher.await_event("live")
            yield watcher
        return
    with (
        stage.gateway(database) as (_, address),
        stage.program("subscriber", f"{address}/graphql", 1, subscription) as subscriber,
    ):
        subscriber.await_event("subscribed")
        _awaken(database, subscriber)
        yield subscriber


def _awaken(database: Database[Document], subscriber: Process) -> None:
    """Write until an event arrives: only then is it certain that the subscription has begun."""
    while not subscriber.has_event("live"):
        database[COLLECTION].update_one({"_id": 0}, change(0))
        time.sleep(0.05)


def _measure(
    stage: Stage, database: Database[Document], receiver: Process
) -> tuple[float, float, float]:
    with stage.program("steady", "write", stage.uri, database.name, _DOCUMENTS, _RATE) as writer:
        writer.await_event("begun")
        time.sleep(stage.scale.writes_s)
        written = dict(writer.finish()["times"])
    time.sleep(1)
    received = dict(receiver.finish()["times"])
    missing = written.keys() - received.keys()
    if missing:
        raise ValueError(f"{len(missing)} of {len(written)} writes were not received")
    # The first events run code for the first time.
    warm = max(1, len(written) // 10)
    latencies = [(received[step] - at) / 1e6 for step, at in written.items() if step > warm]
    return (percentile(latencies, 0.5), percentile(latencies, 0.9), percentile(latencies, 0.99))
