"""Writes over connections of their own: each is made once, whatever becomes of a connection; those
that one message will not do for are the driver's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from streams.client import MongoOptions
from streams.errors import DatabaseError, DuplicateKey, Unavailable
from streams.mongo import Mongo
from streams.short_writes import ShortWrites
from streams.wire import WireConnection
from tests.support.bare_mongod import BareMongod, failing, short_lived_replica_set
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]

INTERRUPTED = 11602  # InterruptedDueToReplStateChange
UNCONFIRMED = {
    "writeConcernError": {"code": INTERRUPTED, "errmsg": "operation was interrupted"},
    "errorLabels": ["RetryableWriteError"],
}
LOST = {"closeConnection": True}
REFUSED = {"errorCode": INTERRUPTED, "errorLabels": ["RetryableWriteError"]}


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """One that does what tests tell it to."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


@pytest.fixture
def direct(server: BareMongod) -> Iterator[Client]:
    with MongoClient[dict[str, Any]](f"127.0.0.1:{server.port}", directConnection=True) as client:
        yield client


@pytest.fixture
async def mongo(server: BareMongod, database_name: str) -> AsyncIterator[Mongo]:
    async with Mongo.connect(server.uri, database_name) as mongo:
        yield mongo


def writes_of(mongo: Mongo) -> ShortWrites:
    assert mongo._writes is not None
    return mongo._writes


def connections_of(mongo: Mongo) -> set[WireConnection]:
    """The open ones, as nothing is read here by one; the set goes on being theirs."""
    assert mongo.wires is not None
    return mongo.wires.open


async def count(mongo: Mongo) -> Any:
    """Change a document in a way that shows how often."""
    made = await mongo.find_one_and_update("things", {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    assert made is not None
    return made["n"]


async def test_writes_one_after_the_other_share_a_connection_and_a_session(mongo: Mongo) -> None:
    """Those at once have one each."""
    for n in range(5):
        assert await count(mongo) == n + 1
        await mongo.insert_in_order("others", [{"_id": n}])
        assert await mongo.update_each("others", [({"_id": n}, {"$set": {"n": 1}})]) == 1
    assert (len(connections_of(mongo)), len(writes_of(mongo)._sessions)) == (1, 1)
    await asyncio.gather(*(count(mongo) for _ in range(20)))
    assert await count(mongo) == 26
    assert 1 < len(connections_of(mongo)) <= 16


@pytest.mark.parametrize("how", [UNCONFIRMED, LOST, REFUSED], ids=["done", "lost", "refused"])
async def test_a_write_of_which_it_is_not_known_is_made_once(
    server: BareMongod, mongo: Mongo, how: dict[str, Any]
) -> None:
    """Whether it was made before, or never arrived."""
    with failing(server, "findAndModify", 1, **how):
        assert await count(mongo) == 1
    assert await count(mongo) == 2
    with failing(server, "insert", 1, **how):
        await mongo.insert_in_order("others", [{"_id": n} for n in range(3)])
    assert await mongo.count("others", {}) == 3
    updates = [({"_id": n}, {"$inc": {"n": 1}}) for n in range(4)]
    with failing(server, "update", 1, **how):
        assert await mongo.update_each("others", updates) == 3
    assert await mongo.count("others", {"n": 1}) == 3
    with pytest.raises(DuplicateKey):
        await mongo.insert_in_order("others", [{"_id": 3}, {"_id": 2}, {"_id": 4}])
    assert await mongo.count("others", {}) == 4


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (UNCONFIRMED, "MongoDB has not confirmed a write: operation was interrupted"),
        (LOST, "the connection to MongoDB was lost: connection closed"),
        (REFUSED, "the MongoDB primary has changed; try again"),
    ],
    ids=["done", "lost", "refused"],
)
async def test_what_stays_unknown_is_unavailable(
    server: BareMongod, database_name: str, how: dict[str, Any], said: str
) -> None:
    """And its session is not used again: the server may still be at its write."""
    options = MongoOptions(server_selection_s=0.2)
    async with Mongo.connect(server.uri, database_name, options=options) as mongo:
        await count(mongo)
        with failing(server, "findAndModify", 1000, **how), pytest.raises(Unavailable) as raised:
            await count(mongo)
        assert raised.value.message == said
        await count(mongo)
        assert len(writes_of(mongo)._sessions) == 1


async def test_a_write_waits_for_a_primary_as_long_as_it_is_to(
    server: BareMongod, direct: Client, database_name: str
) -> None:
    """As the driver's would."""
    quick = MongoOptions(server_selection_s=0.2)
    uri = f"{server.uri}&heartbeatFrequencyMS=500"
    async with (
        Mongo.connect(uri, database_name) as mongo,
        Mongo.connect(uri, database_name, options=quick) as impatient,
    ):
        assert await count(mongo) == 1
        assert await count(impatient) == 2
        direct.admin.command({"replSetStepDown": 3, "force": True})
        with pytest.raises(Unavailable):
            await count(impatient)
        assert await count(mongo) == 3


async def test_what_is_refused_is_said_and_the_connection_goes_on(
    mongo: Mongo, direct: Client
) -> None:
    with pytest.raises(DatabaseError, match="Unknown modifier: \\$nonsense") as raised:
        await mongo.find_one_and_update("things", {"_id": 1}, {"$nonsense": {"a": 1}})
    assert raised.value.number == 9
    direct[mongo.name].create_collection("others", validator={"n": {"$lt": 9}})
    with pytest.raises(DatabaseError) as raised:
        await mongo.insert_in_order("others", [{"_id": 1, "n": 1}, {"_id": 2, "n": 9}])
    assert raised.value.number == 121
    assert await mongo.count("others", {}) == 1
    with pytest.raises(DatabaseError) as raised:
        await mongo.update_each("others", [({"_id": 1}, {"$set": {"n": 9}})])
    assert raised.value.number == 121
    assert (len(connections_of(mongo)), len(writes_of(mongo)._sessions)) == (1, 1)


async def test_what_is_too_long_for_a_message_the_driver_divides(mongo: Mongo) -> None:
    """Of 60 MB, which no server takes at once."""
    await mongo.insert_in_order("things", [{"_id": n, "a": "x" * 6_000_000} for n in range(10)])
    assert await mongo.count("things", {}) == 10
    assert not connections_of(mongo)
    updates = [({"_id": n}, {"$set": {"a": "y" * 6_000_000}}) for n in range(3)]
    assert await mongo.update_each("things", updates) == 3
    assert await mongo.count("things", {"a": {"$gt": "y"}}) == 3


@pytest.mark.parametrize("option", ["retryWrites=false", "compressors=zlib"])
async def test_what_the_uri_asks_for_is_kept_to(
    server: BareMongod, database_name: str, option: str
) -> None:
    """The driver does what is not done here."""
    async with Mongo.connect(f"{server.uri}&{option}", database_name) as mongo:
        assert await count(mongo) == 1
        await mongo.insert_in_order("others", [{"_id": 1}])
        assert await mongo.update_each("others", [({"_id": 1}, {"$set": {"n": 1}})]) == 1
        assert not connections_of(mongo)


async def test_where_the_uri_bounds_the_connections_reads_and_writes_leave_each_other_some(
    server: BareMongod, database_name: str
) -> None:
    for most, opened in ((1, 0), (5, 4)):
        async with Mongo.connect(f"{server.uri}&maxPoolSize={most}", database_name) as mongo:
            reads = [mongo.find("things", {}, short=True) for _ in range(40)]
            counted = [count(mongo) for _ in range(40)]
            await asyncio.gather(*reads, *counted)
            assert len(connections_of(mongo)) == opened
            assert await mongo.find("things", {}) == [{"_id": 1, "n": 40 if most == 1 else 80}]


async def test_who_is_cancelled_keeps_no_connection(
    server: BareMongod, mongo: Mongo, direct: Client
) -> None:
    """The server may be at it for as long as no majority answers; nor its session."""
    await count(mongo)
    block = {"blockConnection": True, "blockTimeMS": 2000}
    with failing(server, "findAndModify", 1, **block):
        waiting = asyncio.create_task(count(mongo))
        find = {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}}
        await eventually(
            lambda: any(
                each.get("failpointMsg") or "findAndModify" in each.get("command", {})
                for each in direct.admin.command(find)["cursor"]["firstBatch"]
            )
        )
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await eventually(lambda: not connections_of(mongo))
    assert not writes_of(mongo)._sessions
    assert await count(mongo) in (2, 3)
