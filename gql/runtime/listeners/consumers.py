"""Consumers: each listener besides the recorders, with its lease."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from inspect import isabstract
from pathlib import Path

import click

from revstream.streams.archive.horizon import Horizons
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.coordination.lease import Leases
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.listeners.consumer import Consumer, Handler
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub

__all__ = ["Make", "consumers_of", "own_listeners"]


Make = Callable[[ListenerContext], Handler]


def own_listeners(named: str | None) -> list[Make]:
    """Return the listeners of `--listeners`: `module:Class`, separated by commas.

    Raises:
        click.UsageError: One of them cannot be used.
    """
    return [_imported(each.strip()) for each in (named or "").split(",") if each.strip()]


def consumers_of(
    handlers: Sequence[Handler],
    context: ListenerContext,
    hub: Hub,
    progress: ArchiveProgress,
    checkpoints: Checkpoints,
    leases: Leases,
    opened_at: str,
) -> tuple[tuple[Consumer, LeasedTask], ...]:
    """Each handler with what feeds it and the lease under which it works.

    Args:
        opened_at: Resume token of the start of this process.

    Raises:
        click.UsageError: two have one name, or one follows a collection that the model has not.
    """
    found: dict[str, tuple[Consumer, LeasedTask]] = {}
    for handler in handlers:
        if handler.name in found:
            raise click.UsageError(
                f"--listeners: the name {handler.name!r} twice, expected once; rename one of them"
            )
        archive = context.archives.get(handler.collection)
        if archive is None:
            known = ", ".join(context.archives)
            raise click.UsageError(
                f"--listeners: {handler.name!r} follows the collection {handler.collection!r}, "
                f"expected one of the model: {known}"
            )
        consumer = Consumer(
            handler,
            archive,
            hub,
            progress,
            checkpoints,
            Horizons(context.mongo),
            opened_at=opened_at,
        )
        found[handler.name] = consumer, LeasedTask(handler.name, leases, consumer.run)
    return tuple(found.values())


def _imported(named: str) -> Make:
    module, _, name = named.partition(":")
    # Like `python -m`: the console script has another folder first in its path.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not module or not name:
        raise click.UsageError(f"--listeners: {named!r}, expected module:Class")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise click.UsageError(f"--listeners: {named!r}: import failed: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, Handler)) or isabstract(found):
        raise click.UsageError(
            f"--listeners: {named!r}, expected a subclass of revstream.listeners.Handler with the "
            "method `handle`"
        )
    return found
