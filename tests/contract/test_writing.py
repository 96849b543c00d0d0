"""Writes and their cluster times, on both drivers.

The time is that of the change event; all uses of it depend on this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bson import Int64, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.change_stream import DatabaseChangeStream
from pymongo.errors import InvalidOperation

from revstream.streams.core.errors import DatabaseError, DuplicateKey
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import WriteSession, write
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]
Work = Callable[[WriteSession], Awaitable[Any]]

COUNT = [
    {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}]}}
]


@contextmanager
def watched(client: Client, mongo: Mongo) -> Iterator[DatabaseChangeStream[Any]]:
    """Collect the change events of the test's database from now on, as the driver returns them."""
    client[mongo.name]["things"].insert_many([{"_id": n} for n in range(3)])
    with client[mongo.name].watch() as stream:
        yield stream


def times(stream: DatabaseChangeStream[Any], count: int) -> dict[Any, Timestamp]:
    """Return the times of a number of events, by the document's id."""
    found = [next(stream) for _ in range(count)]
    return {each["documentKey"]["_id"]: each["clusterTime"] for each in found}


async def insert(writing: WriteSession) -> None:
    await writing.insert("things", {"_id": "new"})


async def change(writing: WriteSession) -> None:
    assert await writing.change("things", {"_id": 1}, {"$set": {"a": 1}}) is not None


async def compute(writing: WriteSession) -> None:
    assert await writing.change("things", {"_id": 1}, COUNT) is not None


async def upsert(writing: WriteSession) -> None:
    assert await writing.change("things", {"_id": "new"}, COUNT, upsert=True) is not None


async def remove(writing: WriteSession) -> None:
    assert await writing.remove("things", {"_id": 1}) is not None


async def several(writing: WriteSession) -> None:
    await writing.insert("things", {"_id": "new"})
    assert await writing.remove("things", {"_id": 0}) is not None
    assert await writing.change("others", {"_id": 1}, COUNT, upsert=True) is not None


@pytest.mark.parametrize("transaction", [False, True], ids=["alone", "transaction"])
@pytest.mark.parametrize("work", [insert, change, compute, upsert, remove])
async def test_a_write_returns_the_time_of_its_change_event(
    mongo: Mongo, client: Client, work: Work, transaction: bool
) -> None:
    """This holds alone and in a transaction."""
    with watched(client, mongo) as stream:
        _, at = await write(mongo, work, transaction=transaction)
        [event] = times(stream, 1).values()
    assert at == event


async def test_a_bulk_write_returns_the_time_of_its_last_write(
    mongo: Mongo, client: Client
) -> None:
    """Each write has an event and a time of its own; a reader after the last has seen them all."""
    keys = [0, 1, *(f"new-{n}" for n in range(50))]
    changes = [(key, COUNT) for key in keys]
    with watched(client, mongo) as stream:
        result, at = await write(
            mongo, lambda writing: writing.change_each("things", changes, upsert=True)
        )
        found = times(stream, len(keys))
    assert (result.changed, list(result.conflicts)) == (len(keys), [])
    assert set(found) == set(keys)
    assert at == max(found.values())


async def test_a_transaction_returns_its_one_time(mongo: Mongo, client: Client) -> None:
    """All events of a transaction have the time of its commit."""
    with watched(client, mongo) as stream:
        _, at = await write(mongo, several, transaction=True)
        assert [next(stream)["clusterTime"] for _ in range(3)] == [at] * 3


@pytest.mark.parametrize("transaction", [False, True], ids=["alone", "transaction"])
async def test_thirty_concurrent_writes_return_each_its_own_time(
    mongo: Mongo, client: Client, transaction: bool
) -> None:
    """The time is not that of another write of the server."""

    def work(key: str) -> Work:
        return lambda writing: writing.change("things", {"_id": key}, COUNT, upsert=True)

    keys = [f"key-{n}" for n in range(30)]
    with watched(client, mongo) as stream:
        results = await asyncio.gather(
            *(write(mongo, work(key), transaction=transaction) for key in keys)
        )
        found = times(stream, len(keys))
    assert {key: at for key, (_, at) in zip(keys, results, strict=True)} == found
    assert len(set(found.values())) == 30


async def test_documents_are_returned_raw_and_after_the_write(mongo: Mongo) -> None:
    """They have bytes of their own; the result is None without a match.

    A removed document is returned unchanged.
    """

    async def work(writing: WriteSession) -> list[Any]:
        return [
            await writing.change("things", {"_id": 1, "n": 1}, COUNT),
            await writing.change("things", {"_id": 1}, COUNT, upsert=True),
            await writing.change("things", {"_id": 1}, {"$inc": {"n": Int64(1)}}),
            await writing.remove("things", {"_id": 1}),
            await writing.remove("things", {"_id": 1}),
        ]

    (missed, made, changed, removed, missing), _ = await write(mongo, work)
    assert (missed, missing) == (None, None)
    assert [each["n"] for each in (made, changed, removed)] == [1, 2, 2]
    for each in (made, changed, removed):
        assert isinstance(each, RawBSONDocument)
        assert isinstance(each.raw, bytes)


@pytest.mark.parametrize("transaction", [False, True], ids=["alone", "transaction"])
@pytest.mark.parametrize(
    ("fields", "document"),
    [
        (("_id",), {"_id": 1}),
        (("sku",), {"sku": "a"}),
        (("size.w", "colour"), {"size": {"w": 1}, "colour": "red"}),
    ],
)
async def test_a_duplicate_key_names_its_fields(
    mongo: Mongo, client: Client, fields: tuple[str, ...], document: Any, transaction: bool
) -> None:
    """The error names the dotted, stored fields, after an insert and after an update."""
    things = client[mongo.name]["things"]
    if fields != ("_id",):
        things.create_index([(each, 1) for each in fields], unique=True)
    things.insert_many([{"_id": 1, **document}, {"_id": 2}])

    async def inserting(writing: WriteSession) -> None:
        await writing.insert("things", {"_id": 3, **document})

    with pytest.raises(DuplicateKey) as inserted:
        await write(mongo, inserting, transaction=transaction)
    assert inserted.value.fields == fields
    if fields == ("_id",):
        return

    async def changing(writing: WriteSession) -> None:
        await writing.change("things", {"_id": 2}, {"$set": document})

    with pytest.raises(DuplicateKey) as changed:
        await write(mongo, changing, transaction=transaction)
    assert changed.value.fields == fields


async def test_a_first_insert_that_lost_a_race_is_returned_for_a_retry(
    mongo: Mongo, client: Client
) -> None:
    """It is named by its index; the others of the same command are executed.

    The collection's collation makes two ids equal here, as a race does.
    """
    ci = {"locale": "en", "strength": 2}
    things = client[mongo.name].create_collection("things", collation=ci)
    things.insert_one({"_id": "A"})
    changes = [(key, COUNT) for key in ("x", "a", "y")]
    result, _ = await write(
        mongo, lambda writing: writing.change_each("things", changes, upsert=True)
    )
    assert (result.changed, list(result.conflicts)) == (2, [1])
    assert things.count_documents({}) == 3


async def test_concurrent_first_inserts_lose_none(mongo: Mongo, client: Client) -> None:
    """Eight writers insert each of forty ids: only those returned for a retry are missing."""
    keys = [f"key-{n}" for n in range(40)]

    async def each_once(writing: WriteSession) -> int:
        changed, waiting = 0, [(key, COUNT) for key in keys]
        while waiting:
            result = await writing.change_each("things", waiting, upsert=True)
            changed += result.changed
            waiting = [waiting[place] for place in result.conflicts]
        return changed

    async def writer() -> int:
        changed, _ = await write(mongo, each_once)
        return changed

    assert await asyncio.gather(*(writer() for _ in range(8))) == [40] * 8
    found = client[mongo.name]["things"].find()
    assert {each["_id"]: each["n"] for each in found} == dict.fromkeys(keys, 8)


async def test_a_bulk_write_that_is_refused_otherwise_is_an_error(
    mongo: Mongo, client: Client
) -> None:
    """A duplicate in another unique field is not a race: a retry would fail again."""
    client[mongo.name]["things"].create_index("sku", unique=True)
    same = [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"sku": "a"}]}}]
    with pytest.raises(DuplicateKey) as refused:
        await write(mongo, lambda w: w.change_each("things", [(1, same), (2, same)], upsert=True))
    assert refused.value.fields == ("sku",)
    broken = [{"$replaceWith": {"$toInt": "x"}}]
    with pytest.raises(DatabaseError):
        await write(mongo, lambda w: w.change_each("things", [(1, broken)], upsert=True))


async def test_an_exception_undoes_a_transaction(mongo: Mongo, client: Client) -> None:
    """All of its writes are undone, and the exception is raised unchanged."""

    class Thought(Exception):
        pass

    async def work(writing: WriteSession) -> None:
        await several(writing)
        raise Thought

    client[mongo.name]["things"].insert_one({"_id": 0})
    with pytest.raises(Thought):
        await write(mongo, work, transaction=True)
    assert [each["_id"] for each in client[mongo.name]["things"].find()] == [0]
    assert client[mongo.name]["others"].count_documents({}) == 0


async def test_a_transaction_that_conflicts_is_run_again(mongo: Mongo, client: Client) -> None:
    """It runs until the other one has ended; its result is that of the committed run."""
    things = client[mongo.name]["things"]
    things.insert_one({"_id": 1, "n": 0})
    runs = []

    async def work(writing: WriteSession) -> int:
        runs.append(writing.cluster_time)
        changed = await writing.change("things", {"_id": 1}, COUNT)
        assert changed is not None
        return int(changed["n"])

    with client.start_session() as session:
        session.start_transaction()
        things.update_one({"_id": 1}, {"$inc": {"n": 10}}, session=session)
        writing = asyncio.create_task(write(mongo, work, transaction=True))
        await eventually(lambda: len(runs) > 1)
        session.commit_transaction()
    result, _ = await writing
    assert result == 11
    assert things.find_one() == {"_id": 1, "n": 11}


async def test_a_cancelled_transaction_raises_only_the_cancellation(
    mongo: Mongo, client: Client
) -> None:
    """The driver's thread may have undone it already, which the driver reports as an error."""
    things = client[mongo.name]["things"]
    things.insert_one({"_id": 0})
    written = asyncio.Event()

    async def work(writing: WriteSession) -> None:
        await several(writing)
        written.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise InvalidOperation("Cannot call abortTransaction twice")

    writing = asyncio.create_task(write(mongo, work, transaction=True))
    await written.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert [each["_id"] for each in things.find()] == [0]

    async def wrong(writing: WriteSession) -> None:
        raise InvalidOperation("not to be done")

    with pytest.raises(DatabaseError, match="not to be done"):
        await write(mongo, wrong, transaction=True)
