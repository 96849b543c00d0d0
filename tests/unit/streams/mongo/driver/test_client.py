"""The driver's client, where the driver alone would not do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pymongo.lock

from revstream.streams.mongo.driver.client import MongoOptions, open_client
from tests.support.eventually import eventually


async def test_who_is_cancelled_just_as_the_time_is_up_does_not_keep_the_drivers_lock() -> None:
    """As those that wait for a primary when a process ends: nobody else would get the lock, not
    even to close the client."""
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
        # The time is up, and it wants the lock again.
        await eventually(lambda: lock._waiters)
        waiting.cancel()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5), lock:
        pass
