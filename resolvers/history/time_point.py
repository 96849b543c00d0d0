"""Resolution of a TimePoint to one cluster time, at which every archive can be read.

A token has an exact cluster time. A clock time means the last cluster time that any archive has
with that clock time or an earlier one. It is one for all collections, so that fields below an
as-of root are read at the moment of the root.

Guarantees: a moment is returned once every write up to it is archived; the same time resolves to
the same moment at any later time.
Does not guarantee: anything about clocks that are set back. If the primary's clock jumps, the order
of the stream counts, and the clock only finds the place in it.
Source: docs/decisions/0008-as-of.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.access.cluster_time import ClusterTime
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.dates import date_text, milliseconds
from revstream.streams.archive.coverage import COLLECTION, CoverageStore, boundary_stages
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.core.operation import execution_suspended
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["TimePoint", "TimePointResolver"]

SLACK_S = 2
"""How much later than a write's cluster time the primary's clock may read in its oplog entry."""

_LAST_SECOND = 2**32 - 1
_BEFORE_ALL = Timestamp(0, 0)


@dataclass(frozen=True, slots=True)
class TimePoint:
    """`at`: a cluster time; everything at or before it had happened."""

    at: Timestamp


class TimePointResolver:
    """Resolver of TimePoints.

    Args:
        ahead_most_s: Maximum seconds that a time may be ahead of the database's clock; the resolver
            waits for it.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        progress: ArchiveProgress,
        deployment: str,
        *,
        ahead_most_s: float = 5.0,
    ) -> None:
        self._mongo = mongo
        self._coverages = CoverageStore(mongo)
        self._archives = archives
        self._progress = progress
        self._cluster_time = ClusterTime(mongo, progress)
        self._deployment = deployment
        self._ahead_most_s = ahead_most_s

    async def now(self) -> TimePoint:
        """Return the present: later writes are after it. It need not be archived."""
        return TimePoint(await self._mongo.operation_time())

    async def resolve(
        self,
        entity: Entity,
        *,
        time: datetime | DatetimeMS | None = None,
        token: str | None = None,
    ) -> TimePoint:
        """The moment that a TimePoint means, once the archive of `entity` has reached it.

        One before the archive's beginning is refused by the read itself: see
        `streams.archive.coverage`.

        Args:
            token: as the API shows it.

        Raises:
            BadUserInput: not exactly one of the two.
            ResumeTokenInvalid: malformed, of another deployment, or beyond the database's time.
            ArchiveBehind: not reached within the bound; also a time that has not come yet.
        """
        if (time is None) == (token is None):
            given = "neither time nor token" if time is None else "time and token"
            raise BadUserInput(f"asOf: {given}, expected exactly one", argument="asOf")
        if token is not None:
            moment = TimePoint(
                resume_tokens.cluster_time(resume_tokens.decode(token, self._deployment))
            )
            place = resume_tokens.token_from_time(moment.at)
            if self._progress.known_position(entity.collection) < place:
                await self._cluster_time.check_reached(place)
            await self.reached(entity, moment)
            return moment
        assert time is not None
        return await self._of_time(entity, time)

    async def reached(self, entity: Entity, moment: TimePoint) -> None:
        """Return once the archive of `entity` holds everything up to a moment, and, unless the
        moment lies before a loss of history, what was there before the archive.

        Raises:
            ArchiveBehind: not within the bound; carries the lag.
        """
        token = resume_tokens.token_from_time(moment.at)
        await self._progress.wait(entity.collection, token)
        if self._progress.is_complete(entity.collection):
            return
        lost = (await self._coverages.load(entity.collection)).open_gap
        if lost is None or moment.at >= lost.start.at:
            await self._progress.wait_complete(entity.collection, token)

    async def _of_time(self, entity: Entity, time: datetime | DatetimeMS) -> TimePoint:
        seconds = milliseconds(time) // 1000 + SLACK_S + 1
        if seconds <= 0:
            moment = TimePoint(_BEFORE_ALL)
            await self.reached(entity, moment)
            return moment
        # Whatever bears a wall-clock time up to this one stands before this place in the stream.
        end = resume_tokens.time_prefix(Timestamp(min(seconds, _LAST_SECOND), 0))
        await self._archived(entity, time, end)
        moment = TimePoint(await self._last_before(end, time))
        await self.reached(entity, moment)
        return moment

    async def _archived(self, entity: Entity, time: datetime | DatetimeMS, end: str) -> None:
        """Return once whatever was written up to a time is archived, in all collections.

        All of them: the moment is one for all, and what is not archived yet could not move it.
        """
        names = list(self._archives)
        positions = await asyncio.gather(*map(self._progress.position, names))
        behind = [name for name, position in zip(names, positions, strict=True) if position < end]
        if not behind:
            return
        # On a quiet database nothing is written at `end` for long. But once the clock is past the
        # time, whatever bears it stands at or before the cluster time that it is then.
        now = resume_tokens.token_from_time(await self._once_past(entity, time))
        await asyncio.gather(*(self._progress.wait(name, min(now, end)) for name in behind))

    async def _once_past(self, entity: Entity, time: datetime | DatetimeMS) -> Timestamp:
        """A cluster time at which the database's clock was past a time; waited for, if need be."""
        while True:
            clock, now = await self._mongo.clock()
            ahead_s = (milliseconds(time) + 1 - milliseconds(clock)) / 1000
            if ahead_s <= 0:
                return now
            if ahead_s > self._ahead_most_s:
                raise ArchiveBehind(
                    f"time: {date_text(time)}, maximum is {self._ahead_most_s:g} s after the "
                    f"database's {date_text(clock)}; request a past time",
                    collection=entity.collection,
                    lagSeconds=ahead_s,
                )
            async with execution_suspended():
                await asyncio.sleep(ahead_s)

    async def _last_before(self, end: str, time: datetime | DatetimeMS) -> Timestamp:
        """The last cluster time at which something was written by a time of the clock, or from
        which on more or less is known. One command.

        Walks each archive backwards from `end`, past the few seconds of slack, to the first that
        fits.
        """
        stages: list[Document] = [
            {"$match": {"_id": {"$lt": end}, "wall": {"$lte": time}}},
            {"$sort": {"_id": -1}},
            {"$limit": 1},
            {"$project": {"at": 1}},
        ]
        first, *others = (archive.name for archive in self._archives.values())
        pipeline: list[Mapping[str, Any]] = [
            *stages,
            *({"$unionWith": {"coll": name, "pipeline": stages}} for name in others),
            {"$unionWith": {"coll": COLLECTION, "pipeline": boundary_stages(time)}},
        ]
        found = await self._mongo.aggregate(first, pipeline)
        return max((each["at"] for each in found), default=_BEFORE_ALL)
