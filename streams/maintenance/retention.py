"""Retention (`@collection(keep:)`): periodic truncation of one archive, in small steps.

The cost depends on the versions that are deleted and on those written since the last pass (with an
age limit: those that have passed it since), not on those that stay.
Source: docs/decisions/0016-retention.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bson import Timestamp

from revstream.model.definition import Keep
from revstream.streams.archive.horizon import Horizons, RetentionProgress
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import GatewayError, LeaseLost, Unavailable
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.maintenance.truncate import Truncation
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["Retention"]

log = logging.getLogger(__name__)

_PORTION = 500
"""Number of records that are read together."""

_NUMBER = {"doc": 1, "v": 1}

_Oldest = Callable[[Sequence[Any]], Awaitable[list[Document]]]
"""Returns the oldest version that stays, of each of these documents with versions to delete."""


class Retention:
    """Retention of one collection. Run it under a lease to save work; two at once do no harm."""

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        progress: ArchiveProgress,
        keep: Keep,
        *,
        name: str,
        every_s: float = 3600.0,
    ) -> None:
        self.name = name
        self.collection = archive.collection
        self._mongo = mongo
        self._archive = archive
        self._progress = progress
        self._keep = keep
        self._every_s = every_s
        self._cutting = Truncation(mongo, archive)
        self._horizons = Horizons(mongo)
        self._versions = self._failures = 0

    async def run(self, _fencing_token: int) -> None:
        """Run a pass at each interval, for ever."""
        while True:
            try:
                await self.go_through()
            except (Unavailable, LeaseLost):
                raise
            except GatewayError as exc:
                # Nothing depends on it: the next pass begins where this one stopped.
                self._failures += 1
                log.error(
                    "retention failed",
                    extra={"collection": self.collection, "reason": exc.message},
                )
            await asyncio.sleep(self._every_s)

    def statistics(self) -> dict[str, Any]:
        return {
            "versions": self._versions,
            "failures": self._failures,
        }

    async def go_through(self, now: Timestamp | None = None) -> int:
        """Run one pass. Returns how many versions it has deleted.

        Args:
            now: Time from which age is counted; None for the database's.

        Cancellation: safe; the next pass begins where this one stopped.
        """
        before = self._versions
        if self._keep.seconds is not None:
            now = await self._mongo.operation_time() if now is None else now
            await self._drop_older(Timestamp(max(0, now.time - self._keep.seconds), 0))
        else:
            assert self._keep.versions is not None
            await self._drop_more_than(self._keep.versions)
        dropped = self._versions - before
        if dropped:
            log.info(
                "versions dropped",
                extra={
                    "collection": self.collection,
                    "versions": dropped,
                    "keep": self._keep.text,
                },
            )
        return dropped

    async def _drop_older(self, horizon: Timestamp) -> None:
        """Delete versions that were replaced at `horizon` or before."""

        async def stood(keys: Sequence[Any]) -> list[Document]:
            wanted = [{"key": key, "at": horizon} for key in keys]
            return await self._archive.newest(wanted, limit=1, projection=_NUMBER)

        await self._look_through(resume_tokens.token_from_time(horizon), stood)

    async def _drop_more_than(self, count: int) -> None:
        async def last_to_stay(keys: Sequence[Any]) -> list[Document]:
            wanted, skipped = [{"key": key} for key in keys], [{"$skip": count - 1}]
            return await self._archive.newest(wanted, match=skipped, limit=1, projection=_NUMBER)

        await self._look_through(None, last_to_stay)

    async def _look_through(self, end: str | None, oldest: _Oldest) -> None:
        """Truncate the documents written since the last pass, up to the recorder's position.

        Args:
            end: Maximum token; None for no maximum.
            oldest: Returns the versions that stay.
        """
        place = await self._horizons.load_progress(self.collection)
        position = place.token if place is not None and place.keep == self._keep.text else ""
        upto = await self._progress.position(self.collection)
        if end is not None:
            upto = min(upto, end)
        while position < upto:
            written = await self._mongo.find(
                self._archive.name,
                {"_id": {"$gt": position, "$lte": upto}},
                FindOptions(projection={"doc": 1, "prev": 1}, sort=[("_id", 1)], limit=_PORTION),
            )
            # A first version has replaced nothing.
            replaced = {identity(each["doc"]): each["doc"] for each in written if each["prev"]}
            await self._cut(await oldest(list(replaced.values())))
            position = written[-1]["_id"] if len(written) == _PORTION else upto
            await self._horizons.save_progress(
                self.collection, RetentionProgress(self._keep.text, position)
            )

    async def _cut(self, oldest: Sequence[Document]) -> None:
        """Delete the versions older than these records."""

        async def announce(token: str) -> None:
            await self._horizons.advance(self.collection, token)

        dropped = await self._cutting.cut(
            [(each["doc"], each["v"]) for each in oldest], announce=announce
        )
        self._versions += dropped
