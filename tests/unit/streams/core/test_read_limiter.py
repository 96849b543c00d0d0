"""Read limiter: classes of reads, and their separate slots."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.errors import TimeLimit
from revstream.streams.core.read_limiter import READ_SLOTS, ReadClass, ReadLimiter
from tests.support.eventually import eventually

LOOKUP, INDEXED, SCAN = ReadClass.LOOKUP, ReadClass.INDEXED, ReadClass.SCAN
ANY: Any = {"$gt": 5}
CLASSES: dict[str, tuple[dict[str, Any], list[tuple[str, int]], int, ReadClass]] = {
    "by id": ({"_id": "p1"}, [], 0, LOOKUP),
    "by ids": ({"_id": {"$in": [1, 2]}, "text": {"$regex": "x"}}, [], 0, LOOKUP),
    "by many ids": ({"_id": {"$in": list(range(101))}}, [("n", 1)], 21, INDEXED),
    "by id and a rule": ({"$and": [{"owner": "ann"}, {"_id": 5}]}, [], 0, LOOKUP),
    "a first page": ({}, [("_id", 1)], 21, INDEXED),
    "the next page": ({"_id": {"$gt": "p20"}}, [("_id", 1)], 21, INDEXED),
    "all": ({}, [("_id", 1)], 0, SCAN),
    "an indexed field": ({"sku": "a"}, [("_id", 1)], 21, INDEXED),
    "an indexed field and another": ({"sku": {"$in": ["a"]}, "n": ANY}, [("_id", 1)], 21, INDEXED),
    "a range of an indexed field": ({"sku": {"$gte": "a", "$lt": "b"}}, [], 21, INDEXED),
    "a text at the start": ({"sku": {"$regex": "^a"}}, [], 21, INDEXED),
    "a text inside": ({"sku": {"$regex": "a"}}, [], 21, SCAN),
    "a range and another field": ({"sku": {"$gte": ""}, "n": 5}, [("_id", 1)], 21, SCAN),
    "a field without an index": ({"n": 5}, [("_id", 1)], 21, SCAN),
    "the second field of an index": ({"b": 5}, [("_id", 1)], 21, SCAN),
    "an order with an index": ({}, [("a", -1), ("b", -1)], 21, INDEXED),
    "an order without one": ({}, [("b", 1), ("a", 1)], 21, SCAN),
    "any of indexed ones": ({"$or": [{"sku": "a"}, {"a": 5, "n": 1}]}, [], 21, INDEXED),
    "any of others": ({"$or": [{"sku": "a"}, {"n": 5}]}, [], 21, SCAN),
    "words of a text index": ({"$and": [{"$text": {}}, {"n": 5}]}, [("n", 1)], 21, INDEXED),
    "a region of an index": ({"sku": {"$geoWithin": {"$geometry": {}}}, "n": 5}, [], 21, INDEXED),
    "a box": ({"sku": {"$geoWithin": {"$box": []}}}, [], 21, SCAN),
    "a region without an index": ({"n": {"$geoWithin": {"$geometry": {}}}}, [], 21, SCAN),
    "none of them": ({"sku": {"$ne": "a"}}, [("_id", 1)], 21, SCAN),
}


def limiter() -> ReadLimiter:
    created = ReadLimiter()
    created.indexes["things"] = [("sku",), ("a", "b")]
    return created


@pytest.mark.parametrize(("query", "sort", "limit", "expected"), CLASSES.values(), ids=CLASSES)
def test_the_class_of_a_read(
    query: dict[str, Any], sort: list[tuple[str, int]], limit: int, expected: ReadClass
) -> None:
    """The class depends on query, order and the existing indexes; pipelines are classified too."""
    assert limiter().class_of_find("things", query, sort, limit) is expected
    stages: list[dict[str, Any]] = [{"$match": query}]
    stages += [{"$sort": dict(sort)}] if sort else []
    stages += [{"$limit": limit}] if limit else []
    assert limiter().class_of_pipeline("things", stages) is expected


async def test_lookups_and_indexed_pages_do_not_wait_for_scans() -> None:
    """The number of scans and their callers do not matter."""
    reads, operations = limiter(), ConcurrencyLimiter(executing=0)
    stuck, running = asyncio.Event(), []

    async def scan(caller: str) -> None:
        async def attempt(_: int, read_class: ReadClass) -> None:
            running.append(caller)
            await stuck.wait()

        async with operations.slot(caller):
            await reads.run(SCAN, attempt, 1000)

    async def quick(_: int, read_class: ReadClass) -> str:
        return "done"

    scans = [asyncio.create_task(scan(each)) for each in ["ann"] * 30 + ["bob"] * 30]
    await eventually(lambda: len(running) == 4)
    assert sorted(running) == ["ann", "ann", "bob", "bob"]
    async with asyncio.timeout(5), operations.slot("ann"):
        assert await reads.run(LOOKUP, quick, 1000) == "done"
        assert await reads.run(INDEXED, quick, 1000) == "done"
    stuck.set()
    await asyncio.gather(*scans)


async def test_an_indexed_read_that_is_slow_becomes_a_scan() -> None:
    """It is repeated in a scan slot with the full time limit."""
    reads, operations, given = limiter(), ConcurrencyLimiter(), []

    async def attempt(limit_ms: int, read_class: ReadClass) -> str:
        given.append((limit_ms, read_class))
        if limit_ms < 30_000:
            raise TimeLimit("too long")
        return "done"

    async with operations.slot("ann"):
        assert await reads.run(INDEXED, attempt, 30_000) == "done"
    assert given == [(500, INDEXED), (30_000, SCAN)]


async def test_a_scan_of_few_documents_begins_as_an_indexed_read() -> None:
    """It does not wait for long scans; if it is slow, it is repeated as a scan, and counts once."""
    reads, operations, given = limiter(), ConcurrencyLimiter(limits=OperationLimits(cost=15)), []
    reads.sizes["things"] = 10_000

    async def attempt(limit_ms: int, read_class: ReadClass) -> str:
        given.append((limit_ms, read_class))
        if limit_ms < 30_000:
            raise TimeLimit("too long")
        return "done"

    async with operations.slot("ann"):
        assert await reads.run(SCAN, attempt, 30_000, "things") == "done"
    assert given == [(500, INDEXED), (30_000, SCAN)]
    given.clear()
    # The documents are large, and the next read is a scan at once.
    async with operations.slot("ann"):
        assert await reads.run(SCAN, attempt, 30_000, "things") == "done"
    assert given == [(30_000, SCAN)]
    given.clear()
    reads.sizes["other"] = 10_001
    async with operations.slot("ann"):
        assert await reads.run(SCAN, attempt, 30_000, "other") == "done"
    assert given == [(30_000, SCAN)]


async def test_scans_cost_by_the_size_of_the_collection() -> None:
    """An indexed read costs as much only if it becomes a scan."""
    reads, operations = limiter(), ConcurrencyLimiter(limits=OperationLimits(cost=100))
    reads.sizes["things"] = 40_000

    async def quick(_: int, read_class: ReadClass) -> str:
        return "done"

    async def slow(limit_ms: int, read_class: ReadClass) -> str:
        if read_class is INDEXED:
            raise TimeLimit("too long")
        return "done"

    async with operations.slot("ann"):
        for _ in range(9):
            assert await reads.run(INDEXED, quick, 30_000, "things") == "done"
        assert await reads.run(SCAN, quick, 30_000, "things") == "done"
        assert await reads.run(INDEXED, slow, 30_000, "things") == "done"
        with pytest.raises(
            LimitExceeded, match="120,000 documents that the operation reads without"
        ) as refused:
            await reads.run(SCAN, quick, 30_000, "things")
    assert refused.value.facts == {"limit": "max_cost", "asked": 120, "bound": 100}
    async with operations.slot("ann"):
        assert await reads.run(SCAN, quick, 30_000, "things") == "done"


async def test_reads_of_the_process_itself_are_not_limited() -> None:
    """Recorders do not wait for clients."""
    reads, stuck, running = limiter(), asyncio.Event(), []

    async def attempt(limit_ms: int, read_class: ReadClass) -> None:
        running.append(limit_ms)
        await stuck.wait()

    scans = [asyncio.create_task(reads.run(SCAN, attempt, 5)) for _ in range(READ_SLOTS * 2)]
    await eventually(lambda: len(running) == READ_SLOTS * 2)
    stuck.set()
    await asyncio.gather(*scans)


async def test_reads_of_an_operation_are_cancelled_with_its_end() -> None:
    """Such a read runs in a task of its own, such as a loader's, without an awaiting caller."""
    reads, operations = limiter(), ConcurrencyLimiter()
    begun = asyncio.Event()

    async def attempt(_: int, read_class: ReadClass) -> None:
        begun.set()
        await asyncio.Event().wait()

    with pytest.raises(LookupError):
        async with operations.slot("ann"):
            reading = asyncio.create_task(reads.run(SCAN, attempt, 1000))
            await begun.wait()
            raise LookupError
    await asyncio.wait([reading])
    assert reading.cancelled()
