"""Initiate the replica set of an embedded mongod and create its user; mend both at each start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import ConnectionFailure, OperationFailure

from revstream.gql.runtime.embedded.mongod import EmbeddedError, death_of, last_lines

__all__ = ["REPLICA_SET", "USER", "become_primary"]

REPLICA_SET = "revstream"
USER = "revstream"
UNAUTHORIZED = 13
AUTHENTICATION_FAILED = 18
ALREADY_INITIALIZED = 23
NOT_YET_INITIALIZED = 94

_Client = AsyncMongoClient[dict[str, Any]]


async def become_primary(
    process: asyncio.subprocess.Process, directory: Path, port: int, password: str, start_s: float
) -> None:
    """Return once the server accepts writes of our user; make or mend its replica set before."""
    try:
        async with asyncio.timeout(start_s):
            async for _ in _rounds(process, directory):
                # Not yet with the driver, which leaks the socket of an attempt that is cancelled
                # (PyMongo 4.20, asynchronous/pool.py).
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
            address = f"127.0.0.1:{port}"
            async with _client(address) as anonymous:
                async for _ in _rounds(process, directory):
                    if await _is_primary(anonymous, address, password):
                        return
    except TimeoutError:
        raise EmbeddedError(
            f"mongod in {directory}: not primary after {start_s:g} s, which is the maximum. "
            + last_lines(directory / "mongod.log")
        ) from None


async def _rounds(process: asyncio.subprocess.Process, directory: Path) -> AsyncIterator[None]:
    """A turn every 10 ms, for as long as the process lives; its death is raised."""
    while process.returncode is None:
        yield
        await asyncio.sleep(0.01)
    raise EmbeddedError(death_of(process, directory / "mongod.log"))


def _client(address: str, password: str | None = None) -> _Client:
    """Return a client of this one server, whatever state it is in; anonymous without a password."""
    user = "" if password is None else f"{USER}:{password}@"
    return _Client(
        f"mongodb://{user}{address}", directConnection=True, serverSelectionTimeoutMS=200
    )


async def _is_primary(anonymous: _Client, address: str, password: str) -> bool:
    """Return whether it is one that our user can write to; make what is missing for that.

    A server without users lets a client on this machine initiate the replica set and create the
    first user (MongoDB's "localhost exception"), and nothing else; one with users refuses both.
    """
    try:
        state = await anonymous.admin.command("hello")
        if state["isWritablePrimary"]:
            await _prepare_user(anonymous, address, password)
            return True
        # Without a name it has no configuration (yet), or one that it does not find itself in.
        if "setName" not in state:
            await _configure(anonymous, address, password)
    except ConnectionFailure:
        # Stepping up closes connections; a dead process shows in the next round.
        pass
    except OperationFailure as exc:
        raise EmbeddedError(f"mongod on {address}: {exc}") from exc
    return False


async def _prepare_user(anonymous: _Client, address: str, password: str) -> None:
    """Create our user, with all rights, where it is not there; also on data of before there
    was a password.
    """
    with _expected(UNAUTHORIZED):
        # The localhost exception grants roles of `admin` only.
        await anonymous.admin.command(
            "createUser", USER, pwd=password, roles=["root"], mechanisms=["SCRAM-SHA-256"]
        )
    # `root` reads neither the oplog nor the images before and after writes.
    roles = [{"role": "readWrite", "db": name} for name in ("local", "config")]
    async with _client(address, password) as client:
        try:
            await client.admin.command("grantRolesToUser", USER, roles=roles)
        except OperationFailure as exc:
            if exc.code != AUTHENTICATION_FAILED:
                raise
            raise EmbeddedError(
                f"password in the directory's file `uri`: wrong, expected that of user {USER} in "
                "the data of the directory; put the file of that data back"
            ) from exc


async def _configure(anonymous: _Client, address: str, password: str) -> None:
    """Give a new server its replica set, and one that moved to another port its right address."""
    member = {"_id": 0, "host": address}
    with _expected(UNAUTHORIZED, ALREADY_INITIALIZED):
        await anonymous.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [member]})
        return
    # Not yet: users cannot be looked up before it has loaded its configuration; and it first asks
    # the listener on its old port whether that is itself, and waits 30 s for a silent one (measured
    # on 6.0.5).
    async with _client(address, password) as client:
        with _expected(AUTHENTICATION_FAILED, NOT_YET_INITIALIZED):
            await _correct_address(client, address)


async def _correct_address(client: _Client, address: str) -> None:
    config = await client.local["system.replset"].find_one()
    [member] = config["members"] if config else [{"host": address}]
    if member["host"] != address:
        # Forced, since a node that does not find itself in its own configuration can have no
        # primary to ask.
        member["host"] = address
        await client.admin.command("replSetReconfig", config, force=True)


@contextmanager
def _expected(*codes: int) -> Iterator[None]:
    """Suppress the server's errors of these codes."""
    try:
        yield
    except OperationFailure as exc:
        if exc.code not in codes:
            raise
