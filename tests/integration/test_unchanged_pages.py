"""Pages, and documents that others refer to, that nothing has changed are told without being read;
whatever was acknowledged before they were asked for is in them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from resolvers.current import Current
from streams import tokens, unchanged
from streams.hub import Hub, follow
from streams.mongo import Mongo
from streams.source import Source
from streams.unchanged import Unchanged
from streams.unions import PageUnion
from tests.integration.conftest import Commands, listen
from tests.support.archives import nothing_written
from tests.support.eventually import eventually
from tests.support.shop import SUPPLIER
from tests.support.streams import BRISK

Client = MongoClient[dict[str, Any]]

NAME, SIZE = "things", 60
# Reads until a page is told without one: each may come before the stream has.
MOST = 2000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_QUIET_S", 0)


@pytest.fixture
def things(client: Client, database_name: str) -> Collection[dict[str, Any]]:
    """Acknowledged before a majority has them."""
    stored = client[database_name].get_collection(NAME, write_concern=WriteConcern(w=1))
    stored.insert_many([{"_id": n, "n": n} for n in range(2 * SIZE)])
    return stored


@asynccontextmanager
async def followed(mongo: Mongo, *names: str) -> AsyncIterator[Hub]:
    collections = names or (NAME,)
    hub = Hub(collections, position=tokens.moment(await mongo.operation_time()))
    known(mongo).follow(hub, collections)
    following = asyncio.create_task(
        follow(Source(mongo, collections, before_images=False, options=BRISK), hub)
    )
    try:
        yield hub
    finally:
        following.cancel()
        await asyncio.wait([following])


def known(mongo: Mongo) -> Unchanged:
    assert mongo.unchanged is not None
    return mongo.unchanged


async def page(mongo: Mongo, below: int = 1000, size: int = SIZE) -> list[dict[str, Any]]:
    query = {"n": {"$lt": below}}
    return await mongo.find(NAME, query, sort=[("_id", 1)], limit=size, naive=True)


async def together(mongo: Mongo, *below: int, size: int = 5) -> list[list[dict[str, Any]]]:
    queries = [{"n": {"$lt": each}} for each in below]
    union = PageUnion(queries=queries, projection={"n": 1}, sort=[("_id", 1)], limit=size)
    found = await mongo.find_each(NAME, union, most_s=30.0)
    assert found is not None
    return found


async def until_told(mongo: Mongo) -> None:
    before = known(mongo).told
    for _ in range(MOST):
        await page(mongo)
        if known(mongo).told > before:
            return
    raise AssertionError(f"read {MOST} times")


def sent(started: list[str]) -> list[str]:
    """Without the stream's."""
    return [each for each in started if each != "getMore"]


async def test_the_time_is_asked_for_in_its_place(
    counted: Mongo, commands: Commands, things: Collection[dict[str, Any]]
) -> None:
    """Once for all that ask in one turn; another filter, and a short page, are read."""
    async with followed(counted):
        for _ in range(MOST):
            with commands.counting() as started:
                found = await asyncio.gather(*(page(counted) for _ in range(9)))
            assert found == [[{"_id": n, "n": n} for n in range(SIZE)]] * 9
            if sent(started) == ["hello"]:
                break
        assert sent(started) == ["hello"]
        with commands.counting() as started:
            assert len(await page(counted, 70)) == SIZE
            assert len(await page(counted, size=51)) == 51
            assert len(await page(counted, size=51)) == 51
        assert sent(started) == ["find"] * 3


async def test_of_short_pages_asked_for_together_those_are_read_that_are_not_known(
    counted: Mongo, commands: Commands, things: Collection[dict[str, Any]]
) -> None:
    """By one command; none where all are known."""

    def wanted(*below: int) -> list[list[dict[str, Any]]]:
        return [[{"_id": n, "n": n} for n in range(min(each, 5))] for each in below]

    async with followed(counted):
        for _ in range(MOST):
            with commands.counting() as started:
                assert await together(counted, 3, 0, 9) == wanted(3, 0, 9)
            if sent(started) == ["hello"]:
                break
        assert sent(started) == ["hello"]
        with commands.counting() as started:
            assert await together(counted, 4, 0, 2, 3) == wanted(4, 0, 2, 3)
        assert sent(started) == ["hello", "aggregate"]
        with commands.counting() as started:
            assert len((await together(counted, 9, 0, size=7))[0]) == 7
        assert sent(started) == ["aggregate"]


async def test_whatever_was_acknowledged_is_in_it(
    mongo: Mongo, client: Client, things: Collection[dict[str, Any]]
) -> None:
    dice = random.Random(5)
    beside = client[mongo.name]["beside"]
    async with followed(mongo):
        for step in range(600):
            match dice.randrange(8):
                case 0:
                    things.update_one({"_id": dice.randrange(SIZE)}, {"$set": {"n": step % 99}})
                case 1:
                    things.delete_one({"_id": dice.randrange(SIZE)})
                case 2:
                    things.replace_one({"_id": dice.randrange(SIZE)}, {"n": step % 99}, upsert=True)
                case 3:
                    beside.insert_one({})
                case 4 if dice.randrange(8) == 0:
                    await until_told(mongo)
            below = dice.choice([50, 1000])
            stored = things.find({"n": {"$lt": below}}).sort("_id", 1).limit(SIZE)
            first = [*stored]
            assert await page(mongo, below) == first
            assert await together(mongo, below, 7) == [
                first[:5],
                [*things.find({"n": {"$lt": 7}}).sort("_id", 1).limit(5)],
            ]
    # Else nothing was tested.
    assert known(mongo).told > 20


@pytest.fixture
def suppliers(client: Client, database_name: str) -> Collection[dict[str, Any]]:
    """Acknowledged before a majority has them."""
    concern = WriteConcern(w=1)
    stored = client[database_name].get_collection(SUPPLIER.collection, write_concern=concern)
    stored.insert_many([{"_id": n, "name": f"Supplier {n}"} for n in range(20)])
    return stored


async def referred_to(mongo: Mongo, ids: list[int]) -> list[dict[str, Any] | None]:
    """As behind a page of things."""
    begun = time.monotonic()
    await page(mongo, size=5)
    current = Current(mongo, {}, nothing_written())
    fields = frozenset({"name"})
    told = current.unchanged(SUPPLIER, ids, fields, begun=begun)
    return [*await current.by_ids(SUPPLIER, ids, fields, shown=True)] if told is None else [*told]


async def test_what_is_referred_to_takes_no_command_of_its_own(
    counted: Mongo,
    commands: Commands,
    things: Collection[dict[str, Any]],
    suppliers: Collection[dict[str, Any]],
) -> None:
    """Those that are not there included; others are read."""
    async with followed(counted, NAME, SUPPLIER.collection):
        wanted = [{"_id": 3, "name": "Supplier 3"}, None, {"_id": 1, "name": "Supplier 1"}]
        for _ in range(MOST):
            with commands.counting() as started:
                assert await referred_to(counted, [3, 99, 1]) == wanted
            if sent(started) == ["find"]:
                break
        assert sent(started) == ["find"]
        assert known(counted).told_by_name == 3
        with commands.counting() as started:
            assert await referred_to(counted, [3, 2]) == [
                wanted[0],
                {"_id": 2, "name": "Supplier 2"},
            ]
        assert sent(started) == ["find"] * 2


async def test_of_many_that_are_looked_up_the_time_is_asked_for_in_their_place(
    counted: Mongo, commands: Commands, suppliers: Collection[dict[str, Any]]
) -> None:
    """Those that are not there included; few are read, and so are others, and what is not only
    shown."""
    reads, fields = Current(counted, {}, nothing_written()), frozenset({"name"})

    async def looked_up(*ids: int, shown: bool = True) -> list[Any]:
        found = await reads.by_ids(SUPPLIER, ids, fields, shown=shown)
        return [each and each["name"] for each in found]

    async with followed(counted, SUPPLIER.collection):
        for _ in range(MOST):
            with commands.counting() as started:
                found = await asyncio.gather(*(looked_up(n, 99) for n in range(4)))
            assert found == [[f"Supplier {n}", None] for n in range(4)]
            if sent(started) == ["hello"]:
                break
        assert sent(started) == ["hello"]
        with commands.counting() as started:
            assert await looked_up(0, 1, 2) == ["Supplier 0", "Supplier 1", "Supplier 2"]
            assert (await looked_up(0, 1, 2, 4))[3] == "Supplier 4"
            assert (await looked_up(0, 1, 2, 3, shown=False))[3] == "Supplier 3"
        assert sent(started) == ["find"] * 3


async def test_whatever_was_acknowledged_is_in_what_is_referred_to(
    mongo: Mongo,
    client: Client,
    things: Collection[dict[str, Any]],
    suppliers: Collection[dict[str, Any]],
) -> None:
    dice = random.Random(7)
    reads = Current(mongo, {}, nothing_written())
    beside = client[mongo.name]["beside"]
    async with followed(mongo, NAME, SUPPLIER.collection):
        for step in range(1500):
            match dice.randrange(12):
                case 0:
                    suppliers.update_one({"_id": dice.randrange(20)}, {"$set": {"name": str(step)}})
                case 1:
                    suppliers.delete_one({"_id": dice.randrange(20)})
                case 2:
                    one = {"_id": dice.randrange(20)}
                    suppliers.replace_one(one, {"name": str(step)}, upsert=True)
                case 3:
                    beside.insert_one({})
            ids = dice.sample(range(20), 3)
            assert await referred_to(mongo, ids) == [suppliers.find_one({"_id": n}) for n in ids]
            many = dice.sample(range(12), 5)
            found = await reads.by_ids(SUPPLIER, many, frozenset({"name"}), shown=True)
            assert found == [suppliers.find_one({"_id": n}) for n in many]
    # Else nothing was tested.
    assert known(mongo).told_by_name > 20


async def test_a_collection_that_goes_is_gone(
    mongo: Mongo, client: Client, things: Collection[dict[str, Any]]
) -> None:
    async with followed(mongo):
        await until_told(mongo)
        things.rename("others")
        assert await page(mongo) == []
        client[mongo.name]["others"].rename(NAME)
        assert len(await page(mongo)) == SIZE
        await until_told(mongo)
        client.drop_database(mongo.name)
        assert await page(mongo) == []


async def test_a_stream_that_stands_still_says_nothing(
    counted: Mongo,
    commands: Commands,
    things: Collection[dict[str, Any]],
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And while MongoDB is known to be ahead of it, its time is not asked for again."""
    async with followed(counted) as hub:
        await until_told(counted)
        monkeypatch.setattr(hub, "publish", lambda batch: None)
        client[counted.name]["beside"].insert_one({})
        with commands.counting() as started:
            for _ in range(5):
                await page(counted)
        assert sent(started) == ["hello", *["find"] * 5]


async def test_what_begins_anew_knows_nothing(
    counted: Mongo, commands: Commands, things: Collection[dict[str, Any]]
) -> None:
    """A stream that was interrupted, and a connection that was lost: it may have been to a primary
    whose last writes are undone."""
    async with followed(counted) as hub:
        await until_told(counted)
        hub.restart(hub.position)
        with commands.counting() as started:
            await page(counted)
        assert sent(started) == ["find"]
        await until_told(counted)
        wires = counted.wires
        assert wires is not None
        lost = [*wires.open]
        for each in lost:
            each.close()
        for each in lost:
            await each.lost.wait()
        await eventually(lambda: not wires.open.intersection(lost))
        with commands.counting() as started:
            await page(counted)
        assert "hello" not in started
        assert "find" in started


async def test_documents_that_have_left_take_their_pages_with_them(
    counted: Mongo, commands: Commands, things: Collection[dict[str, Any]]
) -> None:
    async with followed(counted):
        await until_told(counted)
        counted.interning.left += 1
        with commands.counting() as started:
            await page(counted)
        assert sent(started) == ["find"]


async def test_reads_that_wait_for_a_majority_are_made(
    monkeypatch: pytest.MonkeyPatch,
    mongo_uri: str,
    database_name: str,
    commands: Commands,
    things: Collection[dict[str, Any]],
) -> None:
    listen(monkeypatch, commands)
    uri = f"{mongo_uri}{'&' if '?' in mongo_uri else '?'}readConcernLevel=majority"
    async with Mongo.connect(uri, database_name) as mongo, followed(mongo):
        with commands.counting() as started:
            for _ in range(20):
                assert len(await page(mongo)) == SIZE
        assert "hello" not in started
        assert started.count("find") == 20


async def test_what_changes_soon_again_is_not_asked_about(
    counted: Mongo,
    commands: Commands,
    things: Collection[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with followed(counted):
        await until_told(counted)
        monkeypatch.setattr(unchanged, "_QUIET_S", 3600)
        with commands.counting() as started:
            for _ in range(3):
                await page(counted)
        assert sent(started) == ["find"] * 3
