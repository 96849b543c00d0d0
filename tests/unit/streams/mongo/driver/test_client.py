"""The driver's client, where the driver alone is not sufficient."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pymongo.lock

from revstream.streams.mongo.driver.client import MongoOptions, open_client
from tests.support.eventually import eventually


async def test_a_wait_cancelled_at_its_timeout_releases_the_drivers_lock() -> None:
    """A lock that is held forever blocks even the closing of the client.

    Such waits for a primary happen at the end of a process.
    """
    client = open_client("mongodb://127.0.0.1:1", MongoOptions(driver="pymongo"))
    await client.close()
    lock: Any = pymongo.lock._async_create_lock()
    condition: Any = pymongo.lock._async_create_condition(lock)

    async def wait() -> None:
        async with lock:
            await pymongo.lock._async_cond_wait(condition, 0.05)

    waiting = asyncio.create_task(wait())
    await eventually(lambda: condition._waiters)
    async with lock:
        # The timeout has passed, and the wait acquires the lock again.
        await eventually(lambda: lock._waiters)
        waiting.cancel()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5), lock:
        pass
