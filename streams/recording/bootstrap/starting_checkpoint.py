"""Starting checkpoint of a recorder, for any earlier partition count of the collection."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.recording.bootstrap.initial_snapshot import oldest_start

__all__ = ["remove_former_checkpoints", "starting_checkpoint"]


async def starting_checkpoint(
    mongo: Mongo, checkpoints: Checkpoints, partition: Partition
) -> Checkpoint:
    """Return the checkpoint from which a partition records.

    It is the partition's own, or the collection's if that has reached further; the latter may be of
    another partition count. A collection whose partitions have not all begun is recorded from its
    beginning: the others archive their own documents only.
    """
    stored = await checkpoints.load_collection(partition.collection)
    if not stored:
        return await _first_checkpoint(mongo, partition.collection)
    found = [each for each in (stored.get(partition), furthest_checkpoint(stored)) if each]
    if not found:
        return _beginning(stored.values())
    # The first if both are equal.
    return max(found, key=lambda each: each.token)


async def _first_checkpoint(mongo: Mongo, collection: str) -> Checkpoint:
    if await mongo.find(f"{collection}.versions", {}, FindOptions(limit=1, projection={"_id": 1})):
        # Versions imported from elsewhere: the oplog here does not belong to them.
        now = resume_tokens.time_prefix(await mongo.operation_time())
        return Checkpoint(now, now, Baseline(doubt=now))
    start = await oldest_start(mongo)
    return Checkpoint(start, start)


def _beginning(stored: Collection[Checkpoint]) -> Checkpoint:
    """Return the beginning of an archive from the checkpoints of some of its partitions.

    In doubt if one of them is: the oplog before the doubt is lost, or of another database.
    """
    doubt = max(each.baseline.doubt for each in stored)
    start = min(each.start for each in stored)
    return Checkpoint(doubt or start, start, Baseline(doubt=doubt))


async def remove_former_checkpoints(
    mongo: Mongo, checkpoints: Checkpoints, partition: Partition
) -> list[Partition]:
    """Delete checkpoints of other partition counts once they are no longer needed; return them.

    Recorders of two partition counts may do so at the same time: in a transaction, so that the
    second one sees that its own checkpoints are gone, and removes none.
    """
    if not _former(await checkpoints.load_collection(partition.collection), partition):
        return []

    async def remove(writing: WriteSession) -> list[Partition]:
        stored = await checkpoints.load_collection(partition.collection, writing)
        former = _former(stored, partition)
        if former:
            kept = [each for each in stored if each not in former]
            await checkpoints.replace_partitions(writing, kept, former)
        return former

    removed, _ = await write(mongo, remove, transaction=True)
    return removed


def _former(stored: Mapping[Partition, Checkpoint], partition: Partition) -> list[Partition]:
    """Return the partitions of other counts, if those of this count have reached as far."""
    mine = complete_sets(stored).get(partition.count)
    whole = furthest_checkpoint(stored)
    if mine is None or whole is None or min(each.token for each in mine.values()) < whole.token:
        return []
    return [each for each in stored if each.count != partition.count]
