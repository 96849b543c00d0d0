"""Leases, judged by the database's clock.

There is one holder at a time, and the fencing token only grows.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.coordination.lease import Holder, Lease, LeaseOptions, Leases
from revstream.streams.mongo.database import Mongo

Client = MongoClient[dict[str, Any]]
NAME = "recorder:things"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def stored(client: Client, mongo: Mongo) -> dict[str, Any]:
    found = client[mongo.name]["revstream.leases"].find_one({"_id": NAME})
    assert found is not None
    return found


def run_out(client: Client, mongo: Mongo) -> None:
    """Let the lease expire: the stored time is moved, since the database's clock cannot be."""
    client[mongo.name]["revstream.leases"].update_one(
        {"_id": NAME}, {"$set": {"expiresAt": LONG_AGO}}
    )


async def acquired(leases: Leases) -> Lease:
    lease = await leases.acquire(NAME)
    assert lease is not None
    return lease


async def test_the_first_caller_gets_the_lease(mongo: Mongo, client: Client) -> None:
    """It has fencing token 1 and an expiry set by the database."""
    before = time.monotonic()
    lease = await acquired(Leases(mongo, "one"))
    assert (lease.name, lease.holder, lease.fencing_token) == (NAME, "one", 1)
    assert before + 10 <= lease.expires_at <= time.monotonic() + 10
    assert not lease.expired
    found = stored(client, mongo)
    now = client.admin.command("hello")["localTime"].replace(tzinfo=UTC)
    assert timedelta(0) < found["expiresAt"] - now <= timedelta(seconds=10)


async def test_another_holder_is_refused_until_the_lease_ends(mongo: Mongo) -> None:
    """The attempt changes nothing; other names are free."""
    lease = await acquired(Leases(mongo, "one"))
    other = Leases(mongo, "two")
    assert await other.acquire(NAME) is None
    assert await other.acquire("recorder:other") is not None
    assert (await acquired(Leases(mongo, "one"))).fencing_token == lease.fencing_token


async def test_renewing_keeps_the_fencing_token_and_moves_the_end(
    mongo: Mongo, client: Client
) -> None:
    """The same holder continues, even after the lease ran out, if no other process took it."""
    one = Leases(mongo, "one")
    lease = await acquired(one)
    end = stored(client, mongo)["expiresAt"]
    renewed = await acquired(one)
    assert renewed.fencing_token == lease.fencing_token
    assert renewed.expires_at > lease.expires_at
    assert stored(client, mongo)["expiresAt"] > end
    run_out(client, mongo)
    assert (await acquired(one)).fencing_token == lease.fencing_token


async def test_a_change_of_holder_increases_the_fencing_token(mongo: Mongo, client: Client) -> None:
    """Any process may take an expired lease.

    The former holder gets it back later, with a new token.
    """
    one, two = Leases(mongo, "one"), Leases(mongo, "two")
    await acquired(one)
    run_out(client, mongo)
    assert (await acquired(two)).fencing_token == 2
    assert await one.acquire(NAME) is None
    run_out(client, mongo)
    assert (await acquired(one)).fencing_token == 3


async def test_release_frees_it_at_once_and_never_restarts_the_fencing_token(
    mongo: Mongo, client: Client
) -> None:
    """The document stays; the fencing token grows even for the same holder."""
    one = Leases(mongo, "one")
    await one.release(await acquired(one))
    found = stored(client, mongo)
    assert "holder" not in found
    assert "expiresAt" not in found
    assert (await acquired(Leases(mongo, "two"))).fencing_token == 2
    await Leases(mongo, "two").release(Lease(NAME, "two", 2, 0.0))
    assert (await acquired(one)).fencing_token == 3


async def test_a_late_release_does_not_free_the_next_lease(mongo: Mongo, client: Client) -> None:
    """The next lease may be another holder's, or the same holder's new one."""
    one, two = Leases(mongo, "one"), Leases(mongo, "two")
    old = await acquired(one)
    run_out(client, mongo)
    await acquired(two)
    await one.release(old)
    assert stored(client, mongo)["holder"] == "two"
    run_out(client, mongo)
    new = await acquired(one)
    await one.release(old)
    assert stored(client, mongo)["fencingToken"] == new.fencing_token
    assert stored(client, mongo)["holder"] == "one"


async def test_of_many_concurrent_callers_one_gets_the_lease(mongo: Mongo) -> None:
    """This holds before the document exists, too."""
    found = await asyncio.gather(*(Leases(mongo, str(n)).acquire(NAME) for n in range(8)))
    leases = [each for each in found if each is not None]
    assert [each.fencing_token for each in leases] == [1]
    assert (await acquired(Leases(mongo, leases[0].holder))).fencing_token == 1


async def test_the_holders_of_leases_can_be_read(mongo: Mongo, client: Client) -> None:
    """Leases are live, expired or released; a name that was never held is left out."""
    one = Leases(mongo, "one")
    lease = await acquired(one)
    names = [NAME, "never"]
    assert await one.holders(names) == {NAME: Holder("one", 1, live=True)}
    run_out(client, mongo)
    assert await one.holders(names) == {NAME: Holder("one", 1, live=False)}
    await one.release(lease)
    assert await one.holders(names) == {NAME: Holder(None, 1, live=False)}


def test_a_renewal_interval_longer_than_the_lease_is_refused() -> None:
    """The lease would expire between two renewals."""
    with pytest.raises(ValueError, match=r"renew_every_s: 5, expected .* duration_s, 5"):
        LeaseOptions(duration_s=5, renew_every_s=5)
    with pytest.raises(ValueError, match="renew_every_s"):
        LeaseOptions(renew_every_s=0)


def test_a_lease_expires_by_this_process_s_own_monotonic_clock() -> None:
    """A holder knows without a read that the lease may have expired."""
    assert Lease(NAME, "one", 1, time.monotonic() - 1).expired
    assert not Lease(NAME, "one", 1, time.monotonic() + 60).expired
