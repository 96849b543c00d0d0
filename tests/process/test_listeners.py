"""Listeners of a user in real processes: takeover, retries, and refusals."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.metrics import scraped
from tests.support.repeating import repeat_in_background

Shop = Database[dict[str, Any]]
MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
TALLY = ("--listeners", "tests.support.tallying:Tally", "--lease-s", "2")
STREAMS = "{ streams { name state owner fence lagSeconds } }"
GENEROUS_S = 120.0


def handled(database: Shop) -> dict[tuple[Any, int], int]:
    """Return the number of deliveries, by document and version number."""
    return {(each["_id"]["doc"], each["_id"]["v"]): each["times"] for each in database.tally.find()}


def archived(database: Shop) -> set[tuple[Any, int]]:
    return {(each["doc"], each["v"]) for each in database["things.versions"].find()}


def tally(gateway: RunningGateway) -> dict[str, Any]:
    [found] = [each for each in gateway.query(STREAMS)["streams"] if each["name"] == "tally"]
    return found


def holder(database: Shop) -> str | None:
    lease = database["revstream.leases"].find_one({"_id": "tally"})
    return None if lease is None else lease.get("holder")


def open_streams(database: Shop) -> int:
    look = {"$currentOp": {"idleCursors": True, "allUsers": True}}
    operations = database.client.admin.aggregate([look])
    commands = [each.get("cursor", {}).get("originatingCommand", {}) for each in operations]
    mine = [each for each in commands if each.get("$db") == database.name]
    return sum("$changeStream" in stage for each in mine for stage in each.get("pipeline", ()))


@pytest.mark.parametrize(("options", "streams"), [((), 1), (TALLY, 2)])
def test_a_recorder_opens_the_live_stream_only_for_listeners(
    mongo_uri: str, database: Shop, model: Path, options: tuple[str, ...], streams: int
) -> None:
    """Without listeners the stream has no use, and MongoDB would read its oplog twice."""
    database.things.insert_one({"_id": 0, "n": 0})
    with running_gateway(mongo_uri, database.name, model, *options, command="record") as recorder:
        wait_until(lambda: archived(database) == {(0, 1)}, within_s=GENEROUS_S)
        wait_until(lambda: open_streams(database) == streams, within_s=GENEROUS_S)
        assert recorder.stop() == 0


@pytest.mark.parametrize("end", representatives([signal.SIGKILL, signal.SIGTERM], signal.SIGKILL))
def test_a_listener_is_taken_over_and_misses_no_version(
    mongo_uri: str, database: Shop, model: Path, end: signal.Signals
) -> None:
    """Documents are written meanwhile; only the version in progress may be delivered twice."""
    database.things.insert_one({"_id": 0, "n": 0})
    written = 0

    def write() -> None:
        nonlocal written
        written += 1
        database.things.update_one({"_id": written % 7}, {"$set": {"n": written}}, upsert=True)

    start = (mongo_uri, database.name, model, *TALLY)
    with running_gateway(*start) as first:
        pid = f":{first.process.pid}:"
        wait_until(lambda: pid in (holder(database) or ""), within_s=GENEROUS_S)
        with running_gateway(*start) as second:
            with repeat_in_background(write):
                wait_until(lambda: len(handled(database)) > 50, within_s=GENEROUS_S)
                first.process.send_signal(end)
                first.process.wait(timeout=GENEROUS_S)
                count = written
                wait_until(lambda: len(handled(database)) > count + 50, within_s=GENEROUS_S)
                assert pid not in (holder(database) or "")
                assert tally(second)["state"] == "working"
                assert tally(second)["fence"] == 2
            wait_until(lambda: len(archived(database)) == written + 1, within_s=GENEROUS_S)
            wait_until(lambda: set(handled(database)) == archived(database), within_s=GENEROUS_S)
    twice = [each for each, times in handled(database).items() if times > 1]
    assert len(twice) <= 200
    assert max(handled(database).values()) <= 2


def test_a_failing_listener_is_reported_and_affects_no_other_part(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """The process is ready and records; the log has the error once, and metrics count it."""
    with running_gateway(mongo_uri, database.name, model, *TALLY) as gateway:
        database.things.insert_one({"_id": "a", "n": 1})
        wait_until(lambda: ("a", 1) in handled(database), within_s=GENEROUS_S)
        database.things.insert_one({"_id": "poison", "n": 1})
        database.things.insert_one({"_id": "b", "n": 1})

        def failures() -> float:
            return scraped(gateway.address)["revstream_listener_failures_total", "tally"]

        wait_until(lambda: failures() >= 2, within_s=GENEROUS_S)
        wait_until(lambda: ("b", 1) in archived(database), within_s=GENEROUS_S)
        assert ("b", 1) not in handled(database)
        assert tally(gateway)["lagSeconds"] > 0
        assert scraped(gateway.address)["revstream_listener_lag_seconds", "tally"] > 0
        [line] = [each for each in gateway.lines if "listener failed" in each]
        assert "listener=tally" in line
        assert any("this one is not for us" in each for each in gateway.lines)
        assert gateway.query('{ thing(id: "b") { n } }')["thing"] == {"n": 1}


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("nonsense", "'nonsense', expected module:Class"),
        ("tests.support.tallying:Missing", "has no attribute 'Missing'"),
        ("no.such.module:Thing", "No module named 'no'"),
        ("tests.support.tallying:Unfinished", "expected a subclass of"),
        ("tests.support.tallying:Elsewhere", "follows the collection 'nowhere'"),
        (
            "tests.support.tallying:Tally, tests.support.tallying:Tally",
            "the name 'tally' twice",
        ),
    ],
)
def test_an_invalid_listener_is_refused_at_the_start(
    mongo_uri: str, database: Shop, model: Path, listeners: str, message: str
) -> None:
    """The exit code is 2, with the reason."""
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    refused = run_command("record", *where, "--listeners", listeners)
    assert refused.returncode == 2
    assert message in refused.stderr
