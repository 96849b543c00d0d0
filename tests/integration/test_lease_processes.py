"""Leases between processes of the operating system."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]
ROUNDS = 12

# Takes the lease, records that, and releases it, a number of times.
CONTENDER = """
import asyncio, sys
from revstream.streams.coordination.lease import Leases
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.database import Mongo

async def contend(uri, name, driver, holder, rounds):
    async with Mongo.connect(uri, name, options=MongoOptions(driver=driver)) as mongo:
        leases = Leases(mongo, holder)
        done = 0
        while done < rounds:
            lease = await leases.acquire("recorder:things")
            if lease is None:
                continue
            note = {"_id": lease.fencing_token, "holder": holder, "inside": True}
            await mongo.insert_in_order("notes", [note])
            await mongo.update_each("notes", [({"_id": note["_id"]}, {"$set": {"inside": False}})])
            await leases.release(lease)
            done += 1

asyncio.run(contend(*sys.argv[1:5], int(sys.argv[5])))
"""
# Takes the lease, reports that, and never releases it.
HOLDER = """
import asyncio, sys
from revstream.streams.coordination.lease import LeaseOptions, Leases
from revstream.streams.mongo.database import Mongo

async def hold(uri, name):
    async with Mongo.connect(uri, name) as mongo:
        options = LeaseOptions(duration_s=0.5, renew_every_s=0.1)
        lease = await Leases(mongo, "holder", options).acquire("recorder:things")
        print(lease.fencing_token, flush=True)
        await asyncio.Event().wait()

asyncio.run(hold(*sys.argv[1:]))
"""
ROOT = Path(__file__).parents[2]


async def test_processes_that_contend_for_a_lease_hold_it_one_at_a_time(
    mongo_uri: str, database_name: str, client: Client
) -> None:
    """Every fencing token is used once and without a hole, with either driver."""
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                CONTENDER,
                mongo_uri,
                database_name,
                driver,
                holder,
                str(ROUNDS),
            ],
            cwd=ROOT,
        )
        for driver, holder in (("motor", "one"), ("pymongo", "two"))
    ]
    try:
        codes = [await asyncio.to_thread(each.wait, 30) for each in processes]
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert codes == [0, 0]
    notes = list(client[database_name].notes.find().sort("_id", 1))
    # Two holders with one token would have failed to insert their records.
    assert [each["_id"] for each in notes] == list(range(1, 2 * ROUNDS + 1))
    assert {each["inside"] for each in notes} == {False}
    assert {each["holder"] for each in notes} == {"one", "two"}


async def test_the_lease_of_a_killed_process_is_free_after_its_expiry(
    mongo: Mongo, mongo_uri: str
) -> None:
    """No process must notice the death; the next fencing token distinguishes the holders."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, mongo_uri, mongo.name],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "1\n"
        finally:
            process.kill()
    leases = Leases(mongo, "next", LeaseOptions())
    holder = (await leases.holders(["recorder:things"]))["recorder:things"]
    assert holder.holder == "holder"
    taken = []

    async def ask() -> None:
        while not taken:
            lease = await leases.acquire("recorder:things")
            if lease is not None:
                taken.append(lease.fencing_token)

    asking = asyncio.create_task(ask())
    await eventually(lambda: taken)
    await asking
    assert taken == [2]
