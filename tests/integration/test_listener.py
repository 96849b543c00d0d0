"""Processes that take turns at one leased task, with a real lease."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.coordination.lease import Lease, LeaseOptions, Leases
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.core.errors import LeaseLost, Unavailable
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually
from tests.support.streams import Recording, outline, stop_task, turn

Client = MongoClient[dict[str, Any]]
NAME = "recorder:things"
# Long enough that no lease expires by itself; polled so often that a takeover is quick.
BRISK = LeaseOptions(duration_s=60, renew_every_s=0.02)


def listener_of(mongo: Mongo, holder: str, recording: Recording) -> LeasedTask:
    return LeasedTask(NAME, Leases(mongo, holder, BRISK), recording.recorder.run)


def archived(client: Client, mongo: Mongo) -> int:
    """Return the number of archived versions."""
    return client[mongo.name]["things.versions"].count_documents({})


async def test_a_follower_takes_over_when_the_lease_is_released(
    mongo: Mongo, client: Client
) -> None:
    """Recording continues with a new fencing token."""
    one, two = Recording(mongo), Recording(mongo)
    await one.begin()
    first, second = listener_of(mongo, "one", one), listener_of(mongo, "two", two)
    things = client[mongo.name].things
    task = asyncio.create_task(first.run())
    await eventually(lambda: first.state == "recording")
    follower = asyncio.create_task(second.run())
    await eventually(lambda: second.state == "following")
    things.insert_one({"_id": 1})
    await eventually(lambda: archived(client, mongo) == 1)
    assert two.recorder.statistics()["batches"] == 0

    await stop_task(task)
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    await eventually(lambda: archived(client, mongo) == 2)
    assert (first.lease, second.state) == (None, "recording")
    assert second.lease is not None
    assert second.lease.fencing_token == 2
    await stop_task(follower)
    assert outline(await two.versions()) == [("INSERT", 1, False), ("UPDATE", 2, False)]


async def test_a_follower_takes_over_when_the_lease_expires(mongo: Mongo, client: Client) -> None:
    """The former holder notices it at its next renewal, ends its work, and follows."""
    one, two = Recording(mongo), Recording(mongo)
    await one.begin()
    first, second = listener_of(mongo, "one", one), listener_of(mongo, "two", two)
    tasks = [asyncio.create_task(first.run())]
    await eventually(lambda: first.state == "recording")
    tasks.append(asyncio.create_task(second.run()))
    await eventually(lambda: second.state == "following")

    def run_out() -> bool:
        client[mongo.name]["revstream.leases"].update_one(
            {"_id": NAME, "holder": "one"},
            {"$set": {"expiresAt": datetime(2000, 1, 1, tzinfo=UTC)}},
        )
        return second.state == "recording"

    # The holder may renew it first.
    await eventually(run_out)
    await eventually(lambda: first.state == "following")
    for n in range(5):
        client[mongo.name].things.insert_one({"_id": n})
    await eventually(lambda: archived(client, mongo) == 5)
    for task in tasks:
        await stop_task(task)
    assert len(await two.versions()) == 5


async def test_several_processes_record_each_version_once(mongo: Mongo, client: Client) -> None:
    """The lease is taken from its holder repeatedly during writes."""
    recordings = [Recording(mongo) for _ in range(3)]
    await recordings[0].begin()
    listeners = [listener_of(mongo, str(n), each) for n, each in enumerate(recordings)]
    tasks = [asyncio.create_task(each.run()) for each in listeners]
    things = client[mongo.name].things
    leases = client[mongo.name]["revstream.leases"]
    things.insert_many([{"_id": n} for n in range(4)])
    for n in range(30):
        things.update_many({}, {"$set": {"n": n}})
        if n % 3 == 0:
            leases.update_one({"_id": NAME}, {"$set": {"expiresAt": datetime(2000, 1, 1)}})
        await turn()
    await eventually(lambda: archived(client, mongo) == 4 * 31, within_s=30)
    for task in tasks:
        await stop_task(task)
    records = await recordings[0].versions()
    assert [n for _, n, _ in outline(records, 2)] == list(range(1, 32))
    assert not any(gap for _, _, gap in outline(records))


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_a_recorder_restarts_after_a_connection_lost_during_a_write(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election does not end the process; nothing is lost or repeated."""
    recording = Recording(mongo)
    await recording.begin()
    insert, failures = recording.archive.insert, 2

    async def cut_off(*args: Any) -> bool:
        nonlocal failures
        done = await insert(*args)
        if args[0] and failures:
            failures -= 1
            raise Unavailable("the connection to MongoDB was lost")
        return done

    monkeypatch.setattr(recording.archive, "insert", cut_off)
    listener = listener_of(mongo, "one", recording)
    task = asyncio.create_task(listener.run())
    things = client[mongo.name].things
    things.insert_one({"_id": 1})
    await eventually(lambda: failures == 1)
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    await eventually(lambda: failures == 0)
    things.update_one({"_id": 1}, {"$set": {"n": 2}})
    await eventually(lambda: archived(client, mongo) == 3)
    assert listener.changes == 3
    await stop_task(task)
    assert [n for _, n, _ in outline(await recording.versions())] == [1, 2, 3]


async def test_a_task_whose_checkpoint_is_refused_releases_its_lease(
    mongo: Mongo, client: Client
) -> None:
    """A newer fencing token is stored: the work ends, and the process acquires the lease again."""
    recording = Recording(mongo)
    await recording.begin()
    client[mongo.name]["revstream.checkpoints"].update_one({}, {"$set": {"fencingToken": 3}})
    refused = []

    async def work(fencing_token: int) -> None:
        try:
            await recording.recorder.run(fencing_token)
        except LeaseLost:
            refused.append(fencing_token)
            raise

    listener = LeasedTask(NAME, Leases(mongo, "one", BRISK), work)
    task = asyncio.create_task(listener.run())
    client[mongo.name].things.insert_one({"_id": 1})
    await eventually(lambda: archived(client, mongo) == 1)
    assert refused == [1, 2]
    assert listener.lease is not None
    assert listener.lease.fencing_token == 3
    await stop_task(task)


@pytest.mark.parametrize("first", [True, False])
async def test_a_process_stopped_during_a_lease_request_releases_the_lease(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """MongoDB has executed the acquisition or renewal, although its answer has not arrived."""
    leases = Leases(mongo, "one", BRISK)
    acquire, answered, turns = leases.acquire, asyncio.Event(), 0

    async def slow(name: str) -> Lease | None:
        nonlocal turns
        lease, turns = await acquire(name), turns + 1
        if first or turns > 1:
            await answered.wait()
        return lease

    async def work(fencing_token: int) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(leases, "acquire", slow)
    task = asyncio.create_task(LeasedTask(NAME, leases, work).run())
    stored = client[mongo.name]["revstream.leases"]
    await eventually(lambda: turns == (1 if first else 2))
    assert stored.find_one({"_id": NAME, "holder": "one"}) is not None
    task.cancel()
    await turn()
    answered.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert stored.find_one({"_id": NAME, "holder": "one"}) is None
