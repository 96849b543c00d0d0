"""Gateway: the services of one process, and their state of health."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.gql.engine.request.services import Services
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.server.fair_scheduler import FairScheduler
from revstream.model.definition import Model
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.coordination.membership import Membership
from revstream.streams.core.errors import GatewayError, reason_from_error
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.listeners.consumer import Consumer
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.availability import Availability
from revstream.streams.live.hub import Hub
from revstream.streams.maintenance.retention import Retention
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.oplog_window import OplogWindow
from revstream.streams.mongo.read_statistics import ReadStatistics
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.recorder import Recorder

__all__ = ["STREAM", "Gateway"]

STREAM = "stream"
"""Name of the task that follows the live stream."""

# It says where it stands ten times a second, also where nothing happens.
_SILENT_MOST_S = 3.0
# How long a scrape of the metrics waits for MongoDB.
_ASK_S = 1.0
_UNRECORDED = "no process records it; start `revstream serve` or `revstream record`"


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Services of one process, and their state.

    Attributes:
        follows: whether the live stream is followed, which a process that only records need not do.
    """

    settings: Settings
    model: Model
    deployment: str
    mongo: Mongo
    source: Source
    hub: Hub
    availability: Availability
    progress: ArchiveProgress
    services: Services
    layouts: Mapping[str, Layout]
    recorders: tuple[Recorder, ...]
    listeners: tuple[LeasedTask, ...]
    retentions: tuple[tuple[Retention, LeasedTask], ...]
    consumers: tuple[tuple[Consumer, LeasedTask], ...]
    failures: dict[str, BaseException]
    members: Membership
    subscription_filters: SubscriptionFilters
    filter_turns: FairScheduler
    read_statistics: ReadStatistics
    oplog: OplogWindow
    follows: bool
    setup: CollectionSetup
    tasks: list[asyncio.Task[None]]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    opened_at: float = field(default_factory=time.monotonic)

    def not_ready(self) -> dict[str, str]:
        """Parts that are not ready, with the reason; empty if all are ready.

        A recorder that runs in another process is no reason.
        """
        found: dict[str, str] = {}
        if self.stopping.is_set():
            found["gateway"] = "shutting down"
        silent_s = time.monotonic() - self.hub.moved_at
        if self.follows and not self.source.connected:
            found["stream"] = _not_open(self.source.trouble)
        elif self.follows and silent_s > _SILENT_MOST_S:
            found["stream"] = (
                f"MongoDB's change stream: silent for {silent_s:.1f} s, maximum is "
                f"{_SILENT_MOST_S:g} s"
            )
        for recorder, listener in zip(self.recorders, self.listeners, strict=True):
            if listener.trouble is not None:
                found[listener.name] = listener.trouble
            elif recorder.trouble is not None:
                found[listener.name] = _not_open(recorder.trouble)
        for name, failure in self.failures.items():
            found[name] = f"died: {reason_from_error(failure)}"
        return found

    def troubles(self) -> dict[str, str]:
        """Collections that are not recorded completely and indexes that are missing, with the
        reason.
        """
        found = {each.name: each.collection_trouble for each in self.recorders}
        recorded = {name: trouble for name, trouble in found.items() if trouble is not None}
        return recorded | self.setup.refused

    async def warnings(self) -> dict[str, str]:
        """Return what does not work anywhere, though this process serves: recorders that no process
        runs. What cannot be had soon is left out.
        """
        young = time.monotonic() - self.opened_at < 2 * self.settings.lease_s
        if self.settings.record and young:
            # About to begin.
            return {}
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_ASK_S):
                return dict.fromkeys(await self.services.status.unrecorded(), _UNRECORDED)
        return {}

    async def ask_positions(self) -> None:
        """Read the checkpoints of other recorders into `progress`, and the oplog's window, within a
        short time.
        """
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(_ASK_S):
                await asyncio.gather(
                    self.oplog.refresh(),
                    *(self.progress.position(each.collection) for each in self.model.entities),
                )

    def hand_over(self) -> None:
        """Be no longer ready, and release the leases, so that other processes record before the
        subscriptions end here.
        """
        self.stopping.set()
        for task in self.tasks:
            if task.get_name() != STREAM:
                task.cancel()

    def end_subscriptions(self) -> int:
        """End all subscriptions so that they resume elsewhere. Returns their number."""
        self.services.live.shutdown.begin(
            "the gateway is shutting down; subscribe again after the last token"
        )
        return self.services.live.following.total() + self.services.proposals.following.total()


def _not_open(reason: str | None) -> str:
    said = "MongoDB's change stream is not open"
    return said if reason is None else f"{said}: {reason}"
