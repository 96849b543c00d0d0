"""Undocumented members of PyMongo: the one module that uses any.

Held by tests/contract/test_pymongo_internals.py; listed in docs/contributing/private-interfaces.md.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import pymongo
import pymongo.lock
from pymongo.server_selectors import writable_server_selector

__all__ = [
    "Unsupported",
    "borrowed_connection",
    "refuse_missing_members",
    "release_lock_on_cancellation",
    "reset_pools",
]

T = TypeVar("T")

_Address = tuple[str, int | None]


class Unsupported(Exception):
    """PyMongo's connections differ from those of the tested versions, or they compress."""


@asynccontextmanager
async def borrowed_connection(
    client: Any, selection_s: float | None
) -> AsyncIterator[tuple[asyncio.Transport, asyncio.BaseProtocol, _Address]]:
    """Borrow a connection to the primary; it is closed in the end.

    Args:
        selection_s: how long to look for a primary; None: as long as the client does.

    Yields:
        Its transport, PyMongo's protocol on it, and the address of the server.

    Raises:
        Unsupported: a member is missing, or the connection compresses.
        PyMongoError: there is no primary, or it cannot be connected to.
    """
    with refuse_missing_members():
        topology = await client._get_topology()
        server = await topology.select_server(writable_server_selector, "find", selection_s)
        checkout = server.pool.checkout()
    async with checkout as connection:
        try:
            with refuse_missing_members():
                if connection.compression_context is not None:
                    raise Unsupported("the MongoDB URI requests compression")
                protocol = connection.conn.get_conn
                found = protocol.transport, protocol, connection.address
            yield found
        finally:
            # PyMongo's protocol no longer knows where a reply begins.
            await connection.close_conn(None)


@contextmanager
def refuse_missing_members() -> Iterator[None]:
    """Raise Unsupported where PyMongo's objects, or those that it returned, lack a member."""
    try:
        yield
    except (AttributeError, TypeError) as exc:
        raise Unsupported(f"PyMongo {pymongo.version} has other internals: {exc}") from exc


async def reset_pools(client: Any) -> None:
    """Close the idle connections of a client of either driver, and lent ones when they come back.

    Raises:
        AttributeError: a member is missing.
    """
    # Motor's client has a PyMongo client as `delegate`; PyMongo's takes that for a database.
    driver = vars(client).get("delegate", client)
    for server in list(driver._topology._servers.values()):
        resetting = server.pool.reset_without_pause()
        if inspect.isawaitable(resetting):
            await resetting


def release_lock_on_cancellation() -> None:
    """Have PyMongo wait for a server as Python 3.12 does, on Python 3.11.

    PyMongo waits for a server by `asyncio.wait_for`, which makes a second task before Python 3.12.
    A caller that is cancelled just as the time is up leaves that task with the lock of the topology
    (python/cpython pull request 98518). No documented member of PyMongo avoids this wait.
    """
    if sys.version_info < (3, 12) and pymongo.lock.wait_for is not _wait_for:  # type: ignore[attr-defined]
        pymongo.lock.wait_for = _wait_for  # type: ignore[attr-defined, assignment]


async def _wait_for(awaitable: Awaitable[T], timeout_s: float | None) -> T:
    async with asyncio.timeout(timeout_s):
        return await awaitable
