"""Where a listener stands, durably: the resume token up to which everything is done, and the
fencing token that said so.

Guarantees: a checkpoint with an older fencing token than the stored one is refused (`LeaseLost`),
however late it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streams import tokens
from streams.errors import DuplicateKey, LeaseLost
from streams.mongo import Mongo

__all__ = ["Baseline", "Checkpoint", "Checkpoints"]

COLLECTION = "revstream.checkpoints"


@dataclass(frozen=True, slots=True)
class Baseline:
    """How far the first reading of the present has come: `after` is the last `_id` read;
    `documents` were written."""

    done: bool = False
    started: bool = False
    after: Any = None
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`token`: everything at or before it is archived. `start`: where the archive begins.
    `saved_at`: the database's clock."""

    token: str
    start: str
    baseline: Baseline = Baseline()
    fencing_token: int = 0
    saved_at: datetime | None = None


class Checkpoints:
    """The checkpoints of all listeners of a deployment, one document each."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def load(self, name: str) -> Checkpoint | None:
        return (await self.load_all([name])).get(name)

    async def load_all(self, names: list[str]) -> dict[str, Checkpoint]:
        found = await self._mongo.find(COLLECTION, {"_id": {"$in": names}})
        return {
            each["_id"]: Checkpoint(
                token=each["token"],
                start=each["start"],
                baseline=Baseline(**each["baseline"]),
                fencing_token=each["fencingToken"],
                saved_at=each["savedAt"],
            )
            for each in found
        }

    async def save(self, name: str, checkpoint: Checkpoint, *, fencing_token: int) -> None:
        """Store it.

        Raises:
            LeaseLost: a newer fencing token is stored. Not retried: stop.

        Cancellation: safe; the write either happened or did not, and repeating it is harmless.
        """
        baseline = checkpoint.baseline
        try:
            await self._mongo.find_one_and_update(
                COLLECTION,
                {"_id": name, "fencingToken": {"$lte": fencing_token}},
                {
                    "$set": {
                        "token": checkpoint.token,
                        "at": tokens.cluster_time(checkpoint.token),
                        "start": checkpoint.start,
                        "fencingToken": fencing_token,
                        "baseline": {
                            "done": baseline.done,
                            "started": baseline.started,
                            "after": baseline.after,
                            "documents": baseline.documents,
                        },
                    },
                    "$currentDate": {"savedAt": True},
                },
                upsert=True,
            )
        except DuplicateKey as exc:
            stored = await self.load(name)
            raise LeaseLost(
                f"{name}: checkpoint with fencing token {fencing_token} refused, "
                f"{stored.fencing_token if stored else '?'} is stored"
            ) from exc
