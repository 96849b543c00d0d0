"""Lifecycle of a gateway: open its services, and close them in reverse order.

If a background task dies, the error is logged, `/readyz` fails, and `on_fatal` ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from revstream.gql.runtime.assembly import assemble_gateway
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.gateway import STREAM, Gateway
from revstream.gql.runtime.progress_display import Report
from revstream.gql.subscriptions.broadcast_group import clear_recent_events
from revstream.model.definition import Model
from revstream.resolvers.admin.purge_watch import PurgeWatch
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost, Unsuitable, reason_from_error
from revstream.streams.live.hub import publish_source
from revstream.streams.mongo.database import Mongo

__all__ = ["open_gateway"]

log = logging.getLogger(__name__)

# Longer than a lease takes to be released, which a second cancellation would interrupt.
_END_S = 4.0
OnFatal = Callable[[BaseException], None]


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    model: Model,
    uri: str,
    database: str,
    *,
    serves: bool = True,
    report: Report = lambda text, done, total: None,
    reading: Report = lambda collection, read, total: None,
    on_fatal: OnFatal = lambda failure: None,
) -> AsyncIterator[Gateway]:
    """Open a gateway that follows the stream and, where the settings say so, competes for the
    leases.

    Args:
        serves: False for a process without an API, which follows the stream only for listeners.
        report: called with the steps of the start.
        reading: called with the progress of first readings.

    Raises:
        Unavailable: MongoDB cannot be reached.
        Unsuitable: A standalone server, too old, or not permitted.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        gateway = await assemble_gateway(settings, model, mongo, serves, report, reading)
        gateway.tasks.extend(
            asyncio.create_task(_watched(name, work(), gateway, on_fatal), name=name)
            for name, work in _background(gateway)
        )
        try:
            yield gateway
        finally:
            gateway.end_subscriptions()
            await _end(gateway.tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them, more than once if need be: `wait_for` of Python 3.11, with which PyMongo waits
    for a server, loses a cancellation that meets a result.
    """
    for turn in range(3):
        for task in tasks:
            # Listeners that were cancelled earlier release their leases while they end.
            if turn or not task.cancelling():
                task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=_END_S)
        if not pending:
            return
    log.error("background tasks do not end", extra={"tasks": [each.get_name() for each in pending]})


def _background(gateway: Gateway) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    async def follow_stream() -> None:
        while True:
            try:
                await publish_source(gateway.source, gateway.hub, gateway.layouts)
            except HistoryLost as exc:
                # Longer away than the oplog reaches: those who were attached resume from the
                # archive.
                log.error("the live stream begins anew", extra={"reason": exc.message})
                now = await gateway.mongo.operation_time()
                gateway.hub.restart(resume_tokens.token_from_time(now))

    beside = [*gateway.retentions, *gateway.consumers]
    listeners = [*gateway.listeners, *(listener for _, listener in beside)]
    tasks: list[tuple[str, Callable[[], Awaitable[None]]]]
    tasks = [(each.name, each.run) for each in listeners]
    if gateway.follows:
        tasks[:0] = [(STREAM, follow_stream), ("availability", gateway.availability.watch)]
        tasks.append(("read statistics", gateway.read_statistics.run))
    forget = {
        each.collection: partial(_forget, gateway, each.collection)
        for each in gateway.model.entities
    }
    tasks.append(("purges", PurgeWatch(gateway.mongo, forget).run))
    return [*tasks, ("members", gateway.members.run)] if gateway.listeners else tasks


def _forget(gateway: Gateway, collection: str) -> None:
    """Evict the documents of a collection from the caches of this process."""
    gateway.hub.drop_events(collection)
    gateway.services.proposals.forget()
    gateway.services.live.forget(collection)
    gateway.services.editing.expected_versions.forget(collection)
    gateway.progress.numbers(collection).clear()
    clear_recent_events()


async def _watched(name: str, work: Awaitable[None], gateway: Gateway, on_fatal: OnFatal) -> None:
    try:
        await work
    except Exception as exc:
        # A refusal by MongoDB says all that there is to say; anything else is a fault of ours.
        known = isinstance(exc, Unsuitable)
        log.error(
            "background task died",
            extra={"task": name, "reason": reason_from_error(exc)},
            exc_info=None if known else exc,
        )
        gateway.failures[name] = exc
        on_fatal(exc)
