"""A subscription from its start to the live stream: find the start, replay or take a snapshot, hand
over, follow.

`where` means the same to a query and to a change: the same filter, as a predicate. `transition`
tells what a change means to
it: ENTER, STAY or LEAVE; what touches no matching document, before or after, is not sent.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bson import Timestamp

from model.entities import Entity
from resolvers.completion import Change, Completion, Needs
from resolvers.dates import date_text
from resolvers.errors import BadUserInput
from resolvers.filters import Condition
from resolvers.matching import compile_predicate
from resolvers.queries import to_query
from streams import tokens
from streams.archive import Archive
from streams.cursors import Cursors
from streams.documents import Document
from streams.errors import ResumeTokenInvalid
from streams.hub import Hub
from streams.mongo import Mongo
from streams.progress import Progress
from streams.replay import Caught, Live, Part, Quiet, Replay, Replayed

__all__ = ["ChangeRequest", "Changes"]

Predicate = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """What a client subscribes to.

    Args:
        id: the document's `_id`, as stored.
        operations: as the archive names them; None: all.
        after: a token without its deployment tag. One of `after`, `since`, `cursor`, or `snapshot`,
            or none: from now on.
        owner: whose cursors `cursor` names.
    """

    id: Any = None
    where: Condition | None = None
    operations: frozenset[str] | None = None
    after: str | None = None
    since: datetime | None = None
    cursor: str | None = None
    owner: str = ""
    snapshot: bool = False
    needs_version: bool = False
    needs_before: bool = False
    needs_author: bool = False


class Changes:
    """Subscriptions to all entities.

    Args:
        quiet_s: the longest that a subscriber waits for a fresher token.
        page: documents per read of a snapshot, versions per read of a replay.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        hub: Hub,
        progress: Progress,
        *,
        quiet_s: float = 20.0,
        page: int = 500,
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._hub = hub
        self._progress = progress
        self._cursors = Cursors(mongo)
        self._completions: dict[str, Completion] = {}
        self._quiet_s = quiet_s
        self._page = page

    async def changes(self, entity: Entity, request: ChangeRequest) -> AsyncGenerator[Change]:
        """Every change that matches, in order, without gap or duplicate. Never ends.

        Raises:
            BadUserInput: more than one place to start from, or a cursor that nobody saved.
            ResumeTokenInvalid, HistoryLost, SlowConsumer, ArchiveBehind, Unavailable.
        """
        _check_one_start(request)
        archive = self._archives[entity.collection]
        after = await self._start(archive, request)
        if request.snapshot:
            at = await self._mongo.operation_time()
            async for change in self._snapshot(entity, request, at):
                yield change
            after = tokens.moment(at)
            yield Change(entity=entity, kind="CHECKPOINT", token=after)
        replay = Replay(archive, self._hub, self._progress, page=self._page, quiet_s=self._quiet_s)
        watch = _Watch(entity, request, self._completion(entity))
        async with aclosing(replay.follow(after, key=request.id)) as parts:
            async for part in parts:
                for change in await watch.take(part):
                    yield change
                fresher = watch.fresher_token(self._quiet_s)
                if fresher is not None:
                    yield Change(entity=entity, kind="CHECKPOINT", token=fresher)

    def _completion(self, entity: Entity) -> Completion:
        """One per entity, so that subscribers share what they look up."""
        found = self._completions.get(entity.collection)
        if found is None:
            archive = self._archives[entity.collection]
            found = self._completions[entity.collection] = Completion(
                entity, archive, self._progress
            )
        return found

    async def _start(self, archive: Archive, request: ChangeRequest) -> str | None:
        if request.cursor is not None:
            token = await self._cursors.load(request.owner, request.cursor)
            if token is None:
                raise BadUserInput(f"no cursor named {request.cursor!r} was saved")
            return token
        if request.after is not None:
            await self._check_reached(request.after)
            return tokens.resumable(request.after)
        if request.since is not None:
            return await self._since(archive, request.since)
        return None

    async def _check_reached(self, token: str) -> None:
        """A token of the future is of a history that is no more, as where the database was restored
        from a backup: what it stands behind will never come.
        """
        if token <= self._hub.position:
            return
        at, now = tokens.cluster_time(token), await self._mongo.operation_time()
        if at > now:
            raise ResumeTokenInvalid(
                f"this resume token stands at {at.as_datetime():%F %T}Z ({at.inc}), and the "
                f"database has only reached {now.as_datetime():%F %T}Z ({now.inc}); "
                "take a new one from here"
            )

    async def _since(self, archive: Archive, since: datetime) -> str:
        """A token at or shortly before a moment: `_Watch` passes over what is earlier by the wall
        clock.

        A moment before the archive's beginning is its beginning: what was there before comes as
        BASELINE. One that is soon to come is waited for: clients' clocks differ.
        """
        clock, now = await self._mongo.clock()
        if since > clock + timedelta(seconds=_AHEAD_MOST_S):
            raise BadUserInput(
                f"since: {date_text(since)} lies in the future: "
                f"the database's clock says {date_text(clock)}",
                argument="since",
            )
        earlier = max(0, int(since.timestamp()) - _CLOCK_SLACK_S)
        token = min(tokens.time_prefix(Timestamp(earlier, 0)), tokens.moment(now))
        checkpoint = await self._progress.checkpoint(archive.collection)
        return token if checkpoint is None else max(token, checkpoint.start)

    async def _snapshot(
        self, entity: Entity, request: ChangeRequest, at: Timestamp
    ) -> AsyncGenerator[Change]:
        """The matching documents as they were at one cluster time, in `_id` order."""
        query: Document = {} if request.where is None else to_query(request.where)
        if request.id is not None:
            query = {"$and": [{"_id": request.id}, query]}
        token = tokens.unfinished(at)
        wall = at.as_datetime()
        pages = self._mongo.pages(
            entity.collection, query, sort=[("_id", 1)], size=self._page, at=at
        )
        async with aclosing(pages) as opened:
            async for documents in opened:
                numbers = await self._numbers(entity, documents, at, request.needs_version)
                for document, number in zip(documents, numbers, strict=True):
                    yield Change(
                        entity=entity,
                        kind="SNAPSHOT",
                        token=token,
                        transition="ENTER",
                        document_id=document["_id"],
                        version=number,
                        at=wall,
                        document=document,
                    )

    async def _numbers(
        self, entity: Entity, documents: Sequence[Document], at: Timestamp, needed: bool
    ) -> list[int | None]:
        if not needed:
            return [None] * len(documents)
        await self._progress.wait(entity.collection, tokens.moment(at))
        found = await self._archives[entity.collection].newest(
            [{"key": each["_id"], "at": at} for each in documents], limit=1, projection={"v": 1}
        )
        by_index = {record["wanted"]: record["v"] for record in found}
        return [by_index.get(n) for n in range(len(documents))]


# How far a primary's wall clock may lag behind the cluster time that it hands out.
_CLOCK_SLACK_S = 2
# How far in the future `since` may lie.
_AHEAD_MOST_S = 5


class _Watch:
    """One subscription's view of what replay brings: filter, transition, and the token it could
    hold."""

    def __init__(self, entity: Entity, request: ChangeRequest, completion: Completion) -> None:
        self._entity = entity
        self._request = request
        self._completion = completion
        self._matches: Predicate | None = (
            None if request.where is None else compile_predicate(request.where)
        )
        self._needs = Needs(
            version=request.needs_version,
            before=request.needs_before or request.where is not None,
            author=request.needs_author,
        )
        self._since = request.since
        self._token: str | None = None
        self._sent_at = time.monotonic()

    async def take(self, part: Part) -> list[Change]:
        """The changes of a part that concern this subscription."""
        if isinstance(part, Quiet):
            self._sent_at = time.monotonic()
            self._token = None
            return [Change(entity=self._entity, kind="CHECKPOINT", token=part.token)]
        if isinstance(part, Replayed):
            made = await self._completion.of_records(part.records, self._needs)
        else:
            assert isinstance(part, Caught | Live)
            made = await self._completion.of_events(
                part.events, self._needs, replayed=isinstance(part, Caught)
            )
        if made:
            self._token = made[-1].token
        kept = [judged for each in made if (judged := self._judged(each)) is not None]
        if kept:
            self._sent_at = time.monotonic()
            if kept[-1].token == self._token:
                self._token = None
        return kept

    def fresher_token(self, quiet_s: float) -> str | None:
        """The last token passed over, once nothing was sent for so long."""
        if self._token is None or time.monotonic() - self._sent_at < quiet_s:
            return None
        token, self._token = self._token, None
        self._sent_at = time.monotonic()
        return token

    def _judged(self, change: Change) -> Change | None:
        if self._since is not None:
            if change.at is not None and change.at < self._since:
                return None
            # Only the beginning is judged by the wall clock; from there on the stream's order
            # counts.
            self._since = None
        operations = self._request.operations
        if operations is not None and change.operation not in operations:
            return None
        transition = self._transition(change)
        return None if transition is None else replace(change, transition=transition)

    def _transition(self, change: Change) -> str | None:
        if self._matches is None:
            if change.operation == "DELETE":
                return "LEAVE"
            return "ENTER" if change.operation in ("INSERT", "BASELINE") else "STAY"
        before = change.before is not None and self._matches(change.before)
        after = change.document is not None and self._matches(change.document)
        if after:
            return "STAY" if before else "ENTER"
        return "LEAVE" if before else None


def _check_one_start(request: ChangeRequest) -> None:
    given = [
        name
        for name in ("after", "since", "cursor", "snapshot")
        if getattr(request, name) not in (None, False)
    ]
    if len(given) > 1:
        raise BadUserInput(
            "give one place to start from: after, since, cursor or snapshot; "
            f"got {' and '.join(given)}"
        )
