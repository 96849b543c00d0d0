"""Time until another process records after the lease holder is killed or stopped, while 50
documents a second are written.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from pymongo.database import Database

from benchmarks.figures import Part, Table
from benchmarks.processes import Failed, Process
from benchmarks.products import COLLECTION, product
from benchmarks.stage import Document, Stage, archive_of, await_versions

__all__ = ["run"]

_DOCUMENTS = 1000
_RATE = 50
_LIMIT_S = 60.0
_LISTENER = {"_id": f"recorder:{COLLECTION}"}


def run(stage: Stage) -> list[Part]:
    table = Table(
        f"Takeover: another process records, {_RATE} writes/s, a lease of 10 s",
        "the holder gets",
        "s to its first version",
        "at most",
        "s without any version",
        "at most",
    )
    for sent in (signal.SIGKILL, signal.SIGTERM):
        rows = []
        for _ in stage.rounds(f"takeover: {sent.name}"):
            with stage.database() as database:
                rows.append(_measure(stage, database, sent))
        to_first, without = zip(*rows, strict=True)
        table.add(sent.name, median(to_first), max(to_first), median(without), max(without))
    return [table]


def _measure(
    stage: Stage, database: Database[Document], sent: signal.Signals
) -> tuple[float, float]:
    """Measure one takeover after a signal to the lease holder.

    Returns:
        Seconds from the signal to the next holder's first version, and between the last version
            before
        and the first one after it.
    """
    database[COLLECTION].insert_many([product(n) for n in range(_DOCUMENTS)])
    with contextlib.ExitStack() as opened:
        first, _ = opened.enter_context(stage.gateway(database))
        await_versions(database, _DOCUMENTS)
        opened.enter_context(stage.gateway(database))
        opened.enter_context(_written(stage, database))
        await_versions(database, _DOCUMENTS + 3 * _RATE)
        return _observe(database, first, sent)


def _observe(
    database: Database[Document], holder: Process, sent: signal.Signals
) -> tuple[float, float]:
    leases = database["revstream.leases"]
    fence = _fence(database)
    holder.send(sent)
    started = moved_at = time.monotonic()
    without_s, taken = 0.0, -1
    seen = archive_of(database).estimated_document_count()
    while time.monotonic() - started < _LIMIT_S:
        if taken < 0 and _fence(database) > fence:
            taken = archive_of(database).estimated_document_count()
        count = archive_of(database).estimated_document_count()
        now = time.monotonic()
        if count > seen:
            without_s = max(without_s, now - moved_at)
            seen, moved_at = count, now
        if 0 <= taken < count:
            return now - started, without_s
        time.sleep(0.002)
    raise Failed(f"no process took over from {leases.find_one(_LISTENER)} within {_LIMIT_S:g} s")


def _fence(database: Database[Document]) -> int:
    """Return the newest fencing token from the checkpoint, which is saved before the first
    version.
    """
    found = database["revstream.checkpoints"].find_one(_LISTENER) or {}
    return int(found.get("fencingToken", 0))


@contextmanager
def _written(stage: Stage, database: Database[Document]) -> Iterator[None]:
    arguments = ("write", stage.uri, database.name, _DOCUMENTS, _RATE)
    with stage.program("steady", *arguments) as program:
        yield
        program.finish()
