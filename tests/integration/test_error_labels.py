"""Labels of a server's errors: transient and final errors of a change stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.streams.changefeed.source import Source
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, Unavailable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.streams import BRISK

Client = MongoClient[dict[str, Any]]

# IngressRequestRateLimitExceeded, of servers newer than the one of these tests.
_OVERLOADED = 462


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Start a MongoDB that can be made to fail."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


@pytest.fixture(params=["motor", "pymongo", "motor, without wire connections"])
async def mongo(server: BareMongod, request: pytest.FixtureRequest) -> AsyncIterator[Mongo]:
    driver, *unwired = request.param.split(", ")
    name = f"labels_{uuid4().hex[:8]}"
    async with Mongo.connect(server.uri, name, options=MongoOptions(driver=driver)) as mongo:
        wires = mongo.wires
        if unwired:
            mongo.wires = None
        yield mongo
        mongo.wires = wires


@contextmanager
def failing(server: BareMongod, command: str, *labels: str, times: int = 5) -> Iterator[None]:
    """Refuse the next `times` of these commands, with these labels."""
    data = {"failCommands": [command], "errorCode": _OVERLOADED, "errorLabels": list(labels)}
    with Client(server.uri) as client:
        fail = {"configureFailPoint": "failCommand", "mode": {"times": times}, "data": data}
        client.admin.command(fail)
        try:
            yield
        finally:
            client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


PASSING = pytest.mark.parametrize(
    "labels",
    [
        ["ResumableChangeStreamError"],
        ["RetryableError"],
        ["SystemOverloadedError", "RetryableError"],
    ],
    ids=",".join,
)


@PASSING
@pytest.mark.parametrize("command", ["aggregate", "getMore"])
async def test_a_stream_continues_after_errors_labelled_as_transient(
    server: BareMongod, mongo: Mongo, command: str, labels: list[str]
) -> None:
    """However many errors there are, nothing is lost or repeated."""
    begin = resume_tokens.token_from_time(await mongo.operation_time())
    source = Source(mongo, ["things"], before_images=False, options=BRISK)
    found: list[Any] = []
    with Client(server.uri) as client:
        things = client[mongo.name].things
        things.insert_one({"_id": 1})
        async with aclosing(source.batches(begin)) as batches:
            if command == "getMore":
                found += (await anext(batches)).events
            with failing(server, command, *labels):
                things.insert_one({"_id": 2})
                while len(found) < 2 or not source.reconnects:
                    found += (await anext(batches)).events
    assert [each.key for each in found] == [1, 2]
    assert source.reconnects >= 1


async def test_a_stream_ends_with_an_error_not_labelled_as_transient(
    server: BareMongod, mongo: Mongo
) -> None:
    """A retry would have the same result."""
    begin = resume_tokens.token_from_time(await mongo.operation_time())
    source = Source(mongo, ["things"], before_images=False, options=BRISK)
    with failing(server, "aggregate", "NonResumableChangeStreamError"):
        async with aclosing(source.batches(begin)) as batches:
            with pytest.raises(DatabaseError):
                await anext(batches)


@pytest.mark.parametrize("command", ["find", "aggregate", "findAndModify", "insert"])
async def test_a_command_refused_by_an_overloaded_server_is_unavailable(
    server: BareMongod, mongo: Mongo, command: str
) -> None:
    """It is neither a masked internal error nor the end of a recorder."""
    calls = {
        "find": lambda: mongo.find("things", {}),
        "aggregate": lambda: mongo.aggregate("things", []),
        "insert": lambda: mongo.insert_in_order("things", [{"_id": 1}]),
        "findAndModify": lambda: mongo.find_one_and_update("things", {}, {"$set": {"n": 1}}),
    }
    with (
        failing(server, command, "SystemOverloadedError", "RetryableError", times=100),
        pytest.raises(Unavailable, match="overloaded"),
    ):
        await calls[command]()
