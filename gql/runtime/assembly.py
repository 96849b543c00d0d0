"""Composition root: the services of a gateway are made here, in order, and nowhere else."""

from __future__ import annotations

import logging
import os
import secrets
import socket

from revstream.gql.engine.request.mutation_services import prepare_mutation_services
from revstream.gql.engine.request.services import Services
from revstream.gql.runtime.configuration.limit_setup import subscription_filters
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.runtime.listeners.consumers import consumers_of
from revstream.gql.runtime.listeners.handlers import handlers_of
from revstream.gql.runtime.listeners.recorders import recorders_of
from revstream.gql.runtime.progress_display import Report
from revstream.gql.server.fair_scheduler import FairScheduler
from revstream.model.definition import Model
from revstream.resolvers.admin.data_sample import examine_data
from revstream.resolvers.admin.stream_status import Status
from revstream.resolvers.current.documents import Current
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.resolvers.drafts.changes import ProposalChanges, proposal_topics
from revstream.resolvers.history.time_point import TimePointResolver
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.subscriptions.stream import Changes
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.indexes import referring_fields
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.coordination.deployment import deployment_tag
from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.coordination.membership import Membership
from revstream.streams.coordination.partition import model_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.factory import create_layout
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.availability import Availability
from revstream.streams.live.hub import Hub, HubOptions
from revstream.streams.live.oplog_replay import OplogReplay
from revstream.streams.maintenance.retention import Retention
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.oplog_window import OplogWindow
from revstream.streams.mongo.read_statistics import ReadStatistics
from revstream.streams.mongo.server_check import (
    check_sharding,
    check_stream,
    explain_refusal,
    inspect_server,
)
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.health import unfit_since_recorded
from revstream.streams.recording.set_aside import SetAsideEvents

__all__ = ["assemble_gateway"]

log = logging.getLogger(__name__)

# Longer than the lease of a dead recorder: another process has to take it, begin at the
# checkpoint, and reach the present.
_TAKEOVER_MARGIN_S = 15.0
_NEEDS = "recording requires"


async def assemble_gateway(
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
            log.warning("data", extra={"finding": each.text, "mend": each.mend})
    setup = CollectionSetup(mongo, model, images=settings.images)
    await setup.begin(report)
    archives = {
        each.collection: Archive(
            mongo,
            each.collection,
            create_layout(mongo, each),
            referring_fields(model, each.collection),
        )
        for each in model.entities
    }
    async with explain_refusal(mongo, _NEEDS, "readWrite"):
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
    position = resume_tokens.token_from_time(await mongo.operation_time())
    hub_options = HubOptions(
        ring_events=settings.ring_events,
        ring_bytes=settings.ring_bytes,
        backlog_events=settings.backlog_events,
        backlog_bytes=settings.backlog_bytes,
    )
    # Followed only if this process serves requests.
    topics = proposal_topics(model) if serves else {}
    hub = Hub(collections, position=position, options=hub_options, topics=topics)
    checkpoints = Checkpoints(mongo)
    progress = ArchiveProgress(
        checkpoints,
        hub,
        limit_s=settings.archive_wait_s,
        takeover_s=settings.lease_s + _TAKEOVER_MARGIN_S,
    )
    lease_options = LeaseOptions(duration_s=settings.lease_s, renew_every_s=settings.lease_s / 5)
    leases = Leases(mongo, _holder(), lease_options)
    offers = {each.collection: each.partitions for each in model.entities}
    members = Membership(mongo, leases.holder, offers, lease_options)
    live = Source(
        mongo,
        [*collections, *topics],
        before_images=True,
        sharded=server.sharded,
        expanded=server.disambiguates,
    )
    context = ListenerContext(model=model, mongo=mongo, archives=archives, progress=progress)
    recorders = (
        recorders_of(context, checkpoints, hub, live, server=server, setup=setup, report=reading)
        if settings.record
        else ()
    )
    listeners = tuple(
        LeasedTask(each.name, leases, each.run, members=members) for each in recorders
    )
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
        opened_at=position,
    )
    own_writes = OwnWrites(progress, VersionNumberCache(hub))
    # Refused at the start, and not at the first version.
    async with explain_refusal(mongo, _NEEDS, "readWrite"):
        editing = await prepare_mutation_services(
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
        changes.shutdown,
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
        services=Services(
            current=Current(mongo, archives, own_writes),
            history=VersionHistory(mongo, archives, own_writes),
            moments=TimePointResolver(mongo, archives, progress, deployment),
            live=changes,
            proposals=proposals,
            status=Status(
                model_partitions(model),
                [(each.name, each.collection) for each, _ in consumers],
                leases,
                checkpoints,
                progress,
                SetAsideEvents(mongo),
                CoverageStore(mongo),
            ),
            editing=editing,
        ),
        layouts={each.collection: each.layout for each in archives.values() if each.layout.keeps},
        recorders=recorders,
        listeners=listeners,
        retentions=tuple((each, LeasedTask(each.name, leases, each.run)) for each in retentions),
        consumers=consumers,
        failures={},
        members=members,
        subscription_filters=subscription_filters(settings),
        filter_turns=FairScheduler(1),
        read_statistics=statistics,
        oplog=OplogWindow(mongo),
        # Recorders and retentions know by themselves, or from checkpoints, how far archives are.
        follows=serves or bool(consumers),
        setup=setup,
        tasks=[],
    )


def _holder() -> str:
    """Unique to this process's life: a restarted process is another holder."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
