"""Membership of a process: it registers as alive, reads the other members, and takes its share.

Times are those of the database's clock. Membership grants no right; only the lease does. Where two
processes read different states for a moment, one of them does not get the lease. Source:
docs/decisions/0015-partitions.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from revstream.streams.coordination.assignment import Member, assign_partitions
from revstream.streams.coordination.lease import COLLECTION as LEASES
from revstream.streams.coordination.lease import LeaseOptions
from revstream.streams.coordination.partition import Partition
from revstream.streams.core.errors import GatewayError, TimeLimit, Unavailable
from revstream.streams.mongo.database import Mongo

__all__ = ["Membership"]

log = logging.getLogger(__name__)

COLLECTION = "revstream.members"

# Reads per renewal: they bound how soon a released or expired lease is acquired.
_READS_PER_RENEWAL = 5
_WITHDRAW_LIMIT_S = 1.0
_REMOVED_AFTER_MS = 3_600_000


class Membership:
    """Membership of one process.

    Args:
        holder: Holder name in the leases of the process.
        offers: By collection, the number of partitions into which its model divides it.
    """

    def __init__(
        self,
        mongo: Mongo,
        holder: str,
        offers: Mapping[str, int],
        options: LeaseOptions | None = None,
    ) -> None:
        options = options or LeaseOptions()
        self.holder = holder
        self._mongo = mongo
        self._offers = dict(offers)
        self._renew_every_s = options.renew_every_s
        # The registration expires before the leases do: when they expire, other members have
        # already recomputed the assignment.
        self._lifetime_s = (options.duration_s + options.renew_every_s) / 2
        self._me: Member | None = None
        self._assigned: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Register and read assignments for ever; while MongoDB is unavailable, the last assignment
        stands.
        """
        renewed_at, reachable = 0.0, True
        try:
            while True:
                try:
                    if self._me is None or time.monotonic() - renewed_at >= self._renew_every_s:
                        renewed_at = time.monotonic()
                        await self._renew()
                    await self._read_members()
                    reachable = True
                except (Unavailable, TimeLimit) as exc:
                    if reachable:
                        log.warning("members cannot be read", extra={"reason": exc.message})
                    reachable = False
                await asyncio.sleep(self._renew_every_s / _READS_PER_RENEWAL)
        finally:
            await self._withdraw()

    def is_assigned(self, name: str) -> bool:
        """Return whether this process should hold that lease, and may acquire it now."""
        return name in self._assigned

    async def wait_for_assignment(self, name: str, *, assigned: bool) -> None:
        """Return once this process should, or should no longer, hold that lease."""
        while self.is_assigned(name) is not assigned:
            await self._changed.wait()

    async def _renew(self) -> None:
        first = self._me is None
        lasts_ms = int(self._lifetime_s * 1000)
        stage = {
            "$set": {
                "since": {"$ifNull": ["$since", "$$NOW"]},
                "expiresAt": {"$add": ["$$NOW", lasts_ms]},
                "offers": {
                    # A list, and literal: collection names may contain dots and dollars.
                    "$literal": [
                        {"collection": name, "partitions": count}
                        for name, count in self._offers.items()
                    ]
                },
            }
        }
        found = await self._mongo.find_one_and_update(
            COLLECTION, {"_id": self.holder}, [stage], upsert=True
        )
        assert found is not None
        self._me = Member(self.holder, found["since"], self._offers)
        if first:
            await self._remove_expired()

    async def _remove_expired(self) -> None:
        """Delete members that expired long ago. Once per start, because each start leaves one at
        most.
        """
        long_ago = {"$subtract": ["$$NOW", _REMOVED_AFTER_MS]}
        query = {"$expr": {"$lt": ["$expiresAt", long_ago]}}
        await self._mongo.remove_all(COLLECTION, query)

    async def _read_members(self) -> None:
        """Read members and leases with one command, and compute the assignment."""
        live = {"$match": {"$expr": {"$gt": ["$expiresAt", "$$NOW"]}}}
        found = await self._mongo.aggregate(
            LEASES, [live, {"$unionWith": {"coll": COLLECTION, "pipeline": [live]}}]
        )
        members, held = {}, {}
        for each in found:
            if "offers" in each:
                offers = {one["collection"]: one["partitions"] for one in each["offers"]}
                members[each["_id"]] = Member(each["_id"], each["since"], offers)
            elif (partition := Partition.from_name(each["_id"])) is not None:
                held[partition] = each["holder"]
        assert self._me is not None
        # Include this process even if its registration has just expired: it is alive.
        members[self.holder] = self._me
        divided = assign_partitions(members.values(), held)
        mine = frozenset(
            partition.name
            for partition, holder in divided.items()
            if holder == self.holder and held.get(partition) in (None, self.holder)
        )
        if mine != self._assigned:
            log.info("share", extra={"members": len(members), "partitions": sorted(mine)})
            self._assigned = mine
            self._changed.set()
            self._changed = asyncio.Event()

    async def _withdraw(self) -> None:
        with contextlib.suppress(GatewayError, TimeoutError):
            async with asyncio.timeout(_WITHDRAW_LIMIT_S):
                await self._mongo.remove_all(COLLECTION, {"_id": self.holder})
