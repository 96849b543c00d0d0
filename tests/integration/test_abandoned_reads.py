"""Abandoned reads: the server ends them long before their time limit."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]


def running(client: Client, mark: str) -> int:
    """Return the number of the server's operations with a mark in their command."""
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True}},
        {"$match": {"command.filter.mark": mark}},
    ]
    pipelined = [stages[0], {"$match": {"command.pipeline.0.$match.mark": mark}}]
    return sum(len(list(client.admin.aggregate(each))) for each in (stages, pipelined))


@pytest.mark.parametrize("way", ["find", "aggregate", "driver", "snapshot", "pages", "failed"])
async def test_an_abandoned_read_ends_on_the_server(mongo: Mongo, client: Client, way: str) -> None:
    """A read ends by any way of reading, also when the operation has failed."""
    collection, mark = mongo.raw("slow"), uuid4().hex
    await collection.insert_many([{"mark": mark, "n": number} for number in range(200)])
    # Fifty milliseconds for each document.
    query = {"mark": mark, "$where": "sleep(50) || true"}
    limiter = ConcurrencyLimiter()

    async def read() -> None:
        match way:
            case "find" | "failed":
                await mongo.find("slow", query, FindOptions(naive=True))
            case "aggregate":
                await mongo.aggregate("slow", [{"$match": {"mark": mark, **SLOW}}], short=True)
            case "driver":
                await mongo.aggregate("slow", [{"$match": {"mark": mark, **SLOW}}])
            case "pages":
                async for _ in mongo.pages("slow", query, sort=[("_id", 1)], size=500):
                    pass
            case "snapshot":
                now = await mongo.operation_time()
                await mongo.find("slow", query, FindOptions(at=now))

    async def operate() -> None:
        async with limiter.slot("ann"):
            if way == "failed":
                reading = asyncio.create_task(read())
                await eventually(lambda: running(client, mark) == 1)
                assert not reading.done()
                raise LookupError
            await read()

    operation = asyncio.create_task(operate())
    if way != "failed":
        await eventually(lambda: running(client, mark) == 1)
        operation.cancel()
    await asyncio.wait([operation])
    await eventually(lambda: not running(client, mark), within_s=5)


SLOW = {
    "$expr": {
        "$function": {"body": "function() { sleep(50); return true }", "args": [], "lang": "js"}
    }
}
