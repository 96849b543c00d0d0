"""Resumable jobs that propagate a source's state to all its copies, a chunk at a time.

More than one chunk is a job in `revstream.copies`, one per copied field and source: `{_id: {copy,
source}, v, since, value, after, done, total, begun}`. `after` is the `_id` of the last target that
was checked; any process continues there. A later version of the source replaces the job of an
earlier one and starts from the beginning.

Guarantees: a chunk is done before its job says so. One chunk of one job at a time, the jobs in
turn, and no more than that in memory. Two processes may do the same chunk: the update itself guards
against late values.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from bson import MaxKey, MinKey

from revstream.streams.core.errors import TimeLimit
from revstream.streams.listeners.copies.bulk_update import CopyWriter
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.copied_field import CopiedField, SourceState

__all__ = ["COLLECTION", "PropagationJobs"]

log = logging.getLogger(__name__)

COLLECTION = "revstream.copies"
_TELL_EVERY_S = 10.0


class PropagationJobs:
    """Jobs of one copied field.

    Args:
        chunk: Number of targets that are read and written together.

    Attributes:
        left: Approximate number of targets that all jobs have yet to check.
    """

    def __init__(self, copy: CopiedField, mongo: Mongo, setter: CopyWriter, *, chunk: int) -> None:
        self.left = 0
        self._copy = copy
        self._mongo = mongo
        self._setter = setter
        self._chunk = chunk
        # Source of the job that ran last.
        self._last: Any = MinKey()
        self._idle = True
        self._logged_at = 0.0

    async def resume(self) -> None:
        """Look for jobs that other processes have left."""
        self._idle = False

    async def start(self, state: SourceState) -> None:
        """Set the first chunk of a source's copies, and store a job for the others."""
        done, after = await self._set_chunk(state, None)
        if after is None:
            return
        self._idle = False
        job = {
            "_id": self._job_id(state.source),
            "v": state.number,
            "since": state.since,
            "value": state.value,
            "after": after,
            "done": done,
            "total": await self._count(state.source),
            "begun": datetime.now(UTC),
        }
        # A stored job of this version has come further; one of a later version replaces this.
        newer = {"$gte": ["$v", state.number]}
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": job["_id"]},
            [{"$replaceWith": {"$cond": [newer, "$$ROOT", {"$literal": job}]}}],
            upsert=True,
        )

    async def run_chunk(self) -> bool:
        """Set one chunk of the next job's copies. Returns whether more may be due."""
        if self._idle:
            return False
        job = await self._next()
        if job is None:
            self._idle, self.left = True, 0
            return False
        state = SourceState(
            source=job["_id"]["source"], number=job["v"], value=job["value"], since=job["since"]
        )
        done, after = await self._set_chunk(state, (job["after"],))
        same = {"_id": job["_id"], "v": job["v"], "after": {"$eq": job["after"]}}
        facts = {
            "copy": self._copy.name,
            "source": str(state.source),
            "done": job["done"] + done,
            "total": job["total"],
        }
        if after is not None:
            step = {"$set": {"after": after}, "$inc": {"done": done}}
            await self._mongo.find_one_and_update(COLLECTION, same, step)
            if time.monotonic() - self._logged_at >= _TELL_EVERY_S:
                self._logged_at = time.monotonic()
                log.info("copying", extra=facts)
        else:
            await self._mongo.remove_all(COLLECTION, same)
            seconds = max(0.001, (datetime.now(UTC) - job["begun"]).total_seconds())
            rate = facts["done"] / seconds
            log.info(
                "copied",
                extra=facts | {"seconds": round(seconds, 1), "per_second": round(rate)},
            )
        self.left = await self._left()
        return True

    async def _set_chunk(self, state: SourceState, after: tuple[Any] | None) -> tuple[int, Any]:
        """Set a chunk of the copies of a source.

        Returns:
            Number of targets checked, and the `_id` of the last one; None if no others follow.
        """
        query: Document = {self._copy.reference_path: {"$eq": state.source}}
        if after is not None:
            # In expressions values of all types are in one order.
            query["$expr"] = {"$gt": ["$_id", {"$literal": after[0]}]}
        found = await self._mongo.find(
            self._copy.target,
            query,
            FindOptions(projection={"_id": 1}, sort=[("_id", 1)], limit=self._chunk + 1),
        )
        ids = [each["_id"] for each in found[: self._chunk]]
        if ids:
            await self._setter.set([([state], ids)])
        return len(ids), ids[-1] if len(found) > self._chunk else None

    def _job_id(self, source: Any) -> Document:
        return {"copy": self._copy.name, "source": source}

    async def _next(self) -> Document | None:
        """Return the job after the last one that ran; after the last of all, the first."""
        for start in (self._last, MinKey()):
            bounds = {"$gt": self._job_id(start), "$lt": self._job_id(MaxKey())}
            found = await self._mongo.find(
                COLLECTION, {"_id": bounds}, FindOptions(sort=[("_id", 1)], limit=1)
            )
            if found:
                job: Document = found[0]
                self._last = job["_id"]["source"]
                return job
        return None

    async def _count(self, source: Any) -> int | None:
        # Only shown in logs.
        with suppress(TimeLimit):
            return await self._mongo.count(
                self._copy.target, {self._copy.reference_path: {"$eq": source}}
            )
        return None

    async def _left(self) -> int:
        bounds = {"$gt": self._job_id(MinKey()), "$lt": self._job_id(MaxKey())}
        left = {"$subtract": [{"$ifNull": ["$total", "$done"]}, "$done"]}
        found = await self._mongo.aggregate(
            COLLECTION,
            [{"$match": {"_id": bounds}}, {"$group": {"_id": None, "left": {"$sum": left}}}],
        )
        return max(0, int(found[0]["left"])) if found else 0
