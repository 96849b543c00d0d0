"""Ordered, at-least-once delivery of all versions of a collection to a handler.

Versions are read from the archive and not from the change stream: they stay available however long
no process ran, and they have numbers. It runs under a lease (`streams.coordination.leased_task`).
The position is saved after `handle` has returned, and refused if another process has taken over.

Does not guarantee: that a version comes once. A process that lost its lease may still run while the
next one repeats its work, so `handle` must tolerate repetition, and pass the fencing token, or the
version's number, to the system that it writes to.
Source: docs/decisions/0018-listeners.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.archive.tolerant_reader import read_versions
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import (
    ArchiveBehind,
    GatewayError,
    LeaseLost,
    SlowConsumer,
    Unavailable,
    reason_from_error,
)
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub, Subscriber
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version

__all__ = ["Consumer", "ConsumerOptions", "Handler"]

log = logging.getLogger(__name__)


class Handler(ABC):
    """Receiver of versions.

    Attributes:
        name: Name of its lease and its position; the same in all processes, permanently.
        collection: Collection of the versions.
        start: Where the first run begins: with all versions in the archive, or with new ones.
    """

    name: str
    collection: str
    start: Literal["beginning", "now"] = "now"

    async def begin(self, fencing_token: int) -> None:  # noqa: B027 — to be overridden or not
        """Prepare this process, which has taken over."""

    @abstractmethod
    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        """Handle versions in stream order, deletions included.

        When it returns they are done; if it raises they come again after a pause.
        """

    async def turn(self, fencing_token: int) -> bool:
        """Do a part of deferred work between two calls of `handle`. Returns whether more is due at
        once.
        """
        return False

    async def lost(self, reason: str) -> None:  # noqa: B027 — to be overridden or not
        """Note versions that were truncated before delivery (`keep`), or one that cannot be read.

        The remaining versions are delivered.
        """

    async def end(self) -> None:  # noqa: B027 — to be overridden or not
        """Close what `begin` has opened; called whenever this process stops, also after `begin`
        failed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a consumer.

    Args:
        page: Maximum number of versions per call.
        look_every_s: Interval of archive reads without change events: an initial snapshot adds
            versions
            to the archive only.
        idle_save_s: Interval at which the position is saved when there is nothing to do.
        retry_first_s: Pause after the first failure; it doubles with each.
        retry_most_s: Maximum pause.
    """

    page: int = 200
    look_every_s: float = 1.0
    idle_save_s: float = 5.0
    retry_first_s: float = 0.5
    retry_most_s: float = 60.0


class Consumer:
    """Delivery to one handler.

    Args:
        opened_at: Resume token of the start of this process, from before it served or recorded
            anything; the first run of a handler that starts "now" begins there.

    Attributes:
        trouble: Why the handler makes no progress; None if it does.
        versions: Number of handled versions.
        failures: Number of errors that the handler raised.
    """

    def __init__(
        self,
        handler: Handler,
        archive: Archive,
        hub: Hub,
        progress: ArchiveProgress,
        checkpoints: Checkpoints,
        horizons: Horizons,
        *,
        opened_at: str,
        options: ConsumerOptions | None = None,
    ) -> None:
        self.handler = handler
        self.name = handler.name
        self.collection = archive.collection
        self.trouble: str | None = None
        self.versions = self.failures = 0
        self._archive = archive
        self._hub = hub
        self._progress = progress
        self._checkpoints = checkpoints
        self._horizons = horizons
        self._opened_at = opened_at
        self._options = options or ConsumerOptions()
        self._checkpoint = Checkpoint("", "")
        self._saved_at = 0.0
        self._horizon = ""
        self._unreadable = LogThrottle(log, "version cannot be read", level=logging.ERROR)

    async def run(self, fencing_token: int) -> None:
        """Deliver all versions after the stored position, for ever.

        Raises:
            LeaseLost: Another process has taken over.
            Unavailable: MongoDB cannot be reached; start again.
        """
        # From here on, writes of the last holder are refused.
        stored = await self._checkpoints.claim(self.name, fencing_token=fencing_token)
        if stored is None:
            self._checkpoint = await self._first()
            await self._save(fencing_token)
        else:
            self._checkpoint = stored
            if stored.trouble is not None:
                # The last holder's error.
                await self._checkpoints.save_trouble(self.name, None, fencing_token=fencing_token)
        try:
            await self._repeated(fencing_token, self.handler.begin, fencing_token)
            await self._follow(fencing_token)
        finally:
            await self.handler.end()

    async def _follow(self, fencing_token: int) -> None:
        subscriber = self._hub.attach(self.collection)
        try:
            while True:
                moved = await self._take(fencing_token)
                more = await self._repeated(fencing_token, self.handler.turn, fencing_token)
                if not moved and not more:
                    subscriber = await self._wait(subscriber)
        finally:
            subscriber.close()

    @property
    def lag_s(self) -> float:
        """Return the lag in seconds, by the archive's progress."""
        return self._progress.lag_after_s(self.collection, self._checkpoint.token)

    async def _take(self, fencing_token: int) -> bool:
        """Deliver the next page. Returns whether there was one."""
        position = self._checkpoint.token
        upto = await self._progress.position(self.collection)
        if upto <= position:
            return False
        found, reached = await self._repeated(fencing_token, self._read, position, upto)
        await self._look_back(position, fencing_token)
        for reason in (each for each in found if isinstance(each, str)):
            self._unreadable.note(listener=self.name, reason=reason)
            await self._repeated(fencing_token, self.handler.lost, reason)
        versions = [each for each in found if isinstance(each, Version)]
        if versions:
            await self._repeated(fencing_token, self.handler.handle, versions, fencing_token)
            self.versions += len(versions)
        self._checkpoint = replace(self._checkpoint, token=reached)
        # Each save is itself an entry of the oplog: saving at every look would feed itself.
        idle = time.monotonic() - self._saved_at >= self._options.idle_save_s
        # The first save shows how far behind it is.
        if found or idle or position == resume_tokens.BEGINNING:
            await self._save(fencing_token)
        return bool(found)

    async def _read(self, position: str, upto: str) -> tuple[list[Version | str], str]:
        """Read the next page, with a reason in place of each unreadable version, and the token it
        reaches.
        """
        page = self._options.page
        query = {"_id": {"$gt": position, "$lte": upto}}
        records = await self._archive.find(
            query, FindOptions(sort=[("_id", 1)], limit=page), fill=False
        )
        reached = records[-1]["_id"] if len(records) == page else upto
        return await read_versions(self._archive, records), reached

    async def _look_back(self, position: str, fencing_token: int) -> None:
        """Report once that versions after a position were truncated before they were read."""
        horizon = await self._horizons.load(self.collection)
        if position >= horizon or horizon == self._horizon:
            return
        self._horizon = horizon
        reached, dropped = (
            resume_tokens.cluster_time(each).as_datetime() for each in (position, horizon)
        )
        reason = (
            f"versions of {self.collection} up to {dropped:%F %T}Z were deleted before {self.name} "
            f"handled them; its position was {reached:%F %T}Z"
        )
        log.error("history lost", extra={"listener": self.name, "reason": reason})
        await self._repeated(fencing_token, self.handler.lost, reason)

    async def _repeated(self, fencing_token: int, step: Any, *arguments: Any) -> Any:
        """Repeat a step until it succeeds.

        Only errors of MongoDB and the end of the lease are raised: another process could not do
        better with
        the others.
        """
        pause_s = self._options.retry_first_s
        while True:
            try:
                result = await step(*arguments)
            except (LeaseLost, Unavailable):
                raise
            except Exception as exc:
                self.failures += 1
                reason = reason_from_error(exc)
                first, self.trouble = self.trouble is None, reason
                if first:
                    # Our own errors explain themselves and need no traceback.
                    known = isinstance(exc, GatewayError)
                    log.error(
                        "listener failed",
                        extra={"listener": self.name, "reason": reason},
                        exc_info=None if known else exc,
                    )
                    await self._checkpoints.save_trouble(
                        self.name, reason, fencing_token=fencing_token
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self._options.retry_most_s)
                continue
            if self.trouble is not None:
                log.info("listener works again", extra={"listener": self.name})
                self.trouble = None
                await self._checkpoints.save_trouble(self.name, None, fencing_token=fencing_token)
            return result

    async def _wait(self, subscriber: Subscriber) -> Subscriber:
        """Return when there may be new versions in the archive."""
        try:
            events = await subscriber.next(self._options.look_every_s)
            reached = events[-1].token if events else ""
        except (SlowConsumer, Unavailable):
            # The content of events does not matter here, only that some occurred, as the missed
            # ones did.
            subscriber = self._hub.attach(self.collection)
            reached = self._hub.position
        if reached:
            try:
                await self._progress.wait(self.collection, reached)
            except ArchiveBehind:
                log.debug("the archive is behind", extra={"listener": self.name})
        return subscriber

    async def _first(self) -> Checkpoint:
        """Return the position at which the first run begins."""
        if self.handler.start == "now":
            token = self._opened_at
        else:
            # Versions truncated before the first run are not lost.
            self._horizon = await self._horizons.load(self.collection)
            token = resume_tokens.BEGINNING
        return Checkpoint(token, token, Baseline(done=True))

    async def _save(self, fencing_token: int) -> None:
        await self._checkpoints.save(self.name, self._checkpoint, fencing_token=fencing_token)
        self._saved_at = time.monotonic()
