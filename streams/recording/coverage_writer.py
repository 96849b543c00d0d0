"""Coverage writer: the recorder stores the intervals that it knows, and the gaps.

Each mark is stored before the checkpoint that depends on it, so a crash leaves an interval that is
too small, never one that is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from bson import Timestamp

from revstream.streams.archive.coverage import CoverageStore, TimeMark
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import GatewayError, Unavailable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk

__all__ = ["CoverageWriter"]

OPLOG_LOST = "the oplog did not reach back to it"
RESTORED = "the database is a copy, or its archive is from another database"
UNREADABLE = "a change could not be read"
ARRIVED = "the collection was replaced, and read later"


class CoverageWriter:
    """Writer of the coverage of one partition."""

    def __init__(self, mongo: Mongo, archive: Archive, partition: Partition) -> None:
        self._mongo = mongo
        self._archive = archive
        self._coverages = CoverageStore(mongo)
        self._collection = archive.collection
        self._partition = partition

    async def begin(self, checkpoint: Checkpoint) -> None:
        """Store the beginning of the archive, if it is not stored yet."""
        doubt, new = checkpoint.baseline.doubt, checkpoint.token == checkpoint.start
        if new and doubt:
            # Versions imported from elsewhere: their facts are valid.
            await self._coverages.set_begin(self._collection, await self._version_at("", 1))
            await self._mark_known()
        elif new and await _holds_everything(self._mongo):
            await self._coverages.set_begin(self._collection, None)
        elif new or not await self._coverages.has_mark(self._collection, "begun"):
            begun = resume_tokens.cluster_time(checkpoint.start)
            # The seconds of a cluster time are those of the clock, rounded down.
            wall = begun.as_datetime() + timedelta(seconds=1)
            await self._coverages.set_begin(self._collection, TimeMark(begun, wall))
            if checkpoint.baseline.done:
                await self._mark_known()
        if doubt and not checkpoint.baseline.done:
            # The collection may have had another partition count when history was lost.
            lost = (await self._coverages.load(self._collection)).open_gap
            last = None if lost else await self._version_at(doubt, -1)
            if lost is not None:
                await self._open(lost.start, lost.why)
            else:
                position = doubt if last is None else resume_tokens.token_from_time(last.at)
                await self.open_gap(position, RESTORED)

    async def begin_again(self, event: ChangeEvent) -> None:
        """Store that the database was dropped, and the coverage with it."""
        await self._coverages.set_begin(self._collection, TimeMark(event.at, event.wall))

    async def mark_complete(self, chunk: SnapshotChunk, *, lost: bool) -> None:
        """Store that the initial snapshot is recorded.

        Args:
            chunk: The last chunk.
            lost: The snapshot was repeated after a loss: from now on all is known again.
        """
        if lost:
            end = TimeMark(chunk.at, chunk.wall)
            await self._coverages.close_gap(self._collection, self._partition.name, end)
        if not (lost and await self._coverages.has_mark(self._collection, "known")):
            await self._mark_known()

    async def _mark_known(self) -> None:
        # The last version that is a document's first, and not its insertion.
        query = {
            "first": True,
            "cut": {"$exists": False},
            "born": {"$ne": True},
            "$or": [{"op": {"$ne": "INSERT"}}, {"gap": True}],
        }
        found = await self._archive.find(
            query,
            FindOptions(projection={"at": 1, "wall": 1}, sort=[("_id", -1)], limit=1),
            fill=False,
        )
        known = TimeMark(found[0]["at"], found[0]["wall"]) if found else None
        await self._coverages.set_known(self._collection, known)

    async def mark_replaced(self, event: ChangeEvent) -> None:
        """Store that the collection was replaced before its initial snapshot was complete."""
        await self._coverages.set_known(self._collection, TimeMark(event.at, event.wall))

    async def open_gap(self, position: str, why: str = OPLOG_LOST) -> None:
        """Store that nothing is known after a position."""
        last = resume_tokens.cluster_time(position)
        wall = last.as_datetime()
        version = await self._version_at(resume_tokens.token_from_time(last), -1)
        if version is not None:
            wall = max(wall, version.wall + timedelta(milliseconds=1))
        await self._open(TimeMark(Timestamp(last.time, last.inc + 1), wall), why)

    async def _version_at(self, upto: str, direction: int) -> TimeMark | None:
        """Return the time of the last version up to a token; with direction 1, of the first."""
        query = {"_id": {"$lte": upto}} if upto else {}
        found = await self._archive.find(
            query,
            FindOptions(projection={"at": 1, "wall": 1}, sort=[("_id", direction)], limit=1),
            fill=False,
        )
        return TimeMark(found[0]["at"], found[0]["wall"]) if found else None

    async def _open(self, start: TimeMark, why: str) -> None:
        await self._coverages.open_gap(self._collection, self._partition.name, start, why)

    async def drop_open_gaps(self, partitions: Sequence[Partition]) -> None:
        """Delete the open gaps of former partitions."""
        if partitions:
            names = [each.name for each in partitions]
            await self._coverages.drop_open_gaps(self._collection, names)


async def _holds_everything(mongo: Mongo) -> bool:
    """Return whether the oplog reaches back to the creation of the replica set."""
    try:
        entry = await mongo.oldest("oplog.rs", {}, database="local")
    except Unavailable:
        raise
    except GatewayError:
        return False
    return entry is not None and "initiating set" in str(entry.get("o", {}).get("msg", ""))
