"""Writes that a primary has executed and cannot confirm because it steps down, on both drivers."""

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
# A primary that steps down normally notifies the driver at once. This server does not, so the
# driver finds its primary again only with the next heartbeat, by default after 10 s.
HEARTBEATS = "&heartbeatFrequencyMS=500"
INTERRUPTED = 11602  # InterruptedDueToReplStateChange


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Provide a server with fail points."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


def unconfirmed(
    server: BareMongod, times: int, command: str = "findAndModify"
) -> AbstractContextManager[None]:
    """Let the next writes be executed, and answered as by a primary that steps down."""
    error = {"code": INTERRUPTED, "errmsg": "operation was interrupted"}
    labels = ["RetryableWriteError"]
    return failing(server, command, times, writeConcernError=error, errorLabels=labels)


async def count(writing: WriteSession) -> Any:
    """Change a document so that repeated writes are visible."""
    return await writing.change("things", {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_unconfirmed_write_is_retried_and_executed_once(
    server: BareMongod, driver: str
) -> None:
    """The driver repeats it with its transaction number, by which the server recognizes it."""
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
    """An unconfirmed write may be undone: the error allows a retry, and is no bug of revstream."""
    options = MongoOptions(driver=driver)  # type: ignore[arg-type]
    async with Mongo.connect(server.uri + HEARTBEATS, f"never_{driver}", options=options) as mongo:
        with unconfirmed(server, 10), pytest.raises(Unavailable, match="did not confirm"):
            await write(mongo, count)


@pytest.mark.parametrize("driver", DRIVERS)
async def test_bulk_writes_that_stay_unconfirmed_are_unavailable(
    server: BareMongod, driver: str
) -> None:
    """Unconfirmed writes of maintenance are unavailable too: an election may undo them."""
    options = MongoOptions(driver=driver)  # type: ignore[arg-type]
    async with Mongo.connect(server.uri + HEARTBEATS, f"many_{driver}", options=options) as mongo:
        await mongo.insert_in_order("revstream.checkpoints", [{"_id": "a"}])
        with unconfirmed(server, 1, "delete"), pytest.raises(Unavailable, match="not confirm"):
            await mongo.remove_all("revstream.checkpoints", {"_id": "a"})
        with unconfirmed(server, 1, "update"), pytest.raises(Unavailable, match="not confirm"):
            await request_retry(mongo, {}, datetime.now(UTC))
