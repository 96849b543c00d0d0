"""Reads over wire connections: the same documents as with a cursor of the driver, which is used
where one batch or one connection does not suffice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pymongo
import pytest
import uvloop
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from revstream.streams.core.errors import DatabaseError, TimeLimit
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.wire.connection import WireConnection
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FAR = DatetimeMS(2**60)


def connections_of(mongo: Mongo) -> set[WireConnection]:
    """Return the open connections; the set stays current."""
    assert mongo.wires is not None
    return mongo.wires.open


async def test_dates_are_in_utc_and_do_not_say_so(client: Client, mongo: Mongo) -> None:
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "at": NOON, "inside": [{"at": FAR}]} for n in range(3)])
    query = {"_id": {"$gt": 0}}
    found = await mongo.find("things", query, FindOptions(sort=[("_id", -1)], limit=1, naive=True))
    assert [(each["_id"], each["inside"]) for each in found] == [(2, [{"at": FAR}])]
    [date] = {each["at"].replace(tzinfo=UTC) for each in found}
    assert date == NOON
    assert found[0]["at"].tzinfo is None
    assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []


async def test_a_result_of_several_batches_is_complete(client: Client, mongo: Mongo) -> None:
    """A batch ends at 16 MB; the cursor is closed."""
    things = client[mongo.name].things
    for n in range(4):
        things.insert_one({"_id": n, "text": "x" * 7_000_000})
    before = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    found = await mongo.find("things", {}, FindOptions(sort=[("_id", 1)], naive=True))
    assert [each["_id"] for each in found] == [0, 1, 2, 3]
    after = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    assert after <= before


async def test_pipelines_are_read_completely(client: Client, mongo: Mongo) -> None:
    """Short results have one batch, long ones several."""
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "at": NOON} for n in range(3)])
    wanted = [{"$match": {"_id": {"$lt": 2}}}, {"$sort": {"_id": 1}}]
    found = await mongo.aggregate("things", wanted, hint="_id_", naive=True)
    assert [(each["_id"], each["at"].replace(tzinfo=UTC)) for each in found] == [
        (0, NOON),
        (1, NOON),
    ]
    things.update_many({}, {"$set": {"text": "x" * 7_000_000}})
    before = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    found = await mongo.aggregate("things", [{"$sort": {"_id": 1}}], naive=True)
    assert [each["_id"] for each in found] == [0, 1, 2]
    after = client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    assert after <= before
    assert await mongo.aggregate(None, [{"$documents": [{"n": 1}]}], naive=True) == [{"n": 1}]


async def test_a_broken_connection_causes_a_retry(client: Client, mongo: Mongo) -> None:
    """The driver repeats a cursor's read itself; the next read has a connection again."""
    client[mongo.name].things.insert_one({"_id": 1})
    connections = connections_of(mongo)
    slow = asyncio.create_task(
        mongo.find("things", {"$where": "sleep(300) || true"}, FindOptions(naive=True))
    )
    await eventually(lambda: connections)
    for each in list(connections):
        each.close()
    assert await slow == [{"_id": 1}]
    assert not connections
    assert await mongo.find("things", {}, FindOptions(naive=True)) == [{"_id": 1}]
    assert len(connections) == 1


async def test_reads_one_after_the_other_share_a_connection(client: Client, mongo: Mongo) -> None:
    for _ in range(20):
        assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []
    assert len(connections_of(mongo)) == 1


async def test_a_connection_beyond_its_maximum_idle_time_is_not_used(
    client: Client, mongo_uri: str, database_name: str
) -> None:
    """A firewall may have dropped it."""
    async with Mongo.connect(f"{mongo_uri}&maxIdleTimeMS=1", database_name) as mongo:
        connections = connections_of(mongo)
        assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []
        [before] = connections
        await eventually(lambda: before.idle_for(0.001))
        assert await mongo.find("nothing", {}, FindOptions(naive=True)) == []
        assert before.lost.is_set()


async def test_a_refused_read_has_the_error_of_a_cursor(mongo: Mongo) -> None:
    """The connection stays usable."""
    for _ in range(2):
        with pytest.raises(DatabaseError, match="unknown operator: \\$nonsense"):
            await mongo.find("things", {"a": {"$nonsense": 1}}, FindOptions(naive=True))
    assert len(connections_of(mongo)) == 1


@pytest.mark.parametrize(
    "option",
    [
        "compressors=zlib",
        "readPreference=secondaryPreferred",
        "socketTimeoutMS=5000",
        "timeoutMS=5000",
    ],
)
async def test_options_of_the_uri_are_followed(
    option: str, client: Client, mongo_uri: str, database_name: str
) -> None:
    """Reads with compression, secondaries and a wait limit use cursors."""
    client[database_name].things.insert_one({"_id": 1})
    async with Mongo.connect(f"{mongo_uri}&{option}", database_name) as mongo:
        for _ in range(2):
            assert await mongo.find("things", {}, FindOptions(naive=True)) == [{"_id": 1}]
        assert not connections_of(mongo)


async def test_an_unknown_driver_is_logged_once_and_cursors_are_used(
    client: Client,
    mongo: Mongo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its members differ from those that provide connections."""
    client[mongo.name].things.insert_one({"_id": 1})
    selector = "revstream.streams.mongo.driver.pymongo_internals.writable_server_selector"
    monkeypatch.setattr(selector, None)
    for _ in range(2):
        assert await mongo.find("things", {}, FindOptions(naive=True)) == [{"_id": 1}]
    assert not connections_of(mongo)
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(said) == 1
    assert said[0].startswith(
        f"wire connections not used, reads are slower: PyMongo {pymongo.version} has other"
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_being_opened_do_not_delay_the_close(
    make_loop: Callable[[], asyncio.AbstractEventLoop], mongo_uri: str, database_name: str
) -> None:
    """Some are open, some connect, and some reads wait for them."""

    async def come_and_go() -> None:
        async with Mongo.connect(mongo_uri, database_name) as mongo:
            await asyncio.gather(
                *(mongo.find("nothing", {}, FindOptions(naive=True)) for _ in range(32))
            )

    with asyncio.Runner(loop_factory=make_loop) as runner:
        for _ in range(10):
            runner.run(come_and_go())


async def test_a_limit_is_kept_to(client: Client, mongo: Mongo) -> None:
    client[mongo.name].things.insert_one({"_id": 1})
    slow = {"$where": "sleep(20000) || true"}
    mongo.options = type(mongo.options)(driver=mongo.options.driver, read_limit_s=0.2)
    with pytest.raises(TimeLimit):
        await mongo.find("things", slow, FindOptions(naive=True))


async def test_slow_reads_delay_a_quick_one_only_briefly(client: Client, mongo: Mongo) -> None:
    """There are more of them than connections at first."""
    client[mongo.name].things.insert_one({"_id": 1})
    slow = {"$where": "sleep(3000) || true"}
    reading = [
        asyncio.create_task(mongo.find("things", slow, FindOptions(naive=True))) for _ in range(6)
    ]
    # They are in progress, or wait for a connection.
    await asyncio.sleep(0)
    assert await mongo.find("things", {"_id": 1}, FindOptions(naive=True)) == [{"_id": 1}]
    assert not any(each.done() for each in reading)
    assert await asyncio.gather(*reading) == [[{"_id": 1}]] * 6


async def test_an_abandoned_read_is_not_sent(client: Client, mongo: Mongo) -> None:
    """All connections are busy; later reads get their turn."""
    client[mongo.name].things.insert_one({"_id": 1})
    slow = {"$where": "sleep(1000) || true"}
    reading = [
        asyncio.create_task(mongo.find("things", slow, FindOptions(naive=True))) for _ in range(20)
    ]
    gone = asyncio.create_task(
        mongo.find("things", {"$where": "neither()"}, FindOptions(naive=True))
    )
    last = asyncio.create_task(mongo.find("things", {}, FindOptions(naive=True)))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await last == [{"_id": 1}]
    assert await asyncio.gather(*reading) == [[{"_id": 1}]] * 20
