"""A collection that is created only after the start.

A recording process is killed between the first write and its event.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import run_command, running_gateway

MODEL = """
type Thing @collection(name: "things") @index(fields: ["n"]) {
  id: Int!
  sku: String @unique
  n: Int
}
type Other @collection(name: "others") { id: Int! n: Int }
"""
OPTIONS = ("--lease-s", "3")
VERSIONS = "{ thingVersions(first: 50) { nodes { documentId version operation gap } } }"
Row = dict[str, Any]


def complete(database: Database[Row]) -> bool:
    """Return whether the indexes and the pre-images setting of the model exist."""
    keys = {tuple(each["key"]): each.get("unique") for each in database.things.list_indexes()}
    expected = {("_id",): None, ("sku",): True, ("n", "_id"): None}
    images = database.things.options().get("changeStreamPreAndPostImages")
    return keys == expected and images == {"enabled": True}


@pytest.mark.parametrize("others", representatives([0, 1], 1))
def test_a_killed_recorder_leaves_images_and_indexes_to_the_next_one(
    mongo_uri: str, database: Database[Row], model: Path, others: int
) -> None:
    """The next one started before the collection existed, or is a later start.

    History begins with the insert, and has no gap.
    """
    database.other.insert_one({})
    start = (mongo_uri, database.name, model, *OPTIONS)
    with running_gateway(*start) as killed:
        assert any("the collection 'things' does not exist" in line for line in killed.lines)
        wait_until(lambda: holder(database))
        if others:
            with running_gateway(*start) as other:
                crash(killed.process, database)
                wait_until(lambda: complete(database))
                wait_until(lambda: other.query(VERSIONS) == expected())
        else:
            crash(killed.process, database)
            with running_gateway(*start) as other:
                assert complete(database)
                wait_until(lambda: other.query(VERSIONS) == expected())
    created = {
        each for each in database.list_collection_names() if not each.startswith("revstream.")
    }
    assert created == {"other", "things", "things.versions"}


def test_commands_that_only_read_create_nothing(
    mongo_uri: str, database: Database[Row], model: Path
) -> None:
    """This holds before any start, and after one that only records."""
    database.other.insert_one({})
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    assert "the collection 'things' does not exist" in run_command("doctor", *where).stdout
    assert database.list_collection_names() == ["other"]
    with running_gateway(mongo_uri, database.name, model, command="record"):
        wait_until(lambda: holder(database))
    for command in ("doctor", "verify"):
        done = run_command(command, *where)
        assert not done.stderr.count("Traceback"), done.stderr
    created = {
        each for each in database.list_collection_names() if not each.startswith("revstream.")
    }
    assert created == {"other"}


def holder(database: Database[Row]) -> str:
    """Return the process that records."""
    lease = database["revstream.leases"].find_one({"_id": "recorder:things"}) or {}
    return str(lease.get("holder") or "")


def crash(process: Any, database: Database[Row]) -> None:
    """Write the first documents while the recording process is paused, and kill it."""
    process.send_signal(signal.SIGSTOP)
    database.things.insert_one({"_id": 1, "sku": "a"})
    database.things.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.things.insert_one({"_id": 2, "sku": "b"})
    process.send_signal(signal.SIGKILL)
    process.wait()


def expected() -> Row:
    """Return all versions, the newest first."""
    versions = [("2", 1, "INSERT"), ("1", 2, "UPDATE"), ("1", 1, "INSERT")]
    nodes = [
        {"documentId": id_, "version": version, "operation": operation, "gap": False}
        for id_, version, operation in versions
    ]
    return {"thingVersions": {"nodes": nodes}}
