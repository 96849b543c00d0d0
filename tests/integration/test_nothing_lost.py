"""Subscribers that reconnect, and gateways that are killed: no event is missed or repeated.

REVSTREAM_TEST_WHOLE=1 disconnects 50 times and kills 20 times, and replays the whole history
instead of its first third.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support.exhaustive import scaled
from tests.support.gateway import GraphQLFailed, RunningGateway, running_gateway, start_gateway
from tests.support.history import FIELDS, HISTORY, MODEL, WHOLE, api_body, replay, same_json

Client = MongoClient[dict[str, Any]]

CHANGES = """
subscription Changes($after: ResumeToken) {
  featureChanges(after: $after) {
    kind documentId operation version resumeToken feature { FIELDS }
  }
}
""".replace("FIELDS", FIELDS)
BARE = """
subscription Bare($after: ResumeToken) {
  featureChanges(after: $after) { kind documentId operation resumeToken }
}
"""
DISCONNECTS, KILLS = (50, 20) if WHOLE else scaled(all=(20, 8), fast=(6, 3))
SOME = HISTORY if WHOLE else scaled(all=HISTORY[: len(HISTORY) // 3], fast=HISTORY)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the model of the history's documents."""
    path = tmp_path / "schema.graphql"
    path.write_text(MODEL)
    return path


class Follower:
    """A client that keeps only its last token and loses its connection at times."""

    def __init__(self, after: str, dice: random.Random) -> None:
        self.token = after
        self.received: list[dict[str, Any]] = []
        self.connections = 0
        self._dice = dice
        # The numbers of events after which it loses the connection.
        self._cuts = sorted(dice.sample(range(1, len(HISTORY)), DISCONNECTS))

    async def follow(self, gateway: list[RunningGateway]) -> None:
        """Receive the whole history; `gateway[0]` is the running one."""
        while len(self.received) < len(HISTORY):
            self.connections += 1
            try:
                await self._once(gateway[0])
            except (OSError, Disconnected, *_CLOSED):
                continue
            except GraphQLFailed as exc:
                # A retryable error: the killed recorder has not been replaced yet.
                if exc.args[0]["extensions"]["code"] not in ("ARCHIVE_BEHIND", "UNAVAILABLE"):
                    raise

    async def _once(self, gateway: RunningGateway) -> None:
        events = gateway.subscribe(CHANGES, after=self.token)
        async with contextlib.aclosing(events):
            async for data in events:
                change = data["featureChanges"]
                self.token = change["resumeToken"]
                if change["kind"] != "CHANGE":
                    continue
                self.received.append(change)
                if len(self.received) == len(HISTORY):
                    return
                if self._cuts and len(self.received) >= self._cuts[0]:
                    self._cuts.pop(0)
                    raise Disconnected


class Disconnected(Exception):
    """The client has lost its connection."""


def _closed_errors() -> tuple[type[Exception], ...]:
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

    return (ConnectionClosed, InvalidHandshake, InvalidMessage, EOFError)


_CLOSED = _closed_errors()


@pytest.mark.timeout(400)
async def test_a_reconnecting_subscriber_of_killed_gateways_gets_each_event_once(
    mongo_uri: str, client: Client, database_name: str, model: Path
) -> None:
    """Disconnections and SIGKILLs under load: all events arrive in order and once.

    The archive is complete, too.
    """
    dice = random.Random(5)
    running = [start_gateway(mongo_uri, database_name, model, "--lease-s", "1")]
    try:
        start = running[0].query("{ resumeToken }")["resumeToken"]
        follower = Follower(start, dice)
        loading = asyncio.create_task(
            asyncio.to_thread(replay, mongo_uri, database_name, len(HISTORY))
        )
        following = asyncio.create_task(follower.follow(running))
        for number in range(KILLS):
            wanted = (number + 1) * len(HISTORY) // (KILLS + 2)
            await _until(lambda wanted=wanted: len(follower.received) >= wanted, following)
            running[0].kill()
            running[0] = await asyncio.to_thread(
                start_gateway, mongo_uri, database_name, model, "--lease-s", "1"
            )
        await loading
        await following
    finally:
        running[0].kill()
    assert follower.connections > DISCONNECTS
    assert [(each["documentId"], each["version"]) for each in follower.received] == [
        (each.doc, each.seq) for each in HISTORY
    ]
    for change, event in zip(follower.received, HISTORY, strict=True):
        assert same_json(change["feature"], api_body(event.body))
    archived = client[database_name]["features.versions"].find({}, {"doc": 1, "v": 1}).sort("_id")
    assert [(each["doc"], each["v"]) for each in archived] == [
        (each.doc, each.seq) for each in HISTORY
    ]


@pytest.mark.timeout(200)
async def test_a_token_of_the_first_write_is_replayed_and_handed_over_to_live(
    mongo_uri: str, database_name: str, model: Path
) -> None:
    """The ring has 100 events; earlier ones are replayed from the archive, then live events
    follow.
    """
    with running_gateway(mongo_uri, database_name, model, "--ring-events", "100") as gateway:
        start = gateway.query("{ resumeToken }")["resumeToken"]
        count = len(SOME) - 50
        await asyncio.to_thread(replay, mongo_uri, database_name, count)
        received: list[tuple[str, str]] = []
        replayed = 0
        query = BARE.replace("kind", "kind replayed")
        events = gateway.subscribe(query, after=start)
        live: asyncio.Task[None] | None = None
        async with contextlib.aclosing(events):
            async for data in events:
                change = data["featureChanges"]
                if change["kind"] != "CHANGE":
                    continue
                received.append((change["documentId"], change["operation"]))
                replayed += change["replayed"]
                if len(received) == count:
                    live = asyncio.create_task(
                        asyncio.to_thread(replay, mongo_uri, database_name, len(SOME), start=count)
                    )
                if len(received) == len(SOME):
                    break
        assert live is not None
        await live
    assert [doc for doc, _ in received] == [each.doc for each in SOME]
    # A later write may precede the hand-over: then it is replayed, too.
    assert count <= replayed < len(SOME)


async def _until(condition: Any, task: asyncio.Task[None]) -> None:
    while not condition() and not task.done():
        await asyncio.wait([task], timeout=0.02)
