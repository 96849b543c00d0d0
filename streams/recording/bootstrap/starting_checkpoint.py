"""Starting checkpoint of a recorder, for any earlier partition count of the collection."""

from __future__ import annotations

from revstream.streams.coordination.checkpoint import (
    Baseline,
    Checkpoint,
    Checkpoints,
    complete_sets,
    furthest_checkpoint,
)
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.bootstrap.initial_snapshot import oldest_start

__all__ = ["remove_former_checkpoints", "starting_checkpoint"]


async def starting_checkpoint(
    mongo: Mongo, checkpoints: Checkpoints, partition: Partition
) -> Checkpoint:
    """Return the partition's own checkpoint, or the collection's, if that has reached further.

    The latter may be of another partition count.
    """
    stored = await checkpoints.load_collection(partition.collection)
    own, whole = stored.get(partition), furthest_checkpoint(stored)
    if own is None and whole is None:
        if await mongo.find(f"{partition.collection}.versions", {}, limit=1, projection={"_id": 1}):
            # Versions imported from elsewhere: the oplog here does not belong to them.
            now = resume_tokens.time_prefix(await mongo.operation_time())
            return Checkpoint(now, now, Baseline(doubt=now))
        start = await oldest_start(mongo)
        return Checkpoint(start, start)
    found = [each for each in (own, whole) if each is not None]
    # The first if both are equal.
    return max(found, key=lambda each: each.token)


async def remove_former_checkpoints(
    checkpoints: Checkpoints, partition: Partition
) -> list[Partition]:
    """Delete checkpoints of other partition counts once they are no longer needed; return them."""
    stored = await checkpoints.load_collection(partition.collection)
    mine = complete_sets(stored).get(partition.count)
    others = [each for each in stored if each.count != partition.count]
    whole = furthest_checkpoint(stored)
    if not others or mine is None or whole is None:
        return []
    if min(each.token for each in mine.values()) == whole.token:
        await checkpoints.remove(each.name for each in others)
        return others
    return []
