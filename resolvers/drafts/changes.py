"""Subscriptions to drafts and comments: of one document, one type, or all types.

They follow the live stream of the process, as those to documents do. What was missed is read from
the oplog, since no versions are made of drafts and comments.
Source: docs/decisions/0043-proposal-subscriptions.md.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from revstream.model.definition import Model
from revstream.resolvers.access.cluster_time import ClusterTime
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.drafts.comments import Comments
from revstream.resolvers.drafts.store import Drafts
from revstream.resolvers.drafts.watch import (
    ProposalChange,
    ProposalKind,
    ProposalRequest,
    ProposalWatch,
)
from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown
from revstream.streams.changefeed.routing import EVERYTHING, Interest
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.live.oplog_replay import OplogReplay
from revstream.streams.mongo.database import Mongo

__all__ = ["ProposalChanges", "proposal_topics"]

# No collection has such a name.
_TOPICS: Mapping[ProposalKind, str] = {"drafts": "$drafts", "comments": "$comments"}


def proposal_topics(model: Model) -> dict[str, str]:
    """Return the collections of drafts and comments, each with its topic of the hub: those of all
    types are in one order.
    """
    return {
        f"{entity.collection}.{kind}": topic
        for entity in model.entities
        for kind, topic in _TOPICS.items()
    }


class ProposalChanges:
    """Subscriptions to drafts and comments.

    Args:
        shutdown: ends all of them.
        quiet_s: maximum wait for a newer token.

    Attributes:
        following: number of subscriptions, by topic.
    """

    def __init__(
        self,
        mongo: Mongo,
        hub: Hub,
        replay: OplogReplay,
        progress: ArchiveProgress,
        shutdown: SubscriptionShutdown,
        drafts: Drafts,
        comments: Comments,
        *,
        quiet_s: float = 20.0,
    ) -> None:
        self._mongo = mongo
        self._hub = hub
        self._replay = replay
        self._cluster_time = ClusterTime(mongo, progress)
        self._shutdown = shutdown
        self._drafts = drafts
        self._comments = comments
        self._quiet_s = quiet_s
        self._scope = OPEN
        self.following: Counter[str] = Counter()

    def within(self, scope: Scope, drafts: Drafts, comments: Comments) -> ProposalChanges:
        """Return the same for one caller.

        Args:
            drafts, comments: within the same.
        """
        limited = copy.copy(self)
        limited._scope, limited._drafts, limited._comments = scope, drafts, comments
        return limited

    def forget(self) -> None:
        """Evict events from memory, since their records may have been purged."""
        for topic in _TOPICS.values():
            self._hub.drop_events(topic)

    async def changes(
        self,
        request: ProposalRequest,
        *,
        shutdown: SubscriptionShutdown | None = None,
        begun: Callable[[str], None] = lambda token: None,
    ) -> AsyncGenerator[ProposalChange]:
        """Yield every change that matches, in order, without gap or duplicate. Never ends.

        Args:
            shutdown: ends it, beside the one of all.
            begun: called with the starting token.

        Raises:
            Forbidden: The caller may not read one of the entities.
            ResumeTokenInvalid, HistoryLost, SlowConsumer, Unavailable.
        """
        topic = _TOPICS[request.kind]
        self.following[topic] += 1
        try:
            async with aclosing(self._parts(topic, request, begun)) as parts:
                # It has no end.
                while True:
                    change = await self._shutdown.next(parts, shutdown)
                    yield change
        finally:
            self.following[topic] -= 1

    async def _parts(
        self, topic: str, request: ProposalRequest, begun: Callable[[str], None]
    ) -> AsyncGenerator[ProposalChange]:
        limited = {each.name for each in request.entities if self._scope.read_rows(each).limits}
        proposals = self._drafts if request.kind == "drafts" else self._comments
        watch = ProposalWatch(
            self._mongo,
            request,
            proposals.parse,
            proposals.visible,
            frozenset(limited),
            quiet_s=self._quiet_s,
        )
        if request.after is not None:
            await self._cluster_time.check_reached(request.after)
            resume_tokens.require_resumable(request.after)
        begun(self._hub.position if request.after is None else request.after)
        matches = request.predicate()
        followed = self._replay.follow(
            topic,
            list(request.collections),
            request.after,
            caller=request.caller,
            interest=EVERYTHING if matches is None else Interest(filter=matches),
        )
        async with aclosing(followed) as parts:
            async for part in parts:
                async with aclosing(watch.take(part)) as taken:
                    async for changes in taken:
                        for change in changes:
                            yield change
                if watch.lost is not None:
                    raise watch.lost
