"""Progress of long work at start: a bar on a terminal, log lines otherwise."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

__all__ = ["Report", "shown_progress"]

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]


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
