"""Drop what the model says need not be kept (`@collection(keep:)`): pass after pass over one
archive, in small steps.

Costs what is dropped, what was written since the last pass (by count), and one key of an index per
document (by age); not what is kept.
Source: docs/decisions/0016-retention.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bson import Timestamp

from model.entities import Keep
from streams.archive import INTERVALS, Archive
from streams.cutting import Cutting
from streams.errors import GatewayError, LeaseLost, Unavailable
from streams.events import identity
from streams.horizons import Horizons, Place
from streams.intervals import SPANS
from streams.mongo import Mongo
from streams.progress import Progress

__all__ = ["Retention"]

log = logging.getLogger(__name__)

_PORTION = 500
"""Records looked at together."""


class Retention:
    """Of one collection. `run` it under a lease: to save work, since two at once do no harm."""

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        progress: Progress,
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
        self._cutting = Cutting(mongo, archive)
        self._horizons = Horizons(mongo)
        self._versions = self._failures = 0

    async def run(self, _fencing_token: int) -> None:
        """A pass, and another one after a while, for ever."""
        while True:
            try:
                await self.go_through()
            except (Unavailable, LeaseLost):
                raise
            except GatewayError as exc:
                # Nothing depends on it: the next pass begins where this one came to.
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
        """One pass. Returns how many versions it has dropped.

        Args:
            now: what age is reckoned from; None: by the database.

        Cancellation: safe; the next pass begins where this one came to.
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
        """What was replaced at a moment or before."""
        # Of each length in turn, so that those that stood at the horizon and stay, which lie behind
        # the others in the index, are passed over once.
        for span in SPANS:
            while due := await self._due(span, horizon):
                standing = await self._archive.newest(
                    [{"key": key, "at": horizon} for key in due],
                    limit=1,
                    projection={"doc": 1, "v": 1},
                )
                if not await self._cut(standing):
                    break

    async def _due(self, span: int, horizon: Timestamp) -> list[Any]:
        """Documents that have versions to lose, each once."""
        found = await self._mongo.aggregate(
            self._archive.name,
            [
                {
                    "$match": {
                        "span": span,
                        "at": {"$lt": horizon},
                        "until": {"$lte": horizon},
                    }
                },
                {"$sort": {"at": 1}},
                {"$limit": _PORTION},
                {"$project": {"_id": 0, "doc": 1}},
            ],
            hint=INTERVALS,
        )
        return _each_once(found)

    async def _drop_more_than(self, count: int) -> None:
        """Looks at what was written since the last pass, up to where the recorder has come."""
        place = await self._horizons.place(self.collection)
        position = place.token if place is not None and place.keep == self._keep.text else ""
        upto = await self._progress.position(self.collection)
        while position < upto:
            written = await self._mongo.find(
                self._archive.name,
                {"_id": {"$gt": position, "$lte": upto}},
                projection={"doc": 1},
                sort=[("_id", 1)],
                limit=_PORTION,
            )
            oldest = await self._archive.newest(
                [{"key": key} for key in _each_once(written)],
                match=[{"$skip": count - 1}],
                limit=1,
                projection={"doc": 1, "v": 1},
            )
            await self._cut(oldest)
            position = written[-1]["_id"] if len(written) == _PORTION else upto
            await self._horizons.save_place(self.collection, Place(self._keep.text, position))

    async def _cut(self, oldest: Sequence[Mapping[str, Any]]) -> int:
        """Drop what is older than these records."""

        async def announce(token: str) -> None:
            await self._horizons.advance(self.collection, token)

        dropped = await self._cutting.cut(
            [(each["doc"], each["v"]) for each in oldest], announce=announce
        )
        self._versions += dropped
        return dropped


def _each_once(records: Sequence[Mapping[str, Any]]) -> list[Any]:
    return list({identity(each["doc"]): each["doc"] for each in records}.values())
