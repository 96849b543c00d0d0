"""Open everything that one process needs, in order, and close it in reverse: client, indexes, hub,
recorders, tasks.

The services of a gateway are made here and nowhere else. A background task that dies is logged,
makes `/readyz` fail, and is handed to `on_fatal`, which ends the process: revstream never goes on
half alive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gql.editing import Editing, prepare_editing
from gql.settings import Settings
from model.entities import Model
from resolvers.current import Current
from resolvers.history import History
from resolvers.live import Changes
from resolvers.moments import Moments
from resolvers.own_writes import OwnWrites
from resolvers.status import Status
from streams import tokens
from streams.archive import Archive
from streams.checkpoints import Checkpoints
from streams.errors import GatewayError, HistoryLost, Unavailable, Unsuitable
from streams.hub import Hub, HubOptions, follow
from streams.indexes import create_indexes
from streams.lease import LeaseOptions, Leases
from streams.listener import Listener
from streams.mongo import Mongo
from streams.progress import Progress
from streams.recorder import Recorder
from streams.server import (
    check_stream,
    deployment_tag,
    enable_images,
    inspect_server,
    permitted,
)
from streams.source import Source, SourceOptions

__all__ = ["Gateway", "listener_name", "open_gateway"]

log = logging.getLogger(__name__)

# More documents occur more than once in a larger batch, and only the last of each is closed in the
# archive: measured, a fifth less of mongod's time per version than with 1,000.
_RECORDER_BATCHES = SourceOptions(batch_events=3000)
# It says where it stands ten times a second, also where nothing happens.
_SILENT_MOST_S = 3.0
# Longer than a lease takes to be released, which a second cancellation would interrupt.
_END_S = 4.0

Report = Callable[[str, int, int], None]
OnFatal = Callable[[BaseException], None]


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The services of one process, and what they say of themselves."""

    settings: Settings
    model: Model
    deployment: str
    mongo: Mongo
    source: Source
    hub: Hub
    progress: Progress
    current: Current
    history: History
    moments: Moments
    live: Changes
    status: Status
    editing: Editing
    recorders: tuple[Recorder, ...]
    listeners: tuple[Listener, ...]
    failures: list[BaseException]

    def not_ready(self) -> dict[str, str]:
        """Which parts are not ready, and why; empty where all are."""
        found = {f"task {n}": _reason(failure) for n, failure in enumerate(self.failures)}
        silent_s = time.monotonic() - self.hub.moved_at
        if not self.source.connected:
            found["stream"] = "MongoDB's change stream is not open"
        elif silent_s > _SILENT_MOST_S:
            found["stream"] = f"MongoDB's change stream has been silent for {silent_s:.1f} s"
        return found

    def end_subscriptions(self) -> int:
        """Tell those who follow the stream to resume elsewhere; returns how many there were."""
        count = self.hub.statistics()["subscribers"]
        self.hub.end_all(
            Unavailable("this gateway is shutting down; subscribe again after the last token")
        )
        return count

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Counters of every part, by part."""
        found: dict[str, dict[str, Any]] = {"hub": self.hub.statistics()}
        for recorder, listener in zip(self.recorders, self.listeners, strict=True):
            found[recorder.name] = {
                **recorder.statistics(),
                "state": listener.state,
                "lease_changes": listener.changes,
                "lag_s": self.progress.lag_s(recorder.collection),
            }
        return found


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    model: Model,
    uri: str,
    database: str,
    *,
    report: Report = lambda text, done, total: None,
    on_fatal: OnFatal = lambda failure: None,
) -> AsyncIterator[Gateway]:
    """A gateway that follows the stream and, where settings say so, offers itself as recorder.

    Raises:
        Unavailable: MongoDB cannot be reached.
        Unsuitable: a standalone, too old, or not permitted.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        gateway = await _assemble(settings, model, mongo, report)
        watched = [
            asyncio.create_task(_watched(name, work(), gateway, on_fatal), name=name)
            for name, work in _background(gateway)
        ]
        try:
            yield gateway
        finally:
            gateway.end_subscriptions()
            await _end(watched)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them, more than once if need be: `wait_for` of Python 3.11, with which PyMongo waits
    for a server, loses a cancellation that meets a result."""
    for _ in range(3):
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=_END_S)
        if not pending:
            return
    log.error("background tasks do not end", extra={"tasks": [each.get_name() for each in pending]})


async def _assemble(settings: Settings, model: Model, mongo: Mongo, report: Report) -> Gateway:
    server = await inspect_server(mongo)
    await check_stream(mongo)
    collections = [entity.collection for entity in model.entities]
    deployment = await deployment_tag(mongo)
    if settings.images:
        await enable_images(mongo, collections)
    for refused in await create_indexes(mongo, model, report):
        log.error(
            "index refused",
            extra={
                "collection": refused.collection,
                "fields": refused.fields,
                "reason": refused.reason,
            },
        )
    archives = {name: Archive(mongo, name) for name in collections}
    async with permitted(mongo, "keeping history needs", "readWrite"):
        for archive in archives.values():
            await archive.prepare()
    position = tokens.moment(await mongo.operation_time())
    hub_options = HubOptions(
        ring_events=settings.ring_events,
        ring_bytes=settings.ring_bytes,
        backlog_events=settings.backlog_events,
    )
    hub = Hub(collections, position=position, options=hub_options)
    checkpoints = Checkpoints(mongo)
    progress = Progress(checkpoints, hub, listener=listener_name, limit_s=settings.archive_wait_s)
    leases = Leases(
        mongo,
        _holder(),
        LeaseOptions(duration_s=settings.lease_s, renew_every_s=settings.lease_s / 5),
    )
    recorders = tuple(
        Recorder(
            mongo,
            archives[entity.collection],
            Source(
                mongo,
                [entity.collection],
                before_images=False,
                sharded=server.sharded,
                options=_RECORDER_BATCHES,
            ),
            checkpoints,
            progress,
            name=listener_name(entity.collection),
            version_field=entity.version,
        )
        for entity in model.entities
        if settings.record
    )
    listeners = tuple(Listener(each.name, leases, each.run) for each in recorders)
    names = [(listener_name(name), name) for name in collections]
    own_writes = OwnWrites(progress)
    log.info(
        "connected",
        extra={
            "mongodb": server.version,
            "database": mongo.name,
            "driver": settings.driver,
            "deployment": deployment,
        },
    )
    return Gateway(
        settings=settings,
        model=model,
        deployment=deployment,
        mongo=mongo,
        source=Source(mongo, collections, before_images=True, sharded=server.sharded),
        hub=hub,
        progress=progress,
        current=Current(mongo, archives, own_writes),
        history=History(mongo, archives, own_writes),
        moments=Moments(mongo, archives, progress, deployment),
        live=Changes(mongo, archives, hub, progress, quiet_s=settings.quiet_s),
        status=Status(names, leases, checkpoints, progress),
        editing=await prepare_editing(
            mongo,
            model,
            archives,
            progress,
            own_writes,
            repeat_window_s=settings.repeat_window_s,
        ),
        recorders=recorders,
        listeners=listeners,
        failures=[],
    )


def _background(gateway: Gateway) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    async def follow_stream() -> None:
        while True:
            try:
                await follow(gateway.source, gateway.hub)
            except HistoryLost as exc:
                # Longer away than the oplog reaches: those who were attached resume from the
                # archive.
                log.error("the live stream begins anew", extra={"reason": exc.message})
                now = await gateway.mongo.operation_time()
                gateway.hub.restart(tokens.moment(now))

    return [("stream", follow_stream), *((each.name, each.run) for each in gateway.listeners)]


async def _watched(name: str, work: Awaitable[None], gateway: Gateway, on_fatal: OnFatal) -> None:
    try:
        await work
    except Exception as exc:
        # A refusal by MongoDB says all that there is to say; anything else is a fault of ours.
        known = isinstance(exc, Unsuitable)
        log.error(
            "background task died",
            extra={"task": name, "reason": _reason(exc)},
            exc_info=None if known else exc,
        )
        gateway.failures.append(exc)
        on_fatal(exc)


def _reason(failure: BaseException) -> str:
    """For everybody to read: only our own messages are known to tell no secret."""
    return failure.message if isinstance(failure, GatewayError) else type(failure).__name__


def listener_name(collection: str) -> str:
    return f"recorder:{collection}"


def _holder() -> str:
    """Unique to this process's life: a restarted process is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
