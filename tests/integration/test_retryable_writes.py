"""Writes of the archive, of leases and of checkpoints: executed once by the driver's own retries,
whatever happens to a connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.core.errors import DatabaseError, DuplicateKey, Unavailable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from tests.support.bare_mongod import BareMongod, failing, short_lived_replica_set
from tests.support.exhaustive import exhaustive

Client = MongoClient[dict[str, Any]]

INTERRUPTED = 11602  # InterruptedDueToReplStateChange
UNCONFIRMED = {
    "writeConcernError": {"code": INTERRUPTED, "errmsg": "operation was interrupted"},
    "errorLabels": ["RetryableWriteError"],
}
LOST = {"closeConnection": True}
REFUSED = {"errorCode": INTERRUPTED, "errorLabels": ["RetryableWriteError"]}
HOW = pytest.mark.parametrize(
    "how",
    [UNCONFIRMED, pytest.param(LOST, marks=exhaustive), pytest.param(REFUSED, marks=exhaustive)],
    ids=["done", "lost", "refused"],
)


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Start a server with test commands."""
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


async def count(mongo: Mongo) -> Any:
    """Return an update whose number of executions is visible."""
    made = await mongo.find_one_and_update("things", {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    assert made is not None
    return made["n"]


@HOW
async def test_a_write_of_unknown_fate_is_executed_once(
    server: BareMongod, mongo: Mongo, how: dict[str, Any]
) -> None:
    """Either it was executed before, or it never arrived."""
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


@HOW
async def test_a_write_that_stays_unknown_is_unavailable(
    server: BareMongod, database_name: str, how: dict[str, Any]
) -> None:
    """It never counts as executed; the next write succeeds."""
    # A server that has refused is checked again with the next heartbeat.
    uri, options = f"{server.uri}&heartbeatFrequencyMS=500", MongoOptions(server_selection_s=3)
    async with Mongo.connect(uri, database_name, options=options) as mongo:
        await count(mongo)
        with failing(server, "findAndModify", 1000, **how), pytest.raises(Unavailable):
            await count(mongo)
        assert isinstance(await count(mongo), int)


async def test_a_refusal_has_the_servers_own_code(mongo: Mongo, direct: Client) -> None:
    """Other writes of the same command may have been executed."""
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


async def test_a_write_beyond_the_message_limit_is_divided(mongo: Mongo) -> None:
    """It has 60 MB, which no server accepts in one message."""
    await mongo.insert_in_order("things", [{"_id": n, "a": "x" * 6_000_000} for n in range(10)])
    assert await mongo.count("things", {}) == 10


async def test_writes_do_not_use_the_connections_of_reads(
    server: BareMongod, database_name: str
) -> None:
    """If the URI limits the connections, reads keep those reserved for them."""
    for most, opened in ((1, 0), (5, 2)):
        async with Mongo.connect(f"{server.uri}&maxPoolSize={most}", database_name) as mongo:
            await mongo.insert_in_order("things", [{"_id": most}])
            for _ in range(20):
                assert await mongo.find("things", {"_id": most}, FindOptions(short=True)) == [
                    {"_id": most}
                ]
            assert mongo.wires is not None
            assert len(mongo.wires.open) <= opened


async def test_a_transaction_with_a_write_conflict_at_commit_is_repeated(
    server: BareMongod, mongo: Mongo, direct: Client
) -> None:
    """It had no effect before, and is executed once."""
    conflict = {"errorCode": 112, "errorLabels": ["TransientTransactionError"]}
    direct[mongo.name]["things"].insert_one({"_id": 1, "n": 0})

    async def work(writing: WriteSession) -> None:
        await writing.change("things", {"_id": 1}, {"$inc": {"n": 1}})

    with failing(server, "commitTransaction", 3, **conflict):
        await write(mongo, work, transaction=True)
    assert direct[mongo.name]["things"].find_one() == {"_id": 1, "n": 1}
