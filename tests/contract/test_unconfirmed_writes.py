"""Writes that a primary has done and cannot confirm, as it steps down: on both drivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import pytest

from revstream.streams.core.errors import Unavailable
from revstream.streams.listeners.webhooks.parked_delivery import request_retry
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from revstream.streams.mongo.transactions import WriteSession, write
from tests.support.bare_mongod import BareMongod, failing, short_lived_replica_set

DRIVERS = ["motor", "pymongo"]
# Who steps down says so to the driver at once. This server does not, so that the driver finds its
# primary again with the next heartbeat only, for which it lets 10 s pass by default.
HEARTBEATS = "&heartbeatFrequencyMS=500"
INTERRUPTED = 11602  # InterruptedDueToReplStateChange


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """One that does what tests tell it to."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


def unconfirmed(
    server: BareMongod, times: int, command: str = "findAndModify"
) -> AbstractContextManager[None]:
    """The next writes are done, and answered with what a primary says that steps down."""
    error = {"code": INTERRUPTED, "errmsg": "operation was interrupted"}
    labels = ["RetryableWriteError"]
    return failing(server, command, times, writeConcernError=error, errorLabels=labels)


async def count(writing: WriteSession) -> Any:
    """Change a document in a way that shows how often."""
    return await writing.change("things", {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_write_that_was_not_confirmed_is_sent_again_and_done_once(
    server: BareMongod, driver: str
) -> None:
    """The driver repeats it under its number, and the server knows that."""
    options = MongoOptions(driver=driver)  # type: ignore[arg-type]
    async with Mongo.connect(server.uri + HEARTBEATS, f"once_{driver}", options=options) as mongo:
        with unconfirmed(server, 1):
            document, _ = await write(mongo, count)
        assert document["n"] == 1
        assert await mongo.find("things", {}) == [{"_id": 1, "n": 1}]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_write_that_stays_unconfirmed_is_unavailable(
    server: BareMongod, driver: str
) -> None:
    """An unconfirmed write may be undone: the error is to try again, and no fault of revstream."""
    options = MongoOptions(driver=driver)  # type: ignore[arg-type]
    async with Mongo.connect(server.uri + HEARTBEATS, f"never_{driver}", options=options) as mongo:
        with unconfirmed(server, 10), pytest.raises(Unavailable, match="has not confirmed"):
            await write(mongo, count)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_writes_of_many_that_stay_unconfirmed_are_unavailable(
    server: BareMongod, driver: str
) -> None:
    """Unconfirmed writes of maintenance are unavailable too: an election may undo them."""
    options = MongoOptions(driver=driver)  # type: ignore[arg-type]
    async with Mongo.connect(server.uri + HEARTBEATS, f"many_{driver}", options=options) as mongo:
        await mongo.insert_in_order("revstream.checkpoints", [{"_id": "a"}])
        with unconfirmed(server, 1, "delete"), pytest.raises(Unavailable, match="not confirmed"):
            await mongo.remove_all("revstream.checkpoints", {"_id": "a"})
        with unconfirmed(server, 1, "update"), pytest.raises(Unavailable, match="not confirmed"):
            await request_retry(mongo, {}, datetime.now(UTC))
