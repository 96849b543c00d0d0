"""Open everything that one process needs, in order, and close it in reverse: client, indexes, hub,
recorders, tasks.

The services of a gateway are made here and nowhere else. A background task that dies is logged,
makes `/readyz` fail, and is handed to `on_fatal`, which ends the process: revstream never goes on
half alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from gql.editing import Editing, prepare_editing
from gql.engine.limits.subscription_filters import SubscriptionFilters
from gql.handlers import handlers_of
from gql.listeners import Context, consumers_of
from gql.progress import Report
from gql.recording import recorders_of
from gql.settings import Settings
from gql.sharing import forget_told
from gql.turns import Turns
from model.entities import Model
from resolvers.current import Current
from resolvers.data_sample import examine_data
from resolvers.drafts.changes import ProposalChanges, proposal_topics
from resolvers.history import History
from resolvers.last_numbers import LastNumbers
from resolvers.live import Changes
from resolvers.moments import Moments
from resolvers.own_writes import OwnWrites
from resolvers.purge_watch import PurgeWatch
from resolvers.status import Status
from streams import tokens
from streams.archive import Archive
from streams.availability import Availability
from streams.changefeed.oplog_replay import OplogReplay
from streams.checkpoints import Checkpoints
from streams.consumer import Consumer
from streams.coordination.deployment import deployment_tag
from streams.coverage import Coverages
from streams.errors import GatewayError, HistoryLost, Unsuitable, reason_of
from streams.hub import Hub, HubOptions, follow
from streams.layouts.choice import layout_of
from streams.layouts.layout import Layout
from streams.lease import LeaseOptions, Leases
from streams.listener import Listener
from streams.members import Members
from streams.mongo import Mongo
from streams.partitions import partitions_in
from streams.progress import Progress
from streams.read_statistics import ReadStatistics
from streams.recorder import Recorder
from streams.recording.collection_setup import CollectionSetup
from streams.recording.health import unfit_since_recorded
from streams.recording.set_aside import SetAside
from streams.retention import Retention
from streams.server import (
    check_sharding,
    check_stream,
    inspect_server,
    permitted,
)
from streams.source import Source

__all__ = ["Gateway", "open_gateway"]

log = logging.getLogger(__name__)

# It says where it stands ten times a second, also where nothing happens.
_SILENT_MOST_S = 3.0
_STREAM = "stream"
# How long a scrape of the metrics waits for MongoDB.
_ASK_S = 1.0
# Beyond the lease of a recorder that died: until another process has asked for it, has begun where
# the checkpoint stands, and has come to now.
_TAKEOVER_MARGIN_S = 15.0
# Longer than a lease takes to be released, which a second cancellation would interrupt.
_END_S = 4.0

_NEEDS = "keeping history needs"
_UNRECORDED = "nobody records: start `revstream serve` or `revstream record`"

OnFatal = Callable[[BaseException], None]


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The services of one process, and what they say of themselves.

    Attributes:
        follows: whether the live stream is followed; what would come of it reaches nobody where
            this process serves nobody and only records.
    """

    settings: Settings
    model: Model
    deployment: str
    mongo: Mongo
    source: Source
    hub: Hub
    availability: Availability
    progress: Progress
    current: Current
    history: History
    moments: Moments
    layouts: Mapping[str, Layout]
    live: Changes
    proposals: ProposalChanges
    status: Status
    editing: Editing
    recorders: tuple[Recorder, ...]
    listeners: tuple[Listener, ...]
    retentions: tuple[tuple[Retention, Listener], ...]
    consumers: tuple[tuple[Consumer, Listener], ...]
    failures: dict[str, BaseException]
    members: Members
    subscription_filters: SubscriptionFilters
    filter_turns: Turns
    read_statistics: ReadStatistics
    follows: bool
    setup: CollectionSetup
    tasks: list[asyncio.Task[None]]
    opened_at: float = field(default_factory=time.monotonic)

    def not_ready(self) -> dict[str, str]:
        """Which parts are not ready, and why; empty where all are. That another process records is
        not among it."""
        found: dict[str, str] = {}
        if self.live.farewell.said:
            found["gateway"] = "it is shutting down"
        silent_s = time.monotonic() - self.hub.moved_at
        if self.follows and not self.source.connected:
            found["stream"] = _not_open(self.source.trouble)
        elif self.follows and silent_s > _SILENT_MOST_S:
            found["stream"] = f"MongoDB's change stream has been silent for {silent_s:.1f} s"
        for recorder, listener in zip(self.recorders, self.listeners, strict=True):
            if listener.trouble is not None:
                found[listener.name] = listener.trouble
            elif recorder.trouble is not None:
                found[listener.name] = _not_open(recorder.trouble)
        for name, failure in self.failures.items():
            found[name] = f"it has died: {reason_of(failure)}"
        return found

    def troubles(self) -> dict[str, str]:
        """Which collections this process does not record, or not whole, and which indexes are not
        there, and why; it does the rest."""
        found = {each.name: each.collection_trouble for each in self.recorders}
        recorded = {name: trouble for name, trouble in found.items() if trouble is not None}
        return recorded | self.setup.refused

    async def warnings(self) -> dict[str, str]:
        """Return what does not work anywhere, though this process serves: recorders that no process
        runs. What cannot be had soon is left out."""
        young = time.monotonic() - self.opened_at < 2 * self.settings.lease_s
        if self.settings.record and young:
            # About to begin.
            return {}
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_ASK_S):
                return dict.fromkeys(await self.status.unrecorded(), _UNRECORDED)
        return {}

    async def ask_positions(self) -> None:
        """How far the recorders of other processes have come, so that `progress` knows; what cannot
        be had soon is left as it was."""
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_ASK_S):
                await asyncio.gather(
                    *(self.progress.position(each.collection) for each in self.model.entities)
                )

    def hand_over(self) -> None:
        """Give up what other processes can do at once: recording, before those who are being served
        have been told to go."""
        for task in self.tasks:
            if task.get_name() != _STREAM:
                task.cancel()

    def end_subscriptions(self) -> int:
        """Tell those who follow the stream to resume elsewhere; returns how many there were."""
        self.live.farewell.say(
            "this gateway is shutting down; subscribe again after the last token"
        )
        return self.live.following.total() + self.proposals.following.total()


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
    """A gateway that follows the stream and, where settings say so, offers itself as recorder.

    Args:
        serves: False where nobody asks it anything: then it follows the stream only for listeners.
        report: given the steps of the start.
        reading: given how far the first readings of collections have come.

    Raises:
        Unavailable: MongoDB cannot be reached.
        Unsuitable: a standalone, too old, or not permitted.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        gateway = await _assemble(settings, model, mongo, serves, report, reading)
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
    for a server, loses a cancellation that meets a result."""
    for turn in range(3):
        for task in tasks:
            # Who was told before is on its way out, and gives its lease back there.
            if turn or not task.cancelling():
                task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=_END_S)
        if not pending:
            return
    log.error("background tasks do not end", extra={"tasks": [each.get_name() for each in pending]})


async def _assemble(
    settings: Settings,
    model: Model,
    mongo: Mongo,
    serves: bool,
    report: Report,
    reading: Report,
) -> Gateway:
    server = await inspect_server(mongo)
    check_sharding(server, experimental=settings.experimental_sharded)
    await check_stream(mongo, server)
    collections = [entity.collection for entity in model.entities]
    unfit = await unfit_since_recorded(mongo, collections)
    deployment = await deployment_tag(mongo)
    for each in await examine_data(mongo, model):
        if each.level in ("warning", "error"):
            log.warning("data", extra={"says": each.says, "mend": each.mend})
    setup = CollectionSetup(mongo, model, images=settings.images)
    await setup.begin(report)
    archives = {
        each.collection: Archive(mongo, each.collection, layout_of(mongo, each))
        for each in model.entities
    }
    async with permitted(mongo, _NEEDS, "readWrite"):
        read = [*collections, *(each.name for each in archives.values())]
        there = await mongo.existing(read)
        for archive in archives.values():
            # What a model names by mistake gets no archive either.
            if {archive.name, archive.collection} & there:
                await archive.prepare()
            if archive.collection not in unfit:
                await archive.layout.prepare(create=False)
    statistics = ReadStatistics(mongo, read)
    await statistics.refresh()
    position = tokens.moment(await mongo.operation_time())
    hub_options = HubOptions(
        ring_events=settings.ring_events,
        ring_bytes=settings.ring_bytes,
        backlog_events=settings.backlog_events,
        backlog_bytes=settings.backlog_bytes,
    )
    # Followed for those who are served, and for nothing else.
    topics = proposal_topics(model) if serves else {}
    hub = Hub(collections, position=position, options=hub_options, topics=topics)
    checkpoints = Checkpoints(mongo)
    progress = Progress(
        checkpoints,
        hub,
        limit_s=settings.archive_wait_s,
        takeover_s=settings.lease_s + _TAKEOVER_MARGIN_S,
    )
    lease_options = LeaseOptions(duration_s=settings.lease_s, renew_every_s=settings.lease_s / 5)
    leases = Leases(mongo, _holder(), lease_options)
    offers = {each.collection: each.partitions for each in model.entities}
    members = Members(mongo, leases.holder, offers, lease_options)
    live = Source(
        mongo,
        [*collections, *topics],
        before_images=True,
        sharded=server.sharded,
        expanded=server.disambiguates,
    )
    context = Context(model=model, mongo=mongo, archives=archives, progress=progress)
    recorders = (
        recorders_of(context, checkpoints, hub, live, server=server, setup=setup, report=reading)
        if settings.record
        else ()
    )
    listeners = tuple(Listener(each.name, leases, each.run, members=members) for each in recorders)
    retentions = tuple(
        Retention(
            mongo,
            archives[entity.collection],
            progress,
            entity.keep,
            name=f"retention:{entity.collection}",
            every_s=settings.retention_every_s,
        )
        for entity in model.entities
        if settings.record and entity.keep is not None
    )
    consumers = consumers_of(
        handlers_of(context, settings, deployment, checkpoints) if settings.record else [],
        context,
        hub,
        progress,
        checkpoints,
        leases,
    )
    own_writes = OwnWrites(progress, LastNumbers(hub))
    # Told now, and not when the first version is to be written.
    async with permitted(mongo, _NEEDS, "readWrite"):
        editing = await prepare_editing(
            mongo,
            model,
            archives,
            progress,
            own_writes,
            repeat_window_s=settings.repeat_window_s,
            images=settings.images,
            before_insert=setup.before_insert,
        )
    changes = Changes(mongo, archives, hub, progress, quiet_s=settings.quiet_s)
    proposals = ProposalChanges(
        mongo,
        hub,
        OplogReplay(
            mongo,
            hub,
            sharded=server.sharded,
            expanded=server.disambiguates,
            quiet_s=settings.quiet_s,
        ),
        progress,
        changes.farewell,
        editing.drafts,
        editing.comments,
        quiet_s=settings.quiet_s,
    )
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
        source=live,
        hub=hub,
        availability=Availability(mongo, live, hub),
        progress=progress,
        current=Current(mongo, archives, own_writes),
        history=History(mongo, archives, own_writes),
        moments=Moments(mongo, archives, progress, deployment),
        layouts={each.collection: each.layout for each in archives.values() if each.layout.keeps},
        live=changes,
        proposals=proposals,
        status=Status(
            partitions_in(model),
            [(each.name, each.collection) for each, _ in consumers],
            leases,
            checkpoints,
            progress,
            SetAside(mongo),
            Coverages(mongo),
        ),
        editing=editing,
        recorders=recorders,
        listeners=listeners,
        retentions=tuple((each, Listener(each.name, leases, each.run)) for each in retentions),
        consumers=consumers,
        failures={},
        members=members,
        subscription_filters=settings.subscription_filters(),
        filter_turns=Turns(1),
        read_statistics=statistics,
        # Recorders and retentions know by themselves, or from checkpoints, how far archives are.
        follows=serves or bool(consumers),
        setup=setup,
        tasks=[],
    )


def _background(gateway: Gateway) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    async def follow_stream() -> None:
        while True:
            try:
                await follow(gateway.source, gateway.hub, gateway.layouts)
            except HistoryLost as exc:
                # Longer away than the oplog reaches: those who were attached resume from the
                # archive.
                log.error("the live stream begins anew", extra={"reason": exc.message})
                now = await gateway.mongo.operation_time()
                gateway.hub.restart(tokens.moment(now))

    beside = [*gateway.retentions, *gateway.consumers]
    listeners = [*gateway.listeners, *(listener for _, listener in beside)]
    tasks: list[tuple[str, Callable[[], Awaitable[None]]]]
    tasks = [(each.name, each.run) for each in listeners]
    if gateway.follows:
        tasks[:0] = [(_STREAM, follow_stream), ("availability", gateway.availability.watch)]
        tasks.append(("read statistics", gateway.read_statistics.run))
    forget = {
        each.collection: partial(_forget, gateway, each.collection)
        for each in gateway.model.entities
    }
    tasks.append(("purges", PurgeWatch(gateway.mongo, forget).run))
    return [*tasks, ("members", gateway.members.run)] if gateway.listeners else tasks


def _forget(gateway: Gateway, collection: str) -> None:
    """Let go of what this process holds of a collection's documents."""
    gateway.hub.forget(collection)
    gateway.proposals.forget()
    gateway.live.forget(collection)
    gateway.editing.standing.forget(collection)
    gateway.progress.numbers(collection).clear()
    forget_told()


async def _watched(name: str, work: Awaitable[None], gateway: Gateway, on_fatal: OnFatal) -> None:
    try:
        await work
    except Exception as exc:
        # A refusal by MongoDB says all that there is to say; anything else is a fault of ours.
        known = isinstance(exc, Unsuitable)
        log.error(
            "background task died",
            extra={"task": name, "reason": reason_of(exc)},
            exc_info=None if known else exc,
        )
        gateway.failures[name] = exc
        on_fatal(exc)


def _not_open(reason: str | None) -> str:
    said = "MongoDB's change stream is not open"
    return said if reason is None else f"{said}: {reason}"


def _holder() -> str:
    """Unique to this process's life: a restarted process is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
