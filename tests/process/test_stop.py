"""The end of a process: released leases, interrupted subscribers, and takeover.

The end is requested by a signal, or is a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database
from websockets.exceptions import ConnectionClosed

from tests.support import http
from tests.support.beginning import begin_now
from tests.support.eventually import eventually, wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, running_gateway, subscribe
from tests.support.metrics import scraped
from tests.support.repeating import repeat_in_background

Shop = Database[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") { id: ID! n: Int }
type Other @collection(name: "others") { id: ID! n: Int }
"""
CHANGES = """
subscription Changes($after: ResumeToken) {
  thingChanges(after: $after) { kind documentId version resumeToken }
}
"""
HISTORY = "{ things { nodes { id n history(first: 5) { nodes { version operation } } } } }"
# A time limit that a busy machine does not exceed; the awaited state takes a second or two.
GENEROUS_S = 120.0


def holders(database: Shop) -> list[str | None]:
    """Return the holders of the leases of the two recorders; None for a free one."""
    return [each.get("holder") for each in database["revstream.leases"].find().sort("_id")]


def held_by(database: Shop, gateway: RunningGateway) -> bool:
    """Return whether that process holds both."""
    found = holders(database)
    return len(found) == 2 and all(f":{gateway.process.pid}:" in (each or "") for each in found)


def held_apart(database: Shop, others: RunningGateway, things: RunningGateway) -> bool:
    """Return whether each of two processes holds one."""
    pids = [(each or "::").split(":")[1] for each in holders(database)]
    return pids == [str(others.process.pid), str(things.process.pid)]


def archived(database: Shop) -> list[tuple[str, int]]:
    """Return document and version of each record, in the order of the stream."""
    return [(each["doc"], each["v"]) for each in database["things.versions"].find().sort("_id")]


def checkpointed(database: Shop, count: int) -> bool:
    """Return whether so many versions are archived, and the checkpoint covers them."""
    last = database["things.versions"].find_one(sort=[("_id", -1)])
    checkpoint = database["revstream.checkpoints"].find_one({"_id": "recorder:things"})
    if last is None or checkpoint is None or len(archived(database)) != count:
        return False
    return bool(checkpoint["token"] >= last["_id"])


class Writer:
    """Thread that writes documents one after the other until it is stopped.

    `written` is the expected content of the archive.
    """

    def __init__(self, database: Shop) -> None:
        self.written: list[tuple[str, int]] = []
        self._database = database

    def write(self) -> None:
        number = len(self.written)
        key, version = f"t{number % 7}", number // 7 + 1
        self._database.things.update_one({"_id": key}, {"$set": {"n": number}}, upsert=True)
        self.written.append((key, version))


def assert_quiet(gateway: RunningGateway) -> None:
    """Check that the log has no errors."""
    gateway.close()
    log = "".join(gateway.lines)
    assert " error " not in log.lower(), log
    assert "Traceback" not in log, log


def assert_interrupted(closed: ConnectionClosed) -> None:
    """Check that the close frame is one after which clients reconnect."""
    assert closed.rcvd is not None
    assert closed.rcvd.code == 1012
    assert "shutting down; subscribe again after the last token" in closed.rcvd.reason


@pytest.mark.parametrize("command", ["serve", "record"])
def test_sigterm_releases_the_leases_with_the_last_write_in_the_checkpoint(
    mongo_uri: str, database: Shop, model: Path, command: str
) -> None:
    """The process exits with code 0 and frees its leases, and the next one reads nothing again."""
    writer = Writer(database)
    with running_gateway(mongo_uri, database.name, model, command=command) as gateway:
        wait_until(lambda: held_by(database, gateway), within_s=GENEROUS_S)
        for _ in range(20):
            writer.write()
        wait_until(lambda: checkpointed(database, 20), within_s=GENEROUS_S)
        assert gateway.stop() == 0
    assert holders(database) == [None, None]
    assert checkpointed(database, 20)
    assert archived(database) == writer.written
    assert_quiet(gateway)


async def test_a_subscriber_is_interrupted_and_resumes_at_another_process_without_loss(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """It gets a checkpoint and a close frame for a reconnect; its token is valid there."""
    received: list[tuple[str, int]] = []
    token: str
    kind = ""

    async def follow(gateway: RunningGateway, most: float) -> None:
        nonlocal token, kind
        async with contextlib.aclosing(gateway.subscribe(CHANGES, after=token)) as events:
            async for data in events:
                change = data["thingChanges"]
                token, kind = change["resumeToken"], change["kind"]
                if kind == "CHANGE":
                    received.append((change["documentId"], change["version"]))
                if len(received) >= most:
                    return

    await begin_now(mongo_uri, database.name, "things", "others")
    with (
        running_gateway(mongo_uri, database.name, model, "--lease-s", "2") as first,
        running_gateway(mongo_uri, database.name, model, "--lease-s", "2") as second,
    ):
        token = first.query("{ resumeToken }")["resumeToken"]
        writer = Writer(database)
        with repeat_in_background(writer.write):
            following = asyncio.create_task(follow(first, most=float("inf")))
            await eventually(lambda: len(received) > 20, within_s=GENEROUS_S)
            assert await asyncio.to_thread(first.stop) == 0, "".join(first.lines)
            with pytest.raises(ConnectionClosed) as caught:
                await following
            seen, ended_with = len(received), kind
            await eventually(lambda: len(writer.written) > seen + 20, within_s=GENEROUS_S)
        async with asyncio.timeout(GENEROUS_S):
            await follow(second, most=len(writer.written))
    assert_interrupted(caught.value)
    assert ended_with == "CHECKPOINT"
    assert received == writer.written
    assert_quiet(first)


@pytest.mark.parametrize(
    "protocol", representatives(["graphql-transport-ws", "graphql-ws"], "graphql-transport-ws")
)
async def test_a_subscriber_in_replay_is_interrupted(
    mongo_uri: str, database: Shop, model: Path, protocol: str
) -> None:
    """It is interrupted at once, though it waits for a recorder that does not run."""
    options = ("--no-record", "--ring-events", "1", "--archive-wait-s", "600")
    # More than `stop` waits.
    options += ("--shutdown-s", "600")
    received: list[tuple[str, int]] = []
    with (
        running_gateway(mongo_uri, database.name, model) as recorder,
        running_gateway(mongo_uri, database.name, model, *options) as gateway,
    ):
        start = gateway.query("{ resumeToken }")["resumeToken"]
        wait_until(lambda: held_by(database, recorder), within_s=GENEROUS_S)
        assert recorder.stop() == 0
        writer = Writer(database)
        for _ in range(20):
            writer.write()
        wait_until(
            lambda: scraped(gateway.address)["revstream_stream_events_total", "things"] == 20
        )
        events = subscribe(gateway.address, CHANGES, protocol=protocol, after=start)
        following = asyncio.ensure_future(anext(events))
        await eventually(lambda: scraped(gateway.address)["revstream_subscriptions", "things"] == 1)
        assert scraped(gateway.address)["revstream_subscribers", "things"] == 0
        assert await asyncio.to_thread(gateway.stop) == 0
        # The position at which it began: no event was sent since.
        (last,) = (await following).values()
        assert (last["kind"], last["resumeToken"]) == ("CHECKPOINT", start)
        with pytest.raises(ConnectionClosed) as caught:
            await anext(events)
    assert_interrupted(caught.value)
    assert_quiet(gateway)
    with running_gateway(mongo_uri, database.name, model) as another:
        async with contextlib.aclosing(another.subscribe(CHANGES, after=start)) as changes:
            async for data in changes:
                change = data["thingChanges"]
                if change["kind"] == "CHANGE":
                    received.append((change["documentId"], change["version"]))
                if len(received) == 20:
                    break
    assert received == writer.written


@pytest.mark.parametrize(
    "end", representatives([RunningGateway.stop, RunningGateway.kill], RunningGateway.kill)
)
def test_another_process_takes_over_and_the_archive_is_complete(
    mongo_uri: str, database: Shop, model: Path, end: Callable[[RunningGateway], object]
) -> None:
    """Each of two records one collection; once one is stopped or killed, the other records both.

    Each version exists once, in order.
    """
    start = (mongo_uri, database.name, model, "--lease-s", "2")
    writer = Writer(database)
    with running_gateway(*start) as first:
        wait_until(lambda: held_by(database, first), within_s=GENEROUS_S)
        with running_gateway(*start) as second:
            with repeat_in_background(writer.write):
                wait_until(lambda: len(archived(database)) > 50, within_s=GENEROUS_S)
                # The second process has its share: the collection with writes.
                wait_until(lambda: held_apart(database, first, second), within_s=GENEROUS_S)
                end(second)
                wait_until(lambda: held_by(database, first), within_s=GENEROUS_S)
                count = len(writer.written)
                wait_until(lambda: len(archived(database)) > count + 50, within_s=GENEROUS_S)
            wait_until(lambda: checkpointed(database, len(writer.written)), within_s=GENEROUS_S)
    assert archived(database) == writer.written
    leases = database["revstream.leases"].find().sort("_id")
    assert [each["fencingToken"] for each in leases] == [1, 3]


def test_history_recorded_by_one_process_is_served_by_another(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """`record` holds the leases; `serve --no-record` requests none and serves its records."""
    with (
        running_gateway(mongo_uri, database.name, model, command="record") as recorder,
        running_gateway(mongo_uri, database.name, model, "--no-record") as server,
    ):
        wait_until(lambda: held_by(database, recorder), within_s=GENEROUS_S)
        database.things.insert_one({"_id": "a", "n": 1})
        database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})

        def served() -> bool:
            [thing] = server.query(HISTORY)["things"]["nodes"]
            history = [(each["version"], each["operation"]) for each in thing["history"]["nodes"]]
            return thing["n"] == 2 and history == [(2, "UPDATE"), (1, "INSERT")]

        wait_until(served, within_s=GENEROUS_S)
        assert not any("lease" in line for line in server.lines)
        assert held_by(database, recorder)
        assert recorder.address == ""


def test_a_background_task_that_dies_ends_the_process_with_an_error(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """An invalid checkpoint ends a recorder.

    The process does not continue without it, and the other lease is released.
    """
    damaged = {"_id": "recorder:things", "token": 5, "start": "", "fencingToken": 0}
    baseline = {"done": True, "started": False, "after": None, "documents": 0}
    database["revstream.checkpoints"].insert_one({**damaged, "baseline": baseline, "savedAt": None})
    with running_gateway(mongo_uri, database.name, model) as gateway:
        assert gateway.process.wait(timeout=GENEROUS_S) == 1
        gateway.close()
    [line] = [each for each in gateway.lines if "background task died" in each]
    assert "task=recorder:things" in line
    assert "reason=AttributeError" in line or "reason=TypeError" in line
    assert gateway.lines[-1].startswith("revstream: ")
    assert set(holders(database)) == {None}


def request_without_recorder(gateway: RunningGateway) -> HTTPConnection:
    """Return a connection with a pending request for history that no process records."""
    token = gateway.query("{ resumeToken }")["resumeToken"]
    connection = HTTPConnection(gateway.address.removeprefix("http://"), timeout=GENEROUS_S)
    query = f'{{ thingsAsOf(asOf: {{ token: "{token}" }}) {{ nodes {{ id }} }} }}'
    headers = {"content-type": "application/json"}
    connection.request("POST", "/graphql", json.dumps({"query": query}), headers)
    # Requests are served in order: once this one is answered, the other one is pending.
    assert http.get(f"{gateway.address}/livez").json() == {"live": True}
    return connection


def test_pending_requests_are_answered_before_the_end(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """Requests that take no longer than the bound receive their responses."""
    options = ("--no-record", "--archive-wait-s", "1", "--shutdown-s", "20")
    with running_gateway(mongo_uri, database.name, model, *options) as gateway:
        connections = [request_without_recorder(gateway) for _ in range(3)]
        assert gateway.stop() == 0
    for connection in connections:
        with contextlib.closing(connection):
            answer = json.load(connection.getresponse())
        assert answer["errors"][0]["extensions"]["code"] == "ARCHIVE_BEHIND"
    assert_quiet(gateway)


def test_requests_that_take_too_long_are_ended_without_an_error(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """They delay the end no longer than the bound, and the log has their number."""
    options = ("--no-record", "--archive-wait-s", "600", "--shutdown-s", "1")
    with running_gateway(mongo_uri, database.name, model, *options) as gateway:
        connections = [request_without_recorder(gateway) for _ in range(3)]
        assert gateway.stop() == 0
    for connection in connections:
        with contextlib.closing(connection):
            assert connection.getresponse().status == 500
    assert_quiet(gateway)
    [line] = [each for each in gateway.lines if "warning" in each]
    assert "Cancel 3 running task(s)" in line


def test_a_second_signal_ends_the_process_at_once(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """It is for people at a terminal; the leases are released all the same."""
    options = ("--archive-wait-s", "600", "--shutdown-s", "600")
    with running_gateway(mongo_uri, database.name, model, *options) as gateway:
        wait_until(lambda: held_by(database, gateway), within_s=GENEROUS_S)
        connection = HTTPConnection(gateway.address.removeprefix("http://"))
        with contextlib.closing(connection):
            # The body is never sent.
            connection.putrequest("POST", "/graphql")
            connection.putheader("content-length", "9")
            connection.endheaders()
            assert http.get(f"{gateway.address}/livez").json() == {"live": True}
            gateway.process.send_signal(signal.SIGTERM)
            wait_until(lambda: any("stopping" in line for line in gateway.lines))
            assert gateway.stop() == 0
    assert holders(database) == [None, None]
