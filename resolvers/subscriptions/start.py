"""Request of a subscription, and its start: after a token, a moment, a saved cursor, or now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bson import Timestamp

from revstream.resolvers.access.cluster_time import ClusterTime
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.parser import Condition
from revstream.resolvers.subscriptions.saved_cursors import SavedCursors
from revstream.resolvers.values.dates import date_text
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo

__all__ = ["ChangeRequest", "SubscriptionStarts", "without_received_snapshot"]

# Maximum lag of a primary's wall clock after its cluster time.
_CLOCK_SLACK_S = 2
# How far in the future `since` may lie.
_AHEAD_MOST_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """Arguments of a subscription.

    Args:
        ids: the document's `_id`, in each stored form; none: all documents.
        operations: as the archive names them; None: all.
        after: a token without its deployment tag. One of `after`, `since`, `cursor`, or `snapshot`,
            or none: from now on (`without_received_snapshot`).
        owner: owner of the cursor that `cursor` names.
    """

    ids: tuple[Any, ...] = ()
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


class SubscriptionStarts:
    """Starting tokens of subscriptions."""

    def __init__(self, mongo: Mongo, progress: ArchiveProgress) -> None:
        self._mongo = mongo
        self._cluster_time = ClusterTime(mongo, progress)
        self._progress = progress
        self._cursors = SavedCursors(mongo, progress)

    async def token(self, archive: Archive, request: ChangeRequest) -> str | None:
        """Return the starting token of a subscription; None: from now on.

        Raises:
            BadUserInput: More than one start, an unknown cursor, or a moment of the future.
            Unauthenticated: A cursor of a caller without a name.
            ResumeTokenInvalid: A token of a lost history.
        """
        _check_one_start(request)
        if request.cursor is not None:
            return await self._cursors.load(request.owner, request.cursor)
        if request.after is not None:
            await self._cluster_time.check_reached(request.after)
            return resume_tokens.require_resumable(request.after)
        if request.since is not None:
            return await self._since(archive, request.since)
        return None

    async def _since(self, archive: Archive, since: datetime) -> str:
        """Return a token at or shortly before a time point; `EventFilter` drops earlier events.

        A moment before the archive's beginning is its beginning: what was there before comes as
        BASELINE. One that is soon to come is waited for: clients' clocks differ.
        """
        clock, now = await self._mongo.clock()
        if since > clock + timedelta(seconds=_AHEAD_MOST_S):
            raise BadUserInput(
                f"since: {date_text(since)}, maximum is {_AHEAD_MOST_S} s after the database's "
                f"{date_text(clock)}; pass a past time",
                argument="since",
            )
        earlier = max(0, int(since.timestamp()) - _CLOCK_SLACK_S)
        token = min(
            resume_tokens.time_prefix(Timestamp(earlier, 0)), resume_tokens.token_from_time(now)
        )
        checkpoint = await self._progress.checkpoint(archive.collection)
        return token if checkpoint is None else max(token, checkpoint.start)


def without_received_snapshot(request: ChangeRequest) -> ChangeRequest:
    """Resolve `snapshot` together with `after`, as clients send them when they subscribe again.

    The start is after the token, or a new snapshot if the first one was not complete.
    """
    if not request.snapshot or request.after is None:
        return request
    if resume_tokens.is_snapshot_token(request.after):
        return replace(request, after=None)
    return replace(request, snapshot=False)


def _check_one_start(request: ChangeRequest) -> None:
    given = [
        name
        for name in ("after", "since", "cursor", "snapshot")
        if getattr(request, name) not in (None, False)
    ]
    if len(given) > 1:
        raise BadUserInput(
            f"arguments after, since, cursor and snapshot: {' and '.join(given)}, expected at "
            "most one"
        )
