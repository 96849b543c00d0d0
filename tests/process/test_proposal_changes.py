"""Subscriptions to drafts and comments over real processes.

The tests cover each protocol, restarts, kill -9, and an oplog without the needed entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from websockets.exceptions import ConnectionClosed

from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.event_streams import open_stream
from tests.support.eventually import eventually
from tests.support.gateway import GraphQLFailed, RunningGateway, running_gateway, subscribe
from tests.support.metrics import scraped
from tests.support.oplog import roll_over, small_oplog

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
CHANGES = """
subscription Changes($after: ResumeToken) {
  allDraftChanges(after: $after) { kind operation number resumeToken draft { status } }
}
"""
APOLLO = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json"
GENEROUS_S = 120.0


def propose(gateway: RunningGateway, n: int) -> int:
    """Return the number of a new draft of the document `a`."""
    text = """mutation ($n: Int) { done: proposeThing(id: "a", patch: {n: $n}) {
      ... on ThingDrafted { draft { number } } } }"""
    number: int = gateway.query(text, n=n)["done"]["draft"]["number"]
    return number


def reject(gateway: RunningGateway, number: int) -> None:
    text = 'mutation ($n: Int!) { rejectThing(id: "a", draft: $n) { __typename } }'
    assert gateway.query(text, n=number)["rejectThing"]["__typename"] == "ThingDrafted"


def begin(gateway: RunningGateway) -> str:
    """Create the document `a`; return the token after it."""
    gateway.query('mutation { createThing(id: "a", document: {n: 1}) { __typename } }')
    token: str = gateway.query("{ resumeToken }")["resumeToken"]
    return token


def event_of(change: dict[str, Any]) -> tuple[str, int]:
    return change["operation"], change["number"]


async def received(events: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return so many changes, without checkpoints."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(GENEROUS_S):
        while len(found) < count:
            (change,) = (await anext(events)).values()
            if change["kind"] == "CHANGE":
                found.append(change)
    return found


async def by_sockets(gateway: RunningGateway, protocol: str, after: str, count: int) -> Any:
    events = subscribe(gateway.address, CHANGES, protocol=protocol, after=after)
    async with contextlib.aclosing(events):
        return await received(events, count)


async def by_events(gateway: RunningGateway, after: str, count: int) -> Any:
    async with open_stream(gateway.address, CHANGES, last=after) as stream:
        found = [await stream.change() for _ in range(count)]
    # A plain EventSource resumes like this.
    assert all(each["id"] == each["resumeToken"] for each in found)
    return found


async def by_parts(gateway: RunningGateway, after: str, count: int) -> Any:
    found: list[Any] = []
    body = {"query": CHANGES, "variables": {"after": after}}
    url, headers = f"{gateway.address}/graphql", {"accept": APOLLO}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", url, json=body, headers=headers) as response,
    ):
        async for line in response.aiter_lines():
            payload = json.loads(line).get("payload") if line.startswith("{") else None
            if payload and payload["data"]["allDraftChanges"]["kind"] == "CHANGE":
                found.append(payload["data"]["allDraftChanges"])
            if len(found) == count:
                return found


async def test_each_protocol_sends_missed_and_live_changes(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """One gateway created them, the other was started later."""
    with running_gateway(mongo_uri, database.name, model) as gateway:
        after = begin(gateway)
        numbers = [propose(gateway, n) for n in range(3)]
        reject(gateway, 2)
        expected = [*(("INSERT", number) for number in numbers), ("UPDATE", 2)]
        with running_gateway(mongo_uri, database.name, model) as later:
            for each in (gateway, later):
                for found in (
                    await by_sockets(each, "graphql-transport-ws", after, 4),
                    await by_sockets(each, "graphql-ws", after, 4),
                    await by_events(each, after, 4),
                    await by_parts(each, after, 4),
                ):
                    assert [event_of(change) for change in found] == expected
            assert later.stop() == 0
        assert gateway.stop() == 0


async def test_a_client_resumes_at_another_process_after_sigterm_and_after_kill(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """SIGTERM sends a checkpoint and a close frame for a reconnect, and kill sends nothing."""
    found: list[tuple[str, int]] = []
    expected: list[tuple[str, int]] = []
    token = ""
    # After a kill, until the recorder's lease has expired.
    options = ("--lease-s", "2", "--archive-wait-s", "60")
    for turn, kills in enumerate((False, True, False)):
        with running_gateway(mongo_uri, database.name, model, *options) as gateway:
            token = token or begin(gateway)
            events = gateway.subscribe(CHANGES, after=token)
            async with contextlib.aclosing(events):
                number = propose(gateway, turn)
                expected += [("INSERT", number)]
                for change in await received(events, len(expected) - len(found)):
                    found.append(event_of(change))
                    token = change["resumeToken"]
                assert scraped(gateway.address)["revstream_subscriptions", "$drafts"] == 1
                reject(gateway, number)
                expected += [("UPDATE", number)]
                if kills:
                    gateway.kill()
                else:
                    assert await asyncio.to_thread(gateway.stop) == 0
                with pytest.raises(ConnectionClosed) as caught:
                    while True:
                        (change,) = (await anext(events)).values()
                        token = change["resumeToken"]
                        if change["kind"] == "CHANGE":
                            found.append(event_of(change))
                if not kills:
                    assert caught.value.rcvd is not None
                    assert caught.value.rcvd.code == 1012
                    assert change["kind"] == "CHECKPOINT"
    with running_gateway(mongo_uri, database.name, model) as gateway:
        if len(found) < len(expected):
            events = gateway.subscribe(CHANGES, after=token)
            async with contextlib.aclosing(events):
                missed = await received(events, len(expected) - len(found))
                found += map(event_of, missed)
        assert gateway.stop() == 0
    assert found == expected


@pytest.fixture(scope="module")
def small() -> Iterator[BareMongod]:
    """Run a server with an oplog of 2 MB."""
    with short_lived_replica_set(*small_oplog(2)) as server:
        yield server


@pytest.mark.timeout(180)
async def test_changes_that_left_the_oplog_are_refused_with_a_valid_token(
    small: BareMongod, model: Path
) -> None:
    """A gateway that has them in memory sends them."""
    name = f"forgotten_{uuid4().hex[:8]}"
    with running_gateway(small.uri, name, model) as gateway:
        after = begin(gateway)
        number = propose(gateway, 2)
        await eventually(
            lambda: scraped(gateway.address)["revstream_stream_events_total", "$drafts"] == 1
        )
        with MongoClient[dict[str, Any]](small.uri) as client:
            await asyncio.to_thread(roll_over, client)
        (found,) = await by_sockets(gateway, "graphql-transport-ws", after, 1)
        assert event_of(found) == ("INSERT", number)
        assert gateway.stop() == 0
    with running_gateway(small.uri, name, model) as gateway:
        with pytest.raises(GraphQLFailed) as caught:
            await by_sockets(gateway, "graphql-transport-ws", after, 1)
        facts = caught.value.args[0]["extensions"]
        assert facts["code"] == "HISTORY_LOST"
        later = propose(gateway, 3)
        oldest = facts["oldestResumeToken"]
        (found,) = await by_sockets(gateway, "graphql-transport-ws", oldest, 1)
        assert event_of(found) == ("INSERT", later)
        assert gateway.stop() == 0
