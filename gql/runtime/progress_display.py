"""Progress of long work: bars on a terminal, log lines otherwise."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

__all__ = ["Report", "shown_progress", "shown_readings"]

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]

_LOGGED_EVERY_S = 10.0


@asynccontextmanager
async def shown_progress() -> AsyncIterator[Report]:
    """`report(text, done, total)`; an empty text clears what is shown."""
    if not sys.stderr.isatty():
        yield _logged
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def report(text: str, done: int, total: int) -> None:
            progress.update(
                task, description=text, completed=done, total=total or None, visible=bool(text)
            )
            if not text:
                progress.stop()

        yield report


def _logged(text: str, done: int, total: int) -> None:
    if text:
        log.info("progress", extra={"step": text, "done": done, "total": total})


@asynccontextmanager
async def shown_readings() -> AsyncIterator[Report]:
    """`report(collection, read, total)` of first readings, several at once; equal where one is
    done, both 0 where it breaks off.
    """
    if not sys.stderr.isatty():
        yield _Lines().report
        return
    bars = _Bars(Console(stderr=True))
    try:
        yield bars.report
    finally:
        bars.end()


class _Bars:
    """A bar for each collection that is being read; the log's lines go above them."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("reading {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._bars: dict[str, TaskID] = {}

    def report(self, collection: str, read: int, total: int) -> None:
        if read == total:
            bar = self._bars.pop(collection, None)
            if bar is not None:
                self._progress.remove_task(bar)
            if not self._bars:
                self.end()
            return
        if not self._bars:
            self._progress.start()
        if collection not in self._bars:
            self._bars[collection] = self._progress.add_task(collection)
        self._progress.update(self._bars[collection], completed=read, total=total)

    def end(self) -> None:
        self._progress.stop()


class _Lines:
    """Log lines at the beginning and end of a reading, and every ten seconds between."""

    def __init__(self) -> None:
        # By collection: its start here, with the count then, and the time of its last line.
        self._begun: dict[str, tuple[float, int]] = {}
        self._logged_at: dict[str, float] = {}

    def report(self, collection: str, read: int, total: int) -> None:
        now = time.monotonic()
        if read == total == 0:
            if self._begun.pop(collection, None) is not None:
                log.info("first reading interrupted", extra={"collection": collection})
            return
        begun_at, before = self._begun.setdefault(collection, (now, read))
        first = begun_at == now
        if read < total and not first and now - self._logged_at[collection] < _LOGGED_EVERY_S:
            return
        self._logged_at[collection] = now
        facts: dict[str, object] = {"collection": collection, "documents": read, "total": total}
        if now > begun_at:
            facts["per_second"] = round((read - before) / (now - begun_at))
        if read == total:
            del self._begun[collection]
            log.info("first reading done", extra=facts)
        else:
            log.info("first reading", extra=facts)
