"""The listeners beside the recorders, those of the user's own among them: what each one does, and
the lease under which it does it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isabstract
from pathlib import Path

import click

from model.entities import Model
from streams.archive import Archive
from streams.checkpoints import Checkpoints
from streams.consumer import Consumer, Handler
from streams.horizons import Horizons
from streams.hub import Hub
from streams.lease import Leases
from streams.listener import Listener
from streams.mongo import Mongo
from streams.progress import Progress

__all__ = ["Context", "Make", "consumers_of", "own_listeners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a handler is made of: the model, the database, and how far each archive has come."""

    model: Model
    mongo: Mongo
    archives: Mapping[str, Archive]
    progress: Progress


Make = Callable[[Context], Handler]


def own_listeners(named: str | None) -> list[Make]:
    """Those of `--listeners`: `module:Class`, separated by commas.

    Raises:
        click.UsageError: one of them cannot be used.
    """
    return [_imported(each.strip()) for each in (named or "").split(",") if each.strip()]


def consumers_of(
    handlers: Sequence[Handler],
    context: Context,
    hub: Hub,
    progress: Progress,
    checkpoints: Checkpoints,
    leases: Leases,
) -> tuple[tuple[Consumer, Listener], ...]:
    """Each handler with what feeds it and the lease under which it works.

    Raises:
        click.UsageError: two have one name, or one follows a collection that the model has not.
    """
    found: dict[str, tuple[Consumer, Listener]] = {}
    for handler in handlers:
        if handler.name in found:
            raise click.UsageError(f"two listeners are named {handler.name!r}: rename one of them")
        archive = context.archives.get(handler.collection)
        if archive is None:
            known = ", ".join(context.archives)
            raise click.UsageError(
                f"the listener {handler.name!r} follows the collection {handler.collection!r}, "
                f"and the model has {known}"
            )
        consumer = Consumer(
            handler,
            context.mongo,
            archive,
            hub,
            progress,
            checkpoints,
            Horizons(context.mongo),
        )
        found[handler.name] = consumer, Listener(handler.name, leases, consumer.run)
    return tuple(found.values())


def _imported(named: str) -> Make:
    module, _, name = named.partition(":")
    # As with other commands that are told a module: the console script's own path is another one.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not module or not name:
        raise click.UsageError(f"--listeners: {named!r} is not written as module:Class")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise click.UsageError(f"--listeners: {named!r} cannot be imported: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, Handler)) or isabstract(found):
        raise click.UsageError(
            f"--listeners: {named!r} is no class that derives from streams.consumer.Handler "
            "and has its `handle`"
        )
    return found
