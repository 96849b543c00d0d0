"""Cluster time of the database, to refuse tokens that are ahead of it.

A token of the future belongs to a lost history, for example if the database was restored from a
backup. One read serves all callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bson.timestamp import Timestamp

from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, ResumeTokenInvalid
from revstream.streams.core.operation import execution_suspended
from revstream.streams.core.task_cleanup import retrieve_exception
from revstream.streams.layouts.core.snapshot_scan import SNAPSHOT_REFUSALS
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo

__all__ = ["ClusterTime", "at_one_time"]

T = TypeVar("T")

_ATTEMPTS = 5


_CUT_OFF_S = 600
"""A primary steps down long before it has been cut off for so many seconds."""


class ClusterTime:
    """Latest known cluster time.

    Args:
        progress: progress of this process's stream, which needs no read.
    """

    def __init__(self, mongo: Mongo, progress: ArchiveProgress) -> None:
        self._progress = progress
        self._now = _SharedRead(mongo.operation_time)
        self._confirmed = _SharedRead(mongo.confirmed_time)

    async def check_reached(self, token: str) -> None:
        """Check that the database has reached a token.

        Raises:
            ResumeTokenInvalid: The token is ahead of the database's time.
        """
        if token <= self._progress.known_positions()[0]:
            return
        at = resume_tokens.cluster_time(token)
        async with execution_suspended():
            now = await self._now.read()
            if now < at and at.time - now.time < _CUT_OFF_S:
                # A primary that is cut off does not know how far the others have come.
                now = await self._confirmed.read()
        if at > now:
            raise ResumeTokenInvalid(
                f"resume token: time {at.as_datetime():%F %T}Z ({at.inc}), maximum is the "
                f"database's {now.as_datetime():%F %T}Z ({now.inc}); it is of another database: "
                "take one of this"
            )


async def at_one_time(mongo: Mongo, read: Callable[[Timestamp], Awaitable[T]]) -> T:
    """Read as of now; again where the collection was created meanwhile, which the server does not
    know as of a time before.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await read(await mongo.operation_time())
        except DatabaseError as exc:
            if exc.number not in SNAPSHOT_REFUSALS:
                raise
    return await read(await mongo.operation_time())


class _SharedRead:
    """Read that concurrent callers share, one at a time."""

    def __init__(self, read: Callable[[], Awaitable[Timestamp]]) -> None:
        self._read = read
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Future[Timestamp] | None = None

    async def read(self) -> Timestamp:
        if self._next is None:
            self._next = asyncio.ensure_future(self._reading())
        reading = self._next
        try:
            # Shielded: others wait for it, too.
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            reading.add_done_callback(retrieve_exception)
            raise

    async def _reading(self) -> Timestamp:
        async with self._one_at_a_time:
            self._next = None
            return await self._read()
