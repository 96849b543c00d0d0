"""What is found out about the server at start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.coordination.deployment import deployment_tag
from streams.cursors import Cursors
from streams.errors import Unsuitable
from streams.mongo import Mongo
from streams.server import OLDEST_VERSION, Server, inspect_server


async def test_a_replica_set_that_is_new_enough_is_suitable(mongo: Mongo) -> None:
    """Its version is told, and that it is no sharded cluster."""
    server = await inspect_server(mongo)
    assert tuple(map(int, server.version.split(".")[:2])) >= OLDEST_VERSION
    assert not server.sharded


class Answers:
    """A server that says of itself what the test wants."""

    def __init__(self, hello: dict[str, Any], version: str) -> None:
        self._replies = {"hello": hello, "buildInfo": {"version": version}}

    async def command(self, command: dict[str, Any], *, database: str) -> dict[str, Any]:
        return self._replies[next(iter(command))]


@pytest.mark.parametrize(
    ("hello", "version", "said"),
    [
        ({}, "7.0.1", "standalone"),
        ({"setName": "rs0"}, "5.0.14", "MongoDB 5.0.14 is too old; revstream needs 6.0"),
        ({"setName": "rs0"}, "5.9.0-rc1", "too old"),
    ],
)
async def test_a_server_that_cannot_serve_is_refused_with_the_remedy(
    hello: dict[str, Any], version: str, said: str
) -> None:
    """A standalone, or one that is too old."""
    with pytest.raises(Unsuitable, match=said):
        await inspect_server(Answers(hello, version))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["6.0.0", "7.1.0-rc0", "10.2.3"])
async def test_newer_servers_are_suitable_sharded_ones_too(version: str) -> None:
    """Compared by number, not as text."""
    found = await inspect_server(Answers({"msg": "isdbgrid"}, version))  # type: ignore[arg-type]
    assert (found.version, found.sharded) == (version, True)


@pytest.mark.parametrize(
    ("version", "says"), [("6.0.27", False), ("6.1.0", True), ("7.0.0-rc1", True), ("10.0.0", True)]
)
def test_newer_servers_say_how_paths_are_meant(version: str, says: bool) -> None:
    """From 6.1 on, where expanded events are asked for."""
    assert Server(version, sharded=False).disambiguates == says


async def test_a_deployment_has_one_tag_for_ever(mongo: Mongo) -> None:
    """Made once, also where many processes start at once."""
    tags = await asyncio.gather(*(deployment_tag(mongo) for _ in range(8)))
    assert len(set(tags)) == 1
    assert tags[0].isalnum()
    assert await deployment_tag(mongo) == tags[0]


async def test_a_cursor_is_kept_under_its_name_for_its_owner(mongo: Mongo) -> None:
    """The last one saved; another owner's of the same name is another."""
    cursors = Cursors(mongo)
    assert await cursors.load("alice", "board") is None
    for token in ("A", "B"):
        await cursors.save("alice", "board", token)
    await cursors.save("bob", "board", "C")
    assert await cursors.load("alice", "board") == "B"
    assert await cursors.load("bob", "board") == "C"
