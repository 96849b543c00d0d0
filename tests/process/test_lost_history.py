"""Loss of oplog entries before they are recorded or followed: a small oplog and real processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from websockets.exceptions import ConnectionClosed

from tests.support.archives import last_of_each
from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.eventually import eventually, wait_until
from tests.support.gateway import GraphQLFailed, RunningGateway, run_command, running_gateway
from tests.support.metrics import scraped
from tests.support.oplog import roll_over, small_oplog
from tests.support.streams import check_chains, outline

Things = Database[dict[str, Any]]

MODEL = 'type Thing @collection(name: "things", version: null) { id: ID! n: Int }'
CHANGES = """
subscription Changes($after: ResumeToken) {
  thingChanges(after: $after) { kind documentId operation version gap resumeToken }
}
"""
AS_OF = """
query AsOf($token: ResumeToken!) {
  thingsAsOf(asOf: { token: $token }) { nodes { documentId document { n } } }
}
"""
GENEROUS_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Run a server with an oplog of 2 MB."""
    with short_lived_replica_set(*small_oplog(2)) as server:
        yield server


@pytest.fixture
def database(server: BareMongod) -> Iterator[Things]:
    with MongoClient[dict[str, Any]](server.uri, tz_aware=True) as client:
        yield client[f"lost_{uuid4().hex[:8]}"]


def records(database: Things) -> list[dict[str, Any]]:
    return list(database["things.versions"].find().sort("_id"))


def recorded(database: Things) -> bool:
    """Return whether the archive has the current state of every document."""
    standing = [
        each for each in last_of_each(database["things.versions"]) if each["op"] != "DELETE"
    ]
    present = {each["_id"]: each for each in database.things.find()}
    checkpoint = database["revstream.checkpoints"].find_one({"_id": "recorder:things"})
    done = checkpoint is not None and checkpoint["baseline"]["done"]
    return bool(done) and {each["doc"]: each["full"] for each in standing} == present


def lines(gateway: RunningGateway, text: str) -> list[str]:
    return [each for each in gateway.lines if text in each]


def gaps(gateway: RunningGateway) -> float:
    return scraped(gateway.address)["revstream_recorder_gaps_total", "things"]


def lose(database: Things, turn: int) -> None:
    """Write changes that leave the oplog before they can be recorded."""
    things = database.things
    things.update_one({"_id": "changed"}, {"$set": {"n": 10 * turn}})
    things.update_one({"_id": "changed"}, {"$inc": {"n": 1}})
    things.delete_one({"_id": f"gone{turn}"})
    things.insert_one({"_id": f"new{turn}", "n": turn})
    roll_over(database.client)


async def received(gateway: RunningGateway, after: str, count: int) -> list[tuple[Any, ...]]:
    """Return (document, operation, version, gap) of so many changes.

    Reconnects after interruptions.
    """
    found: list[tuple[Any, ...]] = []
    async with asyncio.timeout(GENEROUS_S):
        while len(found) < count:
            events = gateway.subscribe(CHANGES, after=after)
            with contextlib.suppress(GraphQLFailed, ConnectionClosed):
                async with contextlib.aclosing(events):
                    async for data in events:
                        change = data["thingChanges"]
                        after = change["resumeToken"]
                        if change["kind"] == "CHANGE":
                            names = ("documentId", "operation", "version", "gap")
                            found.append(tuple(change[name] for name in names))
                        if len(found) == count:
                            break
    return found


@pytest.mark.timeout(180)
async def test_writes_that_left_the_oplog_without_a_gateway_are_a_gap(
    server: BareMongod, database: Things, model: Path
) -> None:
    """This happens twice.

    Current documents are read again: changed ones have a version with a gap, unchanged ones have
    none. Old tokens and times are served, and the archive is correct.
    """
    start = (server.uri, database.name, model, "--lease-s", "2")
    keys = ("same", "changed", "gone1", "gone2")
    with running_gateway(*start) as gateway:
        token = gateway.query("{ resumeToken }")["resumeToken"]
        database.things.insert_many([{"_id": key, "n": 0} for key in keys])
        await asyncio.to_thread(wait_until, lambda: recorded(database), within_s=GENEROUS_S)
        before = gateway.query("{ resumeToken }")["resumeToken"]
        # The recorder has reached this position: the loss begins after it.
        gateway.query(AS_OF, token=before)
        assert gateway.stop() == 0

    expected = [(key, "INSERT", 1, False) for key in keys]
    for turn in (1, 2):
        await asyncio.to_thread(lose, database, turn)
        with running_gateway(*start) as gateway:
            # The subscription gets all changes that the snapshot finds, however long it takes.
            lost = {
                ("changed", "REPLACE", 2 * turn, True),
                (f"gone{turn}", "DELETE", 2, True),
                (f"new{turn}", "BASELINE", 1, True),
            }
            told_now = await received(gateway, token, len(expected) + len(lost))
            assert told_now[: len(expected)] == expected
            assert set(told_now[len(expected) :]) == lost
            expected = told_now
            await asyncio.to_thread(wait_until, lambda: recorded(database), within_s=GENEROUS_S)
            assert gaps(gateway) == 3
            [line] = lines(gateway, "history lost")
            assert " error " in line
            assert "oplog: its oldest entry is after" in line

            database.things.update_one({"_id": "changed"}, {"$set": {"n": turn}})
            expected.append(("changed", "UPDATE", 2 * turn + 1, False))
            assert await received(gateway, token, len(expected)) == expected
            found = gateway.query(AS_OF, token=before)["thingsAsOf"]["nodes"]
            assert sorted(each["documentId"] for each in found) == sorted(keys)
            assert {each["document"]["n"] for each in found} == {0}
            assert gateway.stop() == 0
    check_chains(records(database))
    assert outline(records(database), "same") == [("INSERT", 1, False)]
    verified = await asyncio.to_thread(
        run_command,
        "verify",
        *("--mongodb-uri", server.uri, "--database", database.name, "--schema", str(model)),
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.timeout(120)
async def test_subscribers_of_a_process_that_was_paused_too_long_resume_without_loss(
    server: BareMongod, database: Things, model: Path
) -> None:
    """Another process records meanwhile.

    The paused process restarts its own stream; attached subscribers are interrupted, and get all
    events from the archive.
    """
    start = (server.uri, database.name, model)
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            written += 1
            database.things.update_one({"_id": "a"}, {"$set": {"n": written}}, upsert=True)

    with (
        running_gateway(*start, command="record"),
        running_gateway(*start, "--no-record") as sleeper,
    ):
        token = sleeper.query("{ resumeToken }")["resumeToken"]
        following = asyncio.create_task(received(sleeper, token, 40))
        await asyncio.to_thread(write, 10)
        await eventually(lambda: len(records(database)) == 10, within_s=GENEROUS_S)
        sleeper.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.to_thread(write, 20)
            await eventually(lambda: len(records(database)) == 30, within_s=GENEROUS_S)
            await asyncio.to_thread(roll_over, database.client)
        finally:
            sleeper.process.send_signal(signal.SIGCONT)
        begins = "the live stream begins anew"
        await eventually(lambda: lines(sleeper, begins), within_s=GENEROUS_S)
        await asyncio.to_thread(write, 10)
        changes = await following
        assert len(lines(sleeper, begins)) == 1
    assert changes == [
        ("a", "UPDATE" if version > 1 else "INSERT", version, False) for version in range(1, 41)
    ]
