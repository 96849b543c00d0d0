"""Processes that share the partitions, on real leases: equal shares, whoever comes and goes."""

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
from tests.support.streams import finished

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

# Nothing runs out by itself; what happens is seen soon.
BRISK = LeaseOptions(duration_s=60, renew_every_s=0.1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Process:
    """Its listeners' work does nothing, until it is cancelled."""

    # Who works at what; in one process or two at once would be a fault.
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
                await finished(task)


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
        """As if the process had not been heard of for long: its leases have run out."""
        self.database["revstream.leases"].update_many(
            {"holder": holder}, {"$set": {"expiresAt": LONG_AGO}}
        )


@pytest.fixture
def fleet(mongo: Mongo, client: Client) -> Fleet:
    return Fleet(mongo, client)


async def test_each_process_gets_its_share_whenever_it_comes(fleet: Fleet) -> None:
    """Four, two and two, and so on; when one ends, the others have its share at once. Never two
    work at one."""
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


async def test_the_partitions_of_a_process_that_dies_are_taken_over(fleet: Fleet) -> None:
    """When its leases run out; each with a new fencing token, or more than one where it moved on
    because both looked while the other was taking its share."""
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


async def test_a_change_of_number_waits_until_nobody_holds_by_the_old_one(fleet: Fleet) -> None:
    """The process started last decides; the older one gives up what it has, and takes it again
    when the newer one is gone."""
    old, new = fleet.process("old", things=1, others=1), fleet.process("new", things=4, others=1)
    async with old.running():
        await fleet.shared(old=2)
        async with new.running():
            await fleet.shared(new=4, old=1)
            assert fleet.working["recorder:others"] == "old"
        await fleet.shared(old=2)


async def test_a_release_that_knows_no_members_is_waited_for(fleet: Fleet) -> None:
    """It holds the undivided collection's lease until it is stopped."""
    before = Leases(fleet.mongo, "before", BRISK)
    lease = await before.acquire(Partition("things").name)
    assert lease is not None
    async with fleet.process("new", things=2, others=1).running():
        await eventually(lambda: "recorder:others" in fleet.working)
        assert fleet.shares() == {"new": 1}
        await before.release(lease)
        await fleet.shared(new=3)


async def test_a_look_that_takes_too_long_is_made_again(fleet: Fleet) -> None:
    """What was decided stands meanwhile."""

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


async def test_those_that_died_long_ago_are_forgotten(fleet: Fleet) -> None:
    """By the next one that starts."""
    members = fleet.database["revstream.members"]
    members.insert_one({"_id": "x", "since": LONG_AGO, "expiresAt": LONG_AGO, "offers": []})
    async with fleet.process("a", things=1).running():
        await fleet.shared(a=1)
        assert [each["_id"] for each in members.find()] == ["a"]
