"""Initial snapshot of a collection that is older than revstream and the oplog.

Documents are written meanwhile, progress is reported, and after a kill the snapshot continues.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.archives import last_of_each
from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.oplog import roll_over, small_oplog
from tests.support.repeating import repeat_in_background
from tests.support.streams import by_document, check_chains

Things = Database[dict[str, Any]]

MODEL = 'type Thing @collection(name: "things", version: null) { id: Int! n: Int }'
STREAMS = "{ streams { state reading { documents estimatedTotal } } }"
DOCUMENTS = 12_000
GENEROUS_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Run a server with a small oplog, which the snapshot itself does not fill."""
    with short_lived_replica_set(*small_oplog(32)) as server:
        yield server


@pytest.fixture
def database(server: BareMongod) -> Iterator[Things]:
    """Insert documents whose inserts have left the oplog."""
    with MongoClient[dict[str, Any]](server.uri, tz_aware=True) as client:
        database = client[f"reading_{uuid4().hex[:8]}"]
        database.things.insert_many([{"_id": n, "n": 0} for n in range(DOCUMENTS)])
        roll_over(client)
        yield database


def baseline(database: Things) -> dict[str, Any]:
    found = database["revstream.checkpoints"].find_one({"_id": "recorder:things"})
    return dict(found["baseline"]) if found else {"done": False, "read": 0}


def kill_within_the_reading(gateway: RunningGateway, database: Things) -> int:
    """Kill the gateway during the snapshot.

    Return the number of documents that it had read at least.
    """
    wait_until(lambda: baseline(database)["read"] >= 4000, within_s=GENEROUS_S)
    gateway.kill()
    stored = baseline(database)
    assert not stored["done"]
    return int(stored["read"])


def first_told(gateway: RunningGateway) -> int:
    """Return the number of documents in the first line of progress."""
    line = next(each for each in gateway.lines if "first reading collection=things" in each)
    found = re.search(rf"documents=(\d+) total={DOCUMENTS}", line)
    assert found, line
    return int(found[1])


def recorded(database: Things) -> bool:
    """Return whether each document's last version equals its current state."""
    if not baseline(database)["done"]:
        return False
    standing = last_of_each(database["things.versions"])
    return {each["doc"]: each["full"] for each in standing} == {
        each["_id"]: each for each in database.things.find()
    }


def writing(database: Things) -> AbstractContextManager[None]:
    """Increment documents all over the collection until the context ends."""
    numbers = itertools.count(1)

    def write() -> None:
        key = {"_id": next(numbers) * 7919 % 500 * (DOCUMENTS // 500)}
        database.things.update_one(key, {"$inc": {"n": 1}})

    return repeat_in_background(write)


@pytest.mark.timeout(400)
def test_a_snapshot_whose_process_is_killed_continues_where_it_was(
    server: BareMongod, database: Things, model: Path
) -> None:
    """`Query.streams` and the log have the progress.

    Each document begins once, with a BASELINE or with its first write since the start, and has
    every write after that.
    """
    start = (server.uri, database.name, model, "--lease-s", "1")
    seen: list[dict[str, Any]] = []

    def progress_is_reported(gateway: RunningGateway) -> bool:
        [status] = gateway.query(STREAMS)["streams"]
        seen.append(status)
        return bool(status["reading"] and status["reading"]["documents"])

    with writing(database):
        with running_gateway(*start) as gateway:
            wait_until(lambda: progress_is_reported(gateway), within_s=GENEROUS_S)
            read = kill_within_the_reading(gateway, database)
        with running_gateway(*start) as gateway:
            wait_until(lambda: baseline(database)["done"], within_s=GENEROUS_S)
            wait_until(lambda: not progress_is_reported(gateway), within_s=GENEROUS_S)
            assert first_told(gateway) >= read
            assert any("first reading done" in each for each in gateway.lines)
    with running_gateway(*start):
        wait_until(lambda: recorded(database), within_s=GENEROUS_S)

    assert seen[-1] == {"state": "recording", "reading": None}
    reading = next(each for each in seen if each["reading"] and each["reading"]["documents"])
    assert reading["state"] == "reading"
    assert reading["reading"]["estimatedTotal"] == DOCUMENTS
    records = list(database["things.versions"].find().sort("_id"))
    check_chains(records)
    begun = list(by_document(records))
    assert len(begun) == DOCUMENTS
    for versions in begun:
        assert versions[0]["op"] in ("BASELINE", "UPDATE")
        assert {each["op"] for each in versions[1:]} <= {"UPDATE"}
        counted = [each["full"]["n"] for each in versions]
        assert counted == list(range(counted[0], counted[0] + len(counted)))


@pytest.mark.timeout(400)
def test_history_lost_during_a_snapshot_has_gaps(
    server: BareMongod, database: Things, model: Path
) -> None:
    """The process is killed, and the oplog loses the writes that follow.

    Documents that were read already have a gap if they have changed, and none if not; the archive
    is correct.
    """
    start = (server.uri, database.name, model, "--lease-s", "1")
    with running_gateway(*start) as gateway:
        read = kill_within_the_reading(gateway, database)
    known = {each["doc"] for each in database["things.versions"].find({}, {"doc": 1})}
    assert len(known) >= read
    database.things.update_many({"_id": {"$in": [1, DOCUMENTS - 1]}}, {"$set": {"n": 5}})
    database.things.delete_many({"_id": {"$in": [2, DOCUMENTS - 2]}})
    roll_over(database.client)
    with running_gateway(*start) as gateway:
        wait_until(lambda: baseline(database)["done"], within_s=GENEROUS_S)
        assert len([each for each in gateway.lines if "history lost" in each]) == 1
    records = list(database["things.versions"].find().sort("_id"))
    check_chains(records)
    found = {
        versions[0]["doc"]: [(each["op"], each.get("gap", False)) for each in versions]
        for versions in by_document(records)
    }
    expected = {n: [("BASELINE", n not in known)] for n in range(DOCUMENTS - 2)}
    expected[1].append(("REPLACE", True))
    expected[2].append(("DELETE", True))
    expected[DOCUMENTS - 1] = [("BASELINE", True)]
    assert found == expected
    arguments = ("--mongodb-uri", server.uri, "--database", database.name)
    verified = run_command("verify", *arguments, "--schema", str(model))
    assert verified.returncode == 0, verified.stdout + verified.stderr
