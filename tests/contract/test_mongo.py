"""Reads and writes of MongoDB, with equal results on both drivers."""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.streams.core.errors import (
    DatabaseError,
    DuplicateKey,
    TimeLimit,
    Unavailable,
    Unsuitable,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.driver.codecs import DECODED
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import write
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]


@pytest.fixture(params=["motor", "pymongo"])
def options(request: pytest.FixtureRequest) -> MongoOptions:
    return MongoOptions(driver=request.param, server_selection_s=0.05)


def fill(client: Client, mongo: Mongo, documents: list[dict[str, Any]]) -> None:
    database = client.get_database(mongo.name, codec_options=DECODED)
    database.things.insert_many(documents)


async def test_find_filters_sorts_projects_and_limits(mongo: Mongo, client: Client) -> None:
    """Results are decoded: aware times, UUIDs, and dates beyond Python's range."""
    uuid = Binary.from_uuid(uuid4())
    fill(client, mongo, [{"_id": n, "n": n % 3, "u": uuid} for n in range(6)])
    found = await mongo.find(
        "things", {"n": {"$gt": 0}}, FindOptions(projection={"n": 1}, sort=[("_id", -1)], limit=2)
    )
    assert found == [{"_id": 5, "n": 2}, {"_id": 4, "n": 1}]
    assert (await mongo.find("things", {"_id": 0}))[0]["u"] == uuid
    client[mongo.name].command(
        {
            "update": "things",
            "updates": [{"q": {"_id": 0}, "u": [{"$set": {"d": {"$toDate": 2**62}}}]}],
        }
    )
    assert int((await mongo.find("things", {"_id": 0}))[0]["d"]) == 2**62
    assert await mongo.find("nowhere", {}) == []


async def test_find_returns_raw_documents_if_requested(mongo: Mongo, client: Client) -> None:
    """They are the bytes that the server sent, nested ones too."""
    fill(client, mongo, [{"_id": 1, "a": {"b": 1}}])
    found = (await mongo.find("things", {}, FindOptions(raw=True)))[0]
    assert isinstance(found, RawBSONDocument)
    assert isinstance(found["a"], RawBSONDocument)


async def test_a_read_at_a_cluster_time_has_the_state_of_that_time(
    mongo: Mongo, client: Client
) -> None:
    """find, aggregate, count and pages ignore later updates, inserts and deletes."""
    fill(client, mongo, [{"_id": n, "n": n} for n in range(4)])
    at = await mongo.operation_time()
    things = client[mongo.name].things
    things.update_many({}, {"$inc": {"n": 100}})
    things.delete_one({"_id": 0})
    things.insert_one({"_id": 9})
    expected = [{"_id": n, "n": n} for n in range(4)]
    assert await mongo.find("things", {}, FindOptions(sort=[("_id", 1)], at=at)) == expected
    assert await mongo.find(
        "things",
        {"n": {"$gte": 1}},
        FindOptions(projection={"_id": 1}, sort=[("n", -1)], limit=2, at=at),
    ) == [{"_id": 3}, {"_id": 2}]
    pipeline = [{"$match": {"n": {"$lt": 2}}}, {"$sort": {"_id": 1}}]
    assert await mongo.aggregate("things", pipeline, at=at) == expected[:2]
    raw = await mongo.aggregate("things", pipeline, at=at, raw=True)
    assert [type(each) for each in raw] == [RawBSONDocument] * 2
    assert await mongo.count("things", {}, at=at) == 4
    assert await mongo.count("things", {"n": {"$gt": 100}}) == 3
    assert await mongo.count("things", {"_id": "none"}) == 0
    pages = [page async for page in mongo.pages("things", {}, sort=[("_id", 1)], size=3, at=at)]
    assert pages == [expected[:3], expected[3:]]


async def test_aggregate_runs_on_a_collection_or_on_the_database(
    mongo: Mongo, client: Client
) -> None:
    """Without a collection the pipeline has its own documents; a hint is the index's name."""
    fill(client, mongo, [{"_id": n} for n in range(3)])
    assert await mongo.aggregate("things", [{"$match": {"_id": 1}}], hint="_id_") == [{"_id": 1}]
    assert await mongo.aggregate(None, [{"$documents": [{"a": 1}]}]) == [{"a": 1}]
    with pytest.raises(DatabaseError):
        await mongo.aggregate("things", [{"$match": {}}], hint="none")


async def test_more_than_the_first_batch_is_read(mongo: Mongo, client: Client) -> None:
    """A cursor is read to its end, at a cluster time too."""
    fill(client, mongo, [{"_id": n, "text": "x" * 20} for n in range(250)])
    at = await mongo.operation_time()
    assert len(await mongo.find("things", {})) == 250
    assert len(await mongo.find("things", {}, FindOptions(at=at))) == 250
    assert len(await mongo.aggregate("things", [])) == 250


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_pages_are_bounded_and_complete(mongo: Mongo, client: Client, size: int) -> None:
    """Pages are lists of at most `size`, and none of them is empty."""
    fill(client, mongo, [{"_id": n} for n in range(9)])
    pages = [page async for page in mongo.pages("things", {}, sort=[("_id", -1)], size=size)]
    assert [each["_id"] for page in pages for each in page] == list(range(8, -1, -1))
    assert all(0 < len(page) <= size for page in pages)
    assert [page async for page in mongo.pages("none", {}, sort=[("_id", 1)], size=size)] == []


async def test_closed_pages_free_their_cursor(mongo: Mongo, client: Client) -> None:
    """No cursor stays open on the server when a reader stops early."""
    fill(client, mongo, [{"_id": n} for n in range(9)])

    def cursors() -> list[Any]:
        operations = client.admin.aggregate([{"$currentOp": {"idleCursors": True}}])
        return [each for each in operations if each.get("ns") == f"{mongo.name}.things"]

    async with aclosing(mongo.pages("things", {}, sort=[("_id", 1)], size=2)) as pages:
        await anext(pages)
        assert len(await asyncio.to_thread(cursors)) == 1
    assert await asyncio.to_thread(cursors) == []


async def test_inserts_stop_at_the_first_refused_document(mongo: Mongo, client: Client) -> None:
    """Documents before the duplicate are inserted, those after it are not."""
    fill(client, mongo, [{"_id": 2}])
    with pytest.raises(DuplicateKey, match="2"):
        await mongo.insert_in_order("things", [{"_id": n} for n in range(1, 5)])
    assert await mongo.find("things", {}, FindOptions(sort=[("_id", 1)])) == [
        {"_id": 1},
        {"_id": 2},
    ]
    await mongo.insert_in_order("things", [])


async def test_updates_are_sent_together_and_counted(mongo: Mongo, client: Client) -> None:
    """The count is the number of matched documents, changed or not."""
    fill(client, mongo, [{"_id": n, "n": 0} for n in range(3)])
    updates = [({"_id": n}, {"$set": {"n": n}}) for n in range(5)]
    assert await mongo.update_each("things", updates) == 3
    assert await mongo.update_each("things", []) == 0
    assert await mongo.find("things", {"_id": 2}) == [{"_id": 2, "n": 2}]


async def test_writes_of_many_are_counted_and_refusals_raised(mongo: Mongo, client: Client) -> None:
    """Counts and refusals are read from the server's reply, which alone contains them."""
    fill(client, mongo, [{"_id": n, "n": n % 2} for n in range(5)])
    assert await mongo.update_all("things", {"n": 1}, {"$set": {"n": 3}}) == 2
    assert await mongo.remove_all("things", {"n": 3}) == 2
    client[mongo.name].command("collMod", "things", validator={"n": {"$lt": 9}})
    with pytest.raises(DatabaseError) as raised:
        await mongo.update_all("things", {}, {"$set": {"n": 9}})
    assert raised.value.number == 121


async def test_find_one_and_update_returns_the_document_after_the_change(
    mongo: Mongo, client: Client
) -> None:
    """The result is None without a match; an upsert with a duplicate key raises the error."""
    assert await mongo.find_one_and_update("things", {"_id": 1}, {"$set": {"a": 1}}) is None
    upserted = await mongo.find_one_and_update(
        "things", {"_id": 1}, [{"$set": {"a": {"$add": [1, 1]}}}], upsert=True
    )
    assert upserted == {"_id": 1, "a": 2}
    with pytest.raises(DuplicateKey):
        await mongo.find_one_and_update(
            "things", {"_id": 1, "a": 5}, {"$set": {"b": 1}}, upsert=True
        )


async def test_an_index_is_created_once_and_refused_where_data_break_it(
    mongo: Mongo, client: Client
) -> None:
    """Creating it again changes nothing; a unique index over duplicates is refused."""
    fill(client, mongo, [{"_id": n, "same": 1, "other": n} for n in range(2)])
    for _ in range(2):
        await mongo.create_index("things", [("other", 1)], unique=True)
    with pytest.raises(DuplicateKey):
        await mongo.create_index("things", [("same", 1)], unique=True)
    names = [each["name"] for each in client[mongo.name].things.list_indexes()]
    assert names == ["_id_", "other_1"]


async def test_the_operation_time_grows_with_every_write(mongo: Mongo, client: Client) -> None:
    """It is the position of the last event in the stream."""
    fill(client, mongo, [{"_id": 0}])
    before = await mongo.operation_time()
    fill(client, mongo, [{"_id": 1}])
    wall, after = await mongo.clock()
    assert before < after
    assert await mongo.count("things", {}, at=before) == 1
    assert await mongo.count("things", {}, at=after) == 2
    assert wall.tzinfo is not None
    assert abs(wall.timestamp() - after.time) <= 2


async def test_the_oldest_document_of_another_database_is_found(
    mongo: Mongo, client: Client
) -> None:
    """It is the first in natural order that matches: the oplog entry of one write."""
    fill(client, mongo, [{"_id": 1, "a": 1}])
    client[mongo.name].things.insert_one({"_id": 2})
    namespace = f"{mongo.name}.things"
    entry = await mongo.oldest("oplog.rs", {"op": "i", "ns": namespace}, database="local")
    assert entry is not None
    assert entry["o"]["_id"] == 1
    assert await mongo.oldest("oplog.rs", {"ts": Timestamp(1, 1)}, database="local") is None


async def test_a_read_over_its_limit_is_ended_by_the_server(
    mongo_uri: str, database_name: str, client: Client, options: MongoOptions
) -> None:
    """The error has the code TIMEOUT and a message of the gateway."""
    client[database_name].things.insert_many([{"_id": n} for n in range(50)])
    limits = MongoOptions(driver=options.driver, read_limit_s=0.05)
    # The server takes some time for each document.
    work = {"input": {"$range": [0, 300_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}
    slow = {"$expr": {"$gt": [{"$add": [{"$reduce": work}, "$_id"]}, -1]}}
    async with Mongo.connect(mongo_uri, database_name, options=limits) as mongo:
        at = await mongo.operation_time()
        with pytest.raises(TimeLimit):
            await mongo.find("things", slow)
        with pytest.raises(TimeLimit):
            await mongo.aggregate("things", [{"$match": slow}])
        with pytest.raises(TimeLimit):
            await mongo.find("things", slow, FindOptions(at=at))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_a_server_that_cannot_be_reached_is_unavailable(options: MongoOptions) -> None:
    """The message has neither the URI nor its password, nor the topology."""
    uri = "mongodb://alice:topsecret@127.0.0.1:9/?replicaSet=rs0&authSource=admin"
    async with Mongo.connect(uri, "shop", options=options) as mongo:
        for call in (mongo.operation_time(), mongo.find("things", {})):
            with pytest.raises(Unavailable) as caught:
                await call
            message = caught.value.message
            assert message.startswith("MongoDB cannot be reached")
            for secret in ("topsecret", "alice", "mongodb://", "Topology", "\n"):
                assert secret not in message
    # PyMongo leaves a refused socket to the garbage collector, which would warn in another test.
    del caught, call, mongo
    gc.collect()


async def test_a_wrong_password_is_unsuitable(options: MongoOptions, mongo_uri: str) -> None:
    """A retry does not help, and the message does not repeat the password."""
    uri = f"mongodb://alice:topsecret@{mongo_uri.rpartition('@')[2]}"
    limits = MongoOptions(driver=options.driver, server_selection_s=2)
    async with Mongo.connect(uri, "shop", options=limits) as mongo:
        with pytest.raises(Unsuitable, match="authentication failed") as caught:
            await mongo.operation_time()
    assert "topsecret" not in caught.value.message


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1",
        "mongodb://alice:top@secret@127.0.0.1",
        "mongodb://alice:topsecret@127.0.0.1:99999",
        "mongodb://",
    ],
)
async def test_an_invalid_uri_is_refused_before_any_request(
    options: MongoOptions, uri: str
) -> None:
    """The message has the reason, and does not repeat the URI."""
    with pytest.raises(Unsuitable, match="MongoDB URI: ") as caught:
        async with Mongo.connect(uri, "shop", options=options):
            pass
    assert "secret" not in caught.value.message


async def test_commands_and_their_errors_keep_the_servers_number(mongo: Mongo) -> None:
    """Some callers can continue after certain numbers; the message is one line."""
    assert (await mongo.command({"ping": 1}))["ok"] == 1.0
    assert "version" in await mongo.command({"buildInfo": 1}, database="admin")
    with pytest.raises(DatabaseError) as caught:
        await mongo.command({"collMod": "nowhere"})
    assert caught.value.number == 26
    assert "full error" not in caught.value.message


async def test_a_change_stream_returns_whole_batches(mongo: Mongo, client: Client) -> None:
    """Batches have the postBatchResumeToken of their reply, and so do empty ones."""
    at = await mongo.operation_time()
    fill(client, mongo, [{"_id": n} for n in range(5)])
    pipeline = [{"$changeStream": {"startAtOperationTime": at}}]
    batches: list[int] = []
    async with mongo.change_batches(pipeline, size=2, wait_ms=1) as replies:
        async for reply in replies:
            assert isinstance(reply["token"]["_data"], str)
            batches.append(len(reply["batch"]))
            if sum(batches) == 5 and batches[-1] == 0:
                break
    assert max(batches) == 2


async def test_a_closed_stream_frees_its_cursor(mongo: Mongo, client: Client) -> None:
    """A process that reconnects often leaves no cursors behind on the server."""
    fill(client, mongo, [{"_id": 1}])

    def cursors() -> int:
        found = client.admin.aggregate(
            [
                {"$currentOp": {"idleCursors": True}},
                {"$match": {"ns": f"{mongo.name}.$cmd.aggregate"}},
            ]
        )
        return len(list(found))

    async with mongo.change_batches([{"$changeStream": {}}], size=2, wait_ms=1) as replies:
        await anext(replies)
        # The cursor is not idle while the server produces the next batch.
        await eventually(lambda: cursors() == 1)
    assert await asyncio.to_thread(cursors) == 0


async def test_a_connection_opened_before_the_server_was_ready_is_dropped(
    mongo: Mongo, client: Client
) -> None:
    """It never has sessions; the error allows a retry."""
    await write(mongo, lambda writing: writing.insert("things", {"_id": 1}))
    _end_sessions(mongo)
    with pytest.raises(Unavailable, match="before the server was ready"):
        await write(mongo, lambda writing: writing.insert("things", {"_id": 2}))
    await write(mongo, lambda writing: writing.insert("things", {"_id": 3}))
    assert [each["_id"] for each in client[mongo.name].things.find()] == [1, 3]


async def test_without_the_member_to_drop_it_the_drivers_error_is_raised(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the driver may manage its connections elsewhere."""
    await write(mongo, lambda writing: writing.insert("things", {"_id": 1}))
    for server in _end_sessions(mongo):
        monkeypatch.delattr(type(server.pool), "reset_without_pause")
    with pytest.raises(Unsuitable, match="Sessions are not supported"):
        await write(mongo, lambda writing: writing.insert("things", {"_id": 2}))


def _end_sessions(mongo: Mongo) -> list[Any]:
    driver = vars(mongo._client).get("delegate", mongo._client)
    servers = list(driver._topology._servers.values())
    for server in servers:
        for connection in server.pool.conns:
            connection.supports_sessions = False
    return servers
