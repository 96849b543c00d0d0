"""Bring what one source has become to all that have a copy of it, a chunk at a time.

What is more than a chunk is a job in `revstream.copies`, one per copied field and source:
`{_id: {copy, source}, v, since, value, after, done, total, begun}`. `after` is the `_id` of the
last target that was looked at: whoever comes next goes on there. A later version of the source
takes the place of an earlier one and begins anew.

Guarantees: a chunk is done before its job says so. One chunk of one job at a time, the jobs in
turn, and in memory no more than that. Two that do the same chunk do no harm: the update is the
guard.
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
from revstream.streams.versioning.copied_field import CopiedField, SourceState

__all__ = ["COLLECTION", "PropagationJobs"]

log = logging.getLogger(__name__)

COLLECTION = "revstream.copies"
_TELL_EVERY_S = 10.0


class PropagationJobs:
    """Of one copied field.

    Args:
        chunk: targets that are looked at and written in one go.

    Attributes:
        left: targets that all jobs together have yet to look at, about.
    """

    def __init__(self, copy: CopiedField, mongo: Mongo, setter: CopyWriter, *, chunk: int) -> None:
        self.left = 0
        self._copy = copy
        self._mongo = mongo
        self._setter = setter
        self._chunk = chunk
        # Of the last job that had its turn.
        self._last: Any = MinKey()
        self._idle = True
        self._told_at = 0.0

    async def resume(self) -> None:
        """Others may have left jobs."""
        self._idle = False

    async def start(self, state: SourceState) -> None:
        """Set the first chunk of the copies of a source, and leave the others to `run_chunk`."""
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
        # What is there is of this version already, and further, or of a later one.
        newer = {"$gte": ["$v", state.number]}
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": job["_id"]},
            [{"$replaceWith": {"$cond": [newer, "$$ROOT", {"$literal": job}]}}],
            upsert=True,
        )

    async def run_chunk(self) -> bool:
        """Set a chunk of the next job's copies. Returns whether there may be more to do."""
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
            if time.monotonic() - self._told_at >= _TELL_EVERY_S:
                self._told_at = time.monotonic()
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
        """Set a chunk of the copies of a source. Returns how many targets were looked at, and the
        `_id` of the last one; None for that where there are no others."""
        query: Document = {self._copy.reference_path: {"$eq": state.source}}
        if after is not None:
            # In expressions values of all types are in one order.
            query["$expr"] = {"$gt": ["$_id", {"$literal": after[0]}]}
        found = await self._mongo.find(
            self._copy.target,
            query,
            projection={"_id": 1},
            sort=[("_id", 1)],
            limit=self._chunk + 1,
        )
        ids = [each["_id"] for each in found[: self._chunk]]
        if ids:
            await self._setter.set([([state], ids)])
        return len(ids), ids[-1] if len(found) > self._chunk else None

    def _job_id(self, source: Any) -> Document:
        return {"copy": self._copy.name, "source": source}

    async def _next(self) -> Document | None:
        """The job behind the one that had the last turn; the first one after the last."""
        for start in (self._last, MinKey()):
            bounds = {"$gt": self._job_id(start), "$lt": self._job_id(MaxKey())}
            found = await self._mongo.find(COLLECTION, {"_id": bounds}, sort=[("_id", 1)], limit=1)
            if found:
                job: Document = found[0]
                self._last = job["_id"]["source"]
                return job
        return None

    async def _count(self, source: Any) -> int | None:
        # Only to be told.
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
