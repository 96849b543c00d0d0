"""Contract test of undocumented members of PyMongo and Motor.

The module streams/mongo/driver/pymongo_internals.py uses them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pymongo
import pymongo.lock
import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.server_selectors import writable_server_selector

from revstream.streams.mongo.driver.pymongo_internals import Unsupported, borrowed_connection
from tests.support.eventually import eventually
from tests.support.members import check_members


async def test_pymongo_gives_access_to_a_connections_transport(mongo_uri: str) -> None:
    """Commands are sent on it without PyMongo's own protocol."""
    async with pymongo.AsyncMongoClient[dict[str, Any]](mongo_uri) as client:
        check_members("pymongo", client, "_get_topology")
        topology: Any = await client._get_topology()
        check_members("pymongo", topology, "select_server", "_servers")
        server = await topology.select_server(writable_server_selector, "find", 10)
        check_members("pymongo", server, "pool")
        check_members("pymongo", server.pool, "checkout", "reset_without_pause")
        async with server.pool.checkout() as connection:
            check_members(
                "pymongo", connection, "compression_context", "conn", "address", "close_conn"
            )
            check_members("pymongo", connection.conn, "get_conn")
            check_members("pymongo", connection.conn.get_conn, "transport")


async def test_motor_has_a_pymongo_client_with_pools_that_can_be_reset(mongo_uri: str) -> None:
    """Connections opened during an election are not used again."""
    client: Any = AsyncIOMotorClient(mongo_uri)
    check_members("motor", client, "delegate")
    await client.admin.command("ping")
    check_members("pymongo", client.delegate, "_topology")
    check_members("pymongo", client.delegate._topology, "_servers")
    for server in client.delegate._topology._servers.values():
        check_members("pymongo", server, "pool")
        check_members("pymongo", server.pool, "reset_without_pause")
    client.close()


async def test_a_missing_member_is_named_with_the_version(
    mongo_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway then sends its commands by the driver's own methods."""
    monkeypatch.delattr(pymongo.AsyncMongoClient, "_get_topology")
    async with pymongo.AsyncMongoClient[dict[str, Any]](mongo_uri) as client:
        with pytest.raises(Unsupported, match=rf"PyMongo {pymongo.version} .*_get_topology"):
            async with borrowed_connection(client, None):
                pass


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python's own wait_for is used")
async def test_pymongo_still_loses_a_lock_with_the_wait_for_of_python_3_11(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it does not, `release_lock_on_cancellation` is no longer needed."""
    check_members("pymongo", pymongo.lock, "wait_for")
    monkeypatch.setattr(pymongo.lock, "wait_for", asyncio.wait_for)
    lock: Any = pymongo.lock._async_create_lock()
    condition: Any = pymongo.lock._async_create_condition(lock)

    async def wait() -> None:
        async with lock:
            await pymongo.lock._async_cond_wait(condition, 0.01)

    waiting = asyncio.create_task(wait())
    await eventually(lambda: condition._waiters)
    await lock.acquire()
    await eventually(lambda: lock._waiters)
    waiting.cancel()
    await asyncio.sleep(0)
    # The cancelled task has released the lock that this one holds.
    assert not lock.locked()
    with pytest.raises(asyncio.CancelledError):
        await waiting
