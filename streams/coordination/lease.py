"""Leases: exclusive, time-limited rights to record or to listen, across processes.

Guarantees: at most one holder per name as judged by the database's clock; the fencing token grows
by 1 at each change of holder and never restarts. Does not guarantee: that a holder notices a loss
at once. Writers therefore send the fencing token with each write and are refused. Source:
docs/decisions/0006-lease.md; after Occurrent's ADR 114 and 116.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from revstream.streams.core.errors import DuplicateKey
from revstream.streams.mongo.database import Mongo

__all__ = ["Holder", "Lease", "LeaseOptions", "Leases"]

COLLECTION = "revstream.leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """Times of a lease.

    Attributes:
        duration_s: Seconds for which a lease is valid without a renewal.
        renew_every_s: Seconds between renewals by its holder, and between attempts of others.
    """

    duration_s: float = 10.0
    renew_every_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.renew_every_s < self.duration_s:
            raise ValueError(
                f"renew_every_s: {self.renew_every_s}, expected more than 0 and less than "
                f"duration_s, {self.duration_s}"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease.

    Attributes:
        expires_at: Expiry on this process's monotonic clock. Computed from the time before the
            request,
            so never later than the expiry by the database's clock.
    """

    name: str
    holder: str
    fencing_token: int
    expires_at: float

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.expires_at


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, as any process can read it.

    Attributes:
        live: The lease has not expired by the database's clock.
    """

    holder: str | None
    fencing_token: int
    live: bool


class Leases:
    """Leases of one process; `holder` must be unique to one run of the process."""

    def __init__(self, mongo: Mongo, holder: str, options: LeaseOptions | None = None) -> None:
        self._mongo = mongo
        self.holder = holder
        self.options = options or LeaseOptions()

    async def acquire(self, name: str) -> Lease | None:
        """Acquire or renew the lease; None where another process holds it. One round trip."""
        asked_at = time.monotonic()
        mine = {"$eq": ["$holder", self.holder]}
        free = {
            "$or": [
                {"$lte": ["$holder", None]},  # missing or null
                mine,
                {"$lte": ["$expiresAt", "$$NOW"]},
            ]
        }
        token = {"$ifNull": ["$fencingToken", 0]}
        duration_ms = int(self.options.duration_s * 1000)
        stage = {
            "$set": {
                "holder": {"$cond": [free, self.holder, "$holder"]},
                "expiresAt": {"$cond": [free, {"$add": ["$$NOW", duration_ms]}, "$expiresAt"]},
                "fencingToken": {
                    "$cond": [
                        {"$and": [free, {"$not": mine}]},
                        {"$add": [token, 1]},
                        token,
                    ]
                },
            }
        }
        try:
            # The filter is the name alone and the pipeline decides. With the condition in the
            # filter, an upsert on a held lease would try to insert a second document.
            found = await self._mongo.find_one_and_update(
                COLLECTION, {"_id": name}, [stage], upsert=True
            )
        except DuplicateKey:
            # Another process created it at the same time; try again after the next interval.
            return None
        if found is None or found["holder"] != self.holder:
            return None
        return Lease(
            name,
            self.holder,
            int(found["fencingToken"]),
            asked_at + self.options.duration_s,
        )

    async def holders(self, names: Sequence[str]) -> dict[str, Holder]:
        """Return the holders of those leases that were ever acquired. One read."""
        found = await self._mongo.aggregate(
            COLLECTION,
            [
                {"$match": {"_id": {"$in": list(names)}}},
                {"$set": {"live": {"$gt": ["$expiresAt", "$$NOW"]}}},
            ],
        )
        return {
            each["_id"]: Holder(
                each.get("holder"),
                each["fencingToken"],
                each["live"] and each.get("holder") is not None,
            )
            for each in found
        }

    async def release(self, lease: Lease) -> None:
        """Release the lease. The document stays: deleting it would restart the fencing token."""
        await self._mongo.find_one_and_update(
            COLLECTION,
            {
                "_id": lease.name,
                "holder": self.holder,
                "fencingToken": lease.fencing_token,
            },
            {"$unset": {"holder": "", "expiresAt": ""}},
        )
