"""Durable checkpoints of recorders and listeners: a resume token and the fencing token of its
writer.

Everything up to the resume token is done.

Guarantees: a checkpoint with an older fencing token than the stored one is refused (`LeaseLost`),
however late it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DuplicateKey, LeaseLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import WriteSession

__all__ = ["Baseline", "Checkpoint", "Checkpoints", "complete_sets", "furthest_checkpoint"]

COLLECTION = "revstream.checkpoints"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Progress of the initial snapshot: the first read of the documents that exist.

    Attributes:
        done: The snapshot is complete.
        started: At least one document was read.
        after: The last `_id` read that is exact; this one is stored.
        documents: Number of versions written.
        read: Number of documents read, of `total`, an estimate made at the beginning.
        doubt: Resume token before which history was lost, after which the documents are read again.
            A
            document whose last version is older, and that is not read yet, may have changed unseen.
                ""
            where no history was lost.
        beyond: `{_id}` of the last document read, raw, where its `_id` is not exact and it comes
            after
            `after`. In memory only: after a restart these documents are read again.
    """

    done: bool = False
    started: bool = False
    after: Any = None
    documents: int = 0
    read: int = 0
    total: int = 0
    doubt: str = ""
    beyond: RawBSONDocument | None = None

    def to_record(self) -> Document:
        """Return the stored form."""
        return {
            "done": self.done,
            "started": self.started,
            "after": self.after,
            "documents": self.documents,
            "read": self.read,
            "total": self.total,
            "doubt": self.doubt,
        }


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of one recorder or listener.

    Attributes:
        token: Everything at or before it is archived.
        start: Beginning of the archive.
        saved_at: Time of the last save, by the database's clock.
        trouble: Reason why the task makes no progress; None where it does.
    """

    token: str
    start: str
    baseline: Baseline = Baseline()
    fencing_token: int = 0
    saved_at: datetime | None = None
    trouble: str | None = None


class Checkpoints:
    """The stored checkpoints of all recorders and listeners of a deployment, one document each."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def load(self, name: str) -> Checkpoint | None:
        return (await self.load_all([name])).get(name)

    async def load_all(self, names: list[str]) -> dict[str, Checkpoint]:
        found = await self._mongo.find(COLLECTION, {"_id": {"$in": names}})
        return {each["_id"]: _checkpoint_from_record(each) for each in found}

    async def load_collection(
        self, collection: str, writing: WriteSession | None = None
    ) -> dict[Partition, Checkpoint]:
        """Return the checkpoints of all partitions that a collection ever had, for any partition
        count.

        Args:
            writing: The transaction to read in; None for none.
        """
        whole = Partition(collection).name
        # A semicolon sorts directly after the colon.
        query = {"$or": [{"_id": whole}, {"_id": {"$gte": f"{whole}:", "$lt": f"{whole};"}}]}
        reader = self._mongo if writing is None else writing
        found: Sequence[Mapping[str, Any]] = await reader.find(COLLECTION, query)
        named = ((Partition.from_name(each["_id"]), each) for each in found)
        return {
            partition: _checkpoint_from_record(each)
            for partition, each in named
            if partition is not None and partition.collection == collection
        }

    async def claim(self, name: str, *, fencing_token: int) -> Checkpoint | None:
        """Refuse further writes of earlier holders, and return the stored checkpoint; None where
        there is none.

        A checkpoint that is loaded before its earlier holder is refused may be older than the one
        which that holder saves last.

        Raises:
            LeaseLost: A newer fencing token is stored.
        """
        mine = {"_id": name, "fencingToken": {"$lte": fencing_token}}
        while True:
            claimed = await self._mongo.find_one_and_update(
                COLLECTION, mine, {"$set": {"fencingToken": fencing_token}}
            )
            if claimed is not None:
                return _checkpoint_from_record(claimed)
            stored = await self.load(name)
            if stored is None:
                return None
            if stored.fencing_token > fencing_token:
                raise _lease_lost(name, fencing_token, stored)
            # An earlier holder has saved its first one in between.

    async def save(self, name: str, checkpoint: Checkpoint, *, fencing_token: int) -> None:
        """Store a checkpoint.

        Raises:
            LeaseLost: A newer fencing token is stored. Not retried: stop.

        Cancellation: safe; the write either happened or did not, and repeating it is harmless.
        """
        try:
            await self._mongo.find_one_and_update(
                COLLECTION,
                {"_id": name, "fencingToken": {"$lte": fencing_token}},
                {
                    "$set": {
                        "token": checkpoint.token,
                        "at": resume_tokens.cluster_time(checkpoint.token),
                        "start": checkpoint.start,
                        "fencingToken": fencing_token,
                        "baseline": checkpoint.baseline.to_record(),
                    },
                    "$currentDate": {"savedAt": True},
                },
                upsert=True,
            )
        except DuplicateKey as exc:
            raise _lease_lost(name, fencing_token, await self.load(name)) from exc

    async def save_trouble(self, name: str, trouble: str | None, *, fencing_token: int) -> None:
        """Store why a task makes no progress, or None; does nothing if a newer fencing token is
        stored.
        """
        mine = {"_id": name, "fencingToken": {"$lte": fencing_token}}
        await self._mongo.find_one_and_update(COLLECTION, mine, {"$set": {"trouble": trouble}})

    async def guard(self, writing: WriteSession, name: str, *, fencing_token: int) -> None:
        """Abort a transaction if a newer fencing token is stored, or is being stored at the same
        time.

        Raises:
            LeaseLost: A newer fencing token is stored.
        """
        mine = {"_id": name, "fencingToken": {"$lte": fencing_token}}
        # A write that changes nothing would not conflict with a concurrent one.
        if await writing.change(COLLECTION, mine, {"$inc": {"guarded": 1}}) is None:
            raise LeaseLost(
                f"{name}: write with fencing token {fencing_token}, a newer one is stored"
            )

    async def replace_partitions(
        self, writing: WriteSession, kept: Iterable[Partition], removed: Iterable[Partition]
    ) -> None:
        """Delete the checkpoints of some partitions because those of others are enough.

        In a transaction, it conflicts with every write to either.
        """
        # A transaction that only read the kept ones would not conflict with their removal.
        await writing.change_all(COLLECTION, _named(kept), {"$inc": {"guarded": 1}})
        await writing.remove_all(COLLECTION, _named(removed))


def _lease_lost(name: str, fencing_token: int, stored: Checkpoint | None) -> LeaseLost:
    return LeaseLost(
        f"{name}: checkpoint with fencing token {fencing_token}, minimum is "
        f"{stored.fencing_token if stored else '?'}, which is stored"
    )


def _named(partitions: Iterable[Partition]) -> Document:
    return {"_id": {"$in": [each.name for each in partitions]}}


def _checkpoint_from_record(stored: Mapping[str, Any]) -> Checkpoint:
    baseline = Baseline(**stored["baseline"])
    return Checkpoint(
        token=resume_tokens.canonical_token(stored["token"]),
        start=resume_tokens.canonical_token(stored["start"]),
        baseline=replace(baseline, doubt=resume_tokens.canonical_token(baseline.doubt)),
        fencing_token=stored["fencingToken"],
        saved_at=stored["savedAt"],
        trouble=stored.get("trouble"),
    )


def complete_sets(
    stored: Mapping[Partition, Checkpoint],
) -> dict[int, dict[Partition, Checkpoint]]:
    """Return the complete sets of a collection's checkpoints, by partition count.

    A set is complete if each of its partitions has a checkpoint.
    """
    sets: dict[int, dict[Partition, Checkpoint]] = {}
    for partition, checkpoint in stored.items():
        sets.setdefault(partition.count, {})[partition] = checkpoint
    return {count: each for count, each in sets.items() if len(each) == count}


def furthest_checkpoint(stored: Mapping[Partition, Checkpoint]) -> Checkpoint | None:
    """Merge the checkpoints of a collection's partitions into one for the whole collection.

    Everything up to the lowest token of a set is archived and stays so. If the collection had
    another partition count before, the set that has reached furthest counts.

    Returns: None where no set of checkpoints is complete.
    """
    found = [
        Checkpoint(
            token=min(each.token for each in checkpoints.values()),
            start=max(each.start for each in checkpoints.values()),
            baseline=_merge_baselines([each.baseline for each in checkpoints.values()]),
        )
        for checkpoints in complete_sets(stored).values()
    ]
    return max(found, key=lambda each: each.token, default=None)


def _merge_baselines(baselines: list[Baseline]) -> Baseline:
    """Return a single baseline unchanged; of several, one that is done where all are."""
    if len(baselines) == 1:
        return baselines[0]
    return Baseline(
        done=all(each.done for each in baselines),
        documents=sum(each.documents for each in baselines),
        # Each partition reads the whole collection.
        read=min(each.read for each in baselines),
        total=max(each.total for each in baselines),
        doubt=max(each.doubt for each in baselines),
    )
