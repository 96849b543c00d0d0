"""Processes that share the partitions, with real leases: equal shares after each start and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.coordination.membership import Membership
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.core.errors import TimeLimit
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually
from tests.support.streams import stop_task

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

# No lease expires by itself, and changes are noticed soon.
BRISK = LeaseOptions(duration_s=60, renew_every_s=0.1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Process:
    """A process whose leased tasks do nothing until they are cancelled."""

    # The worker of each partition; two at once would be an error.
    working: dict[str, str]

    def __init__(
        self, mongo: Mongo, holder: str, working: dict[str, str], offers: dict[str, int]
    ) -> None:
        self.holder = holder
        self.working = working
        leases = Leases(mongo, holder, BRISK)
        self.members = Membership(mongo, holder, offers, BRISK)
        self.listeners = [
            LeasedTask(each.name, leases, self._work(each.name), members=self.members)
            for name, count in offers.items()
            for each in collection_partitions(name, count)
        ]

    def _work(self, name: str) -> Any:
        async def work(fencing_token: int) -> None:
            assert self.working.setdefault(name, self.holder) == self.holder
            try:
                await asyncio.Event().wait()
            finally:
                del self.working[name]

        return work

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        tasks = [asyncio.create_task(each.run()) for each in (*self.listeners, self.members)]
        try:
            yield tasks
        finally:
            for task in tasks:
                await stop_task(task)


class Fleet:
    """Processes on one database."""

    def __init__(self, mongo: Mongo, client: Client) -> None:
        self.mongo = mongo
        self.database = client[mongo.name]
        self.working: dict[str, str] = {}

    def process(self, holder: str, **offers: int) -> Process:
        return Process(self.mongo, holder, self.working, offers)

    def shares(self) -> dict[str, int]:
        held = list(self.working.values())
        return {holder: held.count(holder) for holder in sorted(set(held))}

    async def shared(self, **shares: int) -> None:
        await eventually(lambda: self.shares() == shares, within_s=30)

    def dies(self, holder: str) -> None:
        """Let the leases and the record of a process expire, as after its death."""
        self.database["revstream.leases"].update_many(
            {"holder": holder}, {"$set": {"expiresAt": LONG_AGO}}
        )


@pytest.fixture
def fleet(mongo: Mongo, client: Client) -> Fleet:
    return Fleet(mongo, client)


async def test_each_process_gets_an_equal_share(fleet: Fleet) -> None:
    """Four, then two and two, and so on; when one ends, the others take its share at once.

    Two processes never work on one partition.
    """
    one, two, three = (fleet.process(each, things=4, others=1, more=1) for each in "abc")
    async with one.running():
        await fleet.shared(a=6)
        async with two.running():
            await fleet.shared(a=3, b=3)
            held = [name for name, holder in fleet.working.items() if holder == "a"]
            assert sum(name.startswith("recorder:things:") for name in held) == 2
            async with three.running():
                await fleet.shared(a=2, b=2, c=2)
            await fleet.shared(a=3, b=3)
    assert fleet.working == {}
    assert list(fleet.database["revstream.members"].find()) == []


async def test_the_partitions_of_a_dead_process_are_taken_over(fleet: Fleet) -> None:
    """It happens when its leases expire; each gets a new fencing token.

    A partition that moves between the others meanwhile gets several.
    """
    dead = Leases(fleet.mongo, "d", BRISK)
    for partition in collection_partitions("things", 4):
        assert await dead.acquire(partition.name) is not None
    one, two = (fleet.process(each, things=4, others=1, more=1) for each in "ab")
    async with one.running(), two.running():
        await fleet.shared(a=1, b=1)
        fleet.dies("d")
        await fleet.shared(a=3, b=3)
    leases = fleet.database["revstream.leases"].find({"_id": {"$regex": "things"}})
    assert all(each["fencingToken"] >= 2 for each in leases)


async def test_a_new_partition_count_waits_for_the_leases_of_the_old_one(fleet: Fleet) -> None:
    """The process started last decides; the older one releases its leases.

    It acquires them again when the newer process has ended.
    """
    old, new = fleet.process("old", things=1, others=1), fleet.process("new", things=4, others=1)
    async with old.running():
        await fleet.shared(old=2)
        async with new.running():
            await fleet.shared(new=4, old=1)
            assert fleet.working["recorder:others"] == "old"
        await fleet.shared(old=2)


async def test_a_process_of_an_old_release_without_members_is_awaited(fleet: Fleet) -> None:
    """It holds the lease of the undivided collection until it is stopped."""
    before = Leases(fleet.mongo, "before", BRISK)
    lease = await before.acquire(Partition("things").name)
    assert lease is not None
    async with fleet.process("new", things=2, others=1).running():
        await eventually(lambda: "recorder:others" in fleet.working)
        assert fleet.shares() == {"new": 1}
        await before.release(lease)
        await fleet.shared(new=3)


async def test_a_read_of_the_members_that_times_out_is_repeated(fleet: Fleet) -> None:
    """The last decision stays valid meanwhile."""

    class Slow(Mongo):
        looks = 0

        async def aggregate(self, *arguments: Any, **options: Any) -> list[Any]:
            self.looks += 1
            if self.looks in (1, 3):
                raise TimeLimit("the read took longer than its limit on the server")
            return await super().aggregate(*arguments, **options)

    slow = Slow(fleet.mongo._client, fleet.mongo.name, fleet.mongo.options)
    process = Process(slow, "a", fleet.working, {"things": 1})
    async with process.running() as tasks:
        await fleet.shared(a=1)
        await eventually(lambda: slow.looks > 4 or any(each.done() for each in tasks))
        assert not any(each.done() for each in tasks)


async def test_records_of_dead_members_are_deleted(fleet: Fleet) -> None:
    """The next process that starts deletes them."""
    members = fleet.database["revstream.members"]
    members.insert_one({"_id": "x", "since": LONG_AGO, "expiresAt": LONG_AGO, "offers": []})
    async with fleet.process("a", things=1).running():
        await fleet.shared(a=1)
        assert [each["_id"] for each in members.find()] == ["a"]
