"""A subscription from its start to the live stream: find the start, replay or take a snapshot, hand
over, follow. What of it concerns a subscriber, `resolvers.subscriptions.event_filter` says.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, Protocol

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.subscriptions.event_enrichment import Change, EventEnrichment
from revstream.resolvers.subscriptions.event_filter import EventFilter
from revstream.resolvers.subscriptions.routing_key import routing_key
from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown
from revstream.resolvers.subscriptions.snapshot import Snapshot
from revstream.resolvers.subscriptions.start import ChangeRequest, SubscriptionStarts
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.live.replay import Idle, LiveEvents, Replay
from revstream.streams.mongo.database import Mongo

__all__ = ["Changes", "SharedStream"]


class SharedStream(Protocol):
    """Group of subscriptions that receive the same messages."""

    @property
    def others(self) -> bool:
        """True if the group has members."""
        ...

    async def join(self, position: str, *, caught_up: bool) -> str | None:
        """Join the group for events after a position.

        Returns: the token after which to go on alone; None if there is no group to join.
        """
        ...


DeliveredFrom = Literal["snapshot", "replay", "live"]

# Documents or versions that all replaying subscriptions hold in memory, about; and each at least.
_READ_MOST = 20_000
_LEAST_PAGE = 20


class Changes:
    """Subscriptions to all entities.

    Attributes:
        shutdown: ends all of them.
        following: number of subscriptions, replaying or live, by collection.
        joined: number of them in a shared stream, by collection.
        delivered: changes delivered, by collection and origin.

    Args:
        quiet_s: maximum wait of a subscriber for a newer token.
        page: documents per read of a snapshot, versions per read of a replay; fewer if many
            subscriptions replay, so that clients that do not read cannot hold much memory.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        hub: Hub,
        progress: ArchiveProgress,
        *,
        quiet_s: float = 20.0,
        page: int = 500,
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._hub = hub
        self._progress = progress
        self._starts = SubscriptionStarts(mongo, progress)
        self._horizons = Horizons(mongo)
        self._completions: dict[str, EventEnrichment] = {}
        self._quiet_s = quiet_s
        self._page = page
        self._behind: set[object] = set()
        self._scope = OPEN
        self.shutdown = SubscriptionShutdown()
        self.following: Counter[str] = Counter()
        self.joined: Counter[str] = Counter()
        self.delivered: Counter[tuple[str, DeliveredFrom]] = Counter()

    def within(self, scope: Scope) -> Changes:
        """Return the service limited to the rows of one caller."""
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def changes(
        self,
        entity: Entity,
        request: ChangeRequest,
        *,
        company: SharedStream | None = None,
        shutdown: SubscriptionShutdown | None = None,
        begun: Callable[[str], None] = lambda token: None,
    ) -> AsyncGenerator[Change]:
        """Yield every change that matches, in order, without gap or duplicate. Never ends.

        Args:
            company: shared stream. It is joined at the beginning if the start lies within the ring
            buffer; else once the replay has caught up, or, without members, as soon as there are
            some. While joined, the events after a token are sent there; afterwards the
            subscription goes on here after the returned token, or, if that is None, from its own
            position. shutdown: ends it, beside the one of all.
            begun: called with the starting token once it is known; never for a start with a
            snapshot, which cannot be resumed.

        Raises:
            BadUserInput: More than one start, or an unknown cursor.
            Forbidden: The caller may not read the entity.
            ResumeTokenInvalid, HistoryLost, SlowConsumer, ArchiveBehind, Unavailable.
        """
        self._scope.read_rows(entity)
        name = entity.collection
        self.following[name] += 1
        try:
            async with aclosing(self._parts(entity, request, company, begun)) as parts:
                # It has no end.
                while True:
                    source, changes = await self.shutdown.next(parts, shutdown)
                    for change in changes:
                        self.shutdown.check()
                        if shutdown is not None:
                            shutdown.check()
                        yield change
                        if change.kind != "CHECKPOINT":
                            self.delivered[name, source] += 1
        finally:
            self.following[name] -= 1

    async def parts(
        self, entity: Entity, request: ChangeRequest
    ) -> AsyncGenerator[Sequence[Change]]:
        """Yield changes like `changes`, in batches, with checkpoints alone, for a shared stream.

        It is not counted as a subscription, and does not end by the shutdown: its members do.
        """
        self._scope.read_rows(entity)
        async with aclosing(self._parts(entity, request, None, lambda token: None)) as parts:
            async for _, changes in parts:
                self.shutdown.check()
                if changes:
                    yield changes

    def delivery_counter(self, entity: Entity) -> Callable[[int], None]:
        """Return a counter of changes that a shared stream delivers."""

        def count(changes: int) -> None:
            self.delivered[entity.collection, "live"] += changes

        return count

    async def _parts(
        self,
        entity: Entity,
        request: ChangeRequest,
        company: SharedStream | None,
        begun: Callable[[str], None],
    ) -> AsyncGenerator[tuple[DeliveredFrom, Sequence[Change]]]:
        """Yield batches of changes with their origin."""
        behind = object()
        self._behind.add(behind)
        page = max(_LEAST_PAGE, min(self._page, _READ_MOST // len(self._behind)))
        try:
            after = await self._starts.token(self._archives[entity.collection], request)
            if request.snapshot:
                at = await self._mongo.operation_time()
                snapshot = Snapshot(
                    self._mongo,
                    self._archives[entity.collection],
                    self._progress,
                    entity,
                    request,
                    self._scope.read_rows(entity),
                    at,
                    size=page,
                )
                async with aclosing(snapshot.pages()) as pages:
                    async for taken in pages:
                        yield "snapshot", taken
                after = resume_tokens.token_from_time(at)
                yield "snapshot", [Change(entity=entity, kind="CHECKPOINT", token=after)]
            if request.since is not None:
                company = None
            left: str | None = None
            here = self._hub.position if after is None else after
            if not request.snapshot:
                begun(here)
            if company is not None and here >= self._hub.ring(entity.collection).floor:
                self._behind.discard(behind)
                left = await self._joined(entity, company, here, caught_up=False)
            # Created late: nearly all of thousands of reconnecting subscriptions need none.
            followed = self._followed(entity, request, page, company, after, left)
            async with aclosing(followed) as parts:
                async for part in parts:
                    if part[0] == "live":
                        self._behind.discard(behind)
                    yield part
        finally:
            self._behind.discard(behind)

    async def _followed(
        self,
        entity: Entity,
        request: ChangeRequest,
        page: int,
        company: SharedStream | None,
        after: str | None,
        left: str | None,
    ) -> AsyncGenerator[tuple[DeliveredFrom, Sequence[Change]]]:
        """Yield changes after a token, or after the last one of the shared stream."""
        replay = Replay(
            self._archives[entity.collection],
            self._hub,
            self._progress,
            self._horizons,
            page=page,
            quiet_s=self._quiet_s,
        )
        rows = self._scope.read_rows(entity)
        completion = self._completion(entity)
        watch = EventFilter(entity, request, rows, completion, quiet_s=self._quiet_s)
        interest = routing_key(entity, request, rows)
        skip_idle = alone = False
        if company is not None:
            # Members of the group skip the token that they have reached.
            skip_idle = True
            if left is None:
                async with aclosing(replay.follow(after, interest=interest)) as parts:
                    async for part in parts:
                        caught_up = isinstance(part, Idle)
                        yield "live" if caught_up else "replay", await watch.take(part)
                        if isinstance(part, Idle):
                            after = part.token
                            break
                assert after is not None
                left = await self._joined(entity, company, after, caught_up=True)
                alone = left is None
            after = after if left is None else left
        while True:
            async with aclosing(replay.follow(after, interest=interest)) as parts:
                async for part in parts:
                    if skip_idle and isinstance(part, Idle):
                        skip_idle = False
                        continue
                    source: DeliveredFrom = (
                        "live" if isinstance(part, LiveEvents | Idle) else "replay"
                    )
                    yield source, await watch.take(part)
                    fresher = watch.fresher_token()
                    if fresher is not None:
                        yield source, [Change(entity=entity, kind="CHECKPOINT", token=fresher)]
                    if (
                        alone
                        and isinstance(part, LiveEvents)
                        and company is not None
                        and company.others
                    ):
                        # Only now: the group sends the rest of the batch.
                        after = part.events[-1].token
                        break
                else:
                    return
            skip_idle, alone = True, False
            left = await self._joined(entity, company, after, caught_up=True)
            after = after if left is None else left

    async def _joined(
        self, entity: Entity, company: SharedStream, position: str, *, caught_up: bool
    ) -> str | None:
        self.joined[entity.collection] += 1
        try:
            return await company.join(position, caught_up=caught_up)
        finally:
            self.joined[entity.collection] -= 1

    def forget(self, collection: str) -> None:
        """Evict versions that were read for subscribers."""
        self._completions.pop(collection, None)

    def _completion(self, entity: Entity) -> EventEnrichment:
        """Return the enrichment of an entity, which its subscribers share."""
        found = self._completions.get(entity.collection)
        if found is None:
            archive = self._archives[entity.collection]
            numbers = None
            if not archive.layout.keeps:
                numbers = self._progress.numbers(entity.collection)
            found = self._completions[entity.collection] = EventEnrichment(
                entity, archive, self._progress, self._horizons, numbers
            )
        return found
