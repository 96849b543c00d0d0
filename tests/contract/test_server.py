"""Checks of the server at start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from revstream.streams.coordination.deployment import deployment_tag
from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.live.saved_cursors import CursorStore
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import (
    OLDEST_VERSION,
    Server,
    check_sharding,
    check_stream,
    inspect_server,
)


async def test_a_replica_set_that_is_new_enough_is_suitable(mongo: Mongo) -> None:
    """The check returns the version and the fact that it is no sharded cluster."""
    server = await inspect_server(mongo)
    assert tuple(map(int, server.version.split(".")[:2])) >= OLDEST_VERSION
    assert not server.sharded


class Answers:
    """A server with the properties that the test sets.

    Args:
        token: Start of its change stream's tokens, or the error of the stream.
    """

    name = "shop"

    def __init__(
        self, hello: dict[str, Any], version: str, *, token: Any = None, **build: Any
    ) -> None:
        self._replies = {"hello": hello, "buildInfo": {"version": version, **build}}
        self._token = token

    async def command(self, command: dict[str, Any], *, database: str) -> dict[str, Any]:
        return self._replies[next(iter(command))]

    @asynccontextmanager
    async def change_batches(self, pipeline: Any, **options: Any) -> AsyncIterator[Any]:
        async def replies() -> AsyncIterator[dict[str, Any]]:
            if isinstance(self._token, Exception):
                raise self._token
            yield {"batch": [], "token": self._token}

        yield replies()


@pytest.mark.parametrize(
    ("hello", "version", "message"),
    [
        ({}, "7.0.1", "standalone"),
        ({"setName": "rs0"}, "5.0.14", "MongoDB: version 5.0.14, minimum is 6.0"),
        ({"setName": "rs0"}, "5.9.0-rc1", "minimum is 6.0"),
    ],
)
async def test_a_server_that_cannot_serve_is_refused_with_the_remedy(
    hello: dict[str, Any], version: str, message: str
) -> None:
    """It is a standalone server, or one that is too old."""
    with pytest.raises(Unsuitable, match=message):
        await inspect_server(Answers(hello, version))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["6.0.0", "7.1.0-rc0", "10.2.3"])
async def test_newer_and_sharded_servers_are_suitable(version: str) -> None:
    """Versions compare by number, not as text."""
    found = await inspect_server(Answers({"msg": "isdbgrid"}, version))  # type: ignore[arg-type]
    assert (found.version, found.sharded) == (version, True)


@pytest.mark.parametrize(
    ("version", "says"), [("6.0.27", False), ("6.1.0", True), ("7.0.0-rc1", True), ("10.0.0", True)]
)
def test_newer_servers_disambiguate_paths(version: str, says: bool) -> None:
    """They do so from 6.1 on, with expanded events."""
    assert Server(version, sharded=False).disambiguates == says


async def test_a_sharded_cluster_is_refused_without_its_option() -> None:
    """The error has its limitations, and the option."""
    server = await inspect_server(Answers({"msg": "isdbgrid"}, "7.0.0"))  # type: ignore[arg-type]
    with pytest.raises(Unsuitable, match=r"shard key.*--experimental-sharded"):
        check_sharding(server, experimental=False)
    check_sharding(server, experimental=True)
    check_sharding(Server("7.0.0", sharded=False), experimental=False)


DOCUMENTDB = {"setName": "rs0", "hosts": ["shop.cluster-x.eu-west-1.docdb.amazonaws.com:27017"]}
COSMOS = {"setName": "globaldb", "hosts": ["shop.mongo.cosmos.azure.com:10255"]}


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Answers(DOCUMENTDB, "5.0.0"), r"Amazon DocumentDB.*5\.0\.0, minimum is"),
        (Answers(COSMOS, "4.2.0"), "Azure Cosmos DB"),
        (
            Answers({"ok": 1}, "7.0.77", ferretdb={"version": "v2.7.0"}),
            "FerretDB.*not a replica set",
        ),
        (Answers({"ok": 1}, "7.0.42", ferretdbVersion="v1.24"), "FerretDB"),
    ],
)
async def test_another_database_that_cannot_be_suitable_is_refused_by_its_name(
    server: Answers, message: str
) -> None:
    """The refusal names the database, and the remedy is a MongoDB replica set."""
    with pytest.raises(Unsuitable, match=f"server: {message}.*use a MongoDB replica set"):
        await inspect_server(server)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (
            Answers(DOCUMENTDB, "8.0.0", token={"_data": "0165A1B2C30000000701"}),
            "Amazon DocumentDB",
        ),
        (Answers(COSMOS, "6.0.0", token={"_data": b"W3siX3JpZCI6", "_kind": 1}), "Azure Cosmos DB"),
        (Answers(COSMOS, "7.0.0"), "Azure Cosmos DB"),
        (
            Answers(
                {"setName": "rs0"},
                "7.0.77",
                ferretdb={"version": "v2.7.0"},
                token=DatabaseError("$changeStream is not implemented yet", number=238),
            ),
            "FerretDB.*not implemented",
        ),
        (Answers({"setName": "rs0"}, "7.0.0", token={"_data": "x"}), "another database"),
    ],
)
async def test_a_change_stream_of_another_product_is_refused_at_the_start(
    server: Answers, message: str
) -> None:
    """The error has the product's name, if the server sends it."""
    found = await inspect_server(server)  # type: ignore[arg-type]
    with pytest.raises(Unsuitable, match=f"server: {message}"):
        await check_stream(server, found)  # type: ignore[arg-type]


async def test_a_change_stream_of_mongodb_is_accepted(mongo: Mongo) -> None:
    """Its first token begins with a cluster time."""
    await check_stream(mongo, await inspect_server(mongo))


async def test_an_error_of_mongodb_itself_is_raised_unchanged() -> None:
    """Its message has more details than the check's."""
    server = Answers({"setName": "rs0"}, "7.0.0", token=DatabaseError("no", number=1))
    with pytest.raises(DatabaseError):
        await check_stream(server, await inspect_server(server))  # type: ignore[arg-type]


async def test_a_deployment_has_one_permanent_tag(mongo: Mongo) -> None:
    """It is created once, even if many processes start at once."""
    tags = await asyncio.gather(*(deployment_tag(mongo) for _ in range(8)))
    assert len(set(tags)) == 1
    assert tags[0].isalnum()
    assert await deployment_tag(mongo) == tags[0]


async def test_a_cursor_is_stored_under_its_name_for_its_owner(mongo: Mongo) -> None:
    """The last one saved is stored; the same name of another owner is another cursor."""
    cursors = CursorStore(mongo)
    assert await cursors.load("alice", "board") is None
    for token in ("A", "B"):
        assert await cursors.save("alice", "board", token, most=1)
    assert await cursors.save("bob", "board", "C", most=1)
    assert not await cursors.save("bob", "other", "D", most=1)
    assert await cursors.load("alice", "board") == "B"
    assert await cursors.load("bob", "board") == "C"
