"""`revstream verify` and `revstream doctor` as programs: output and exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.support import http
from tests.support.beginning import begin_now
from tests.support.eventually import wait_until
from tests.support.gateway import run_command, running_gateway

Client = MongoClient[dict[str, Any]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model of one collection.

    Without writes, a recorder that is stopped soon is at the oldest oplog entry, which is the
    first test's.
    """
    path = tmp_path / "schema.graphql"
    path.write_text(
        'type Supplier @collection(name: "suppliers") '
        "{ id: ObjectID! name: String country: String }"
    )
    return path


@pytest.fixture
def database(mongo_uri: str, client: Client, model: Path) -> Any:
    """Provide a database with a few suppliers, completely recorded."""
    name = f"verify_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, model):
        suppliers = client[name].suppliers
        suppliers.insert_many([{"name": f"n{n}"} for n in range(3)])
        suppliers.update_many({}, {"$set": {"country": "DE"}})
        archive = client[name]["suppliers.versions"]
        wait_until(lambda: archive.count_documents({}) == 6)
    yield client[name]
    client.drop_database(name)


def arguments(uri: str, name: str, model: Path) -> tuple[str, ...]:
    return ("verify", "--mongodb-uri", uri, "--database", name, "--schema", str(model))


def test_an_archive_without_damage_is_reported_as_correct(
    mongo_uri: str, database: Any, model: Path
) -> None:
    """The exit code is 0, and each collection has a line."""
    ended = run_command(*arguments(mongo_uri, database.name, model))
    assert ended.returncode == 0, ended.stdout
    assert "suppliers: 3 documents, 6 versions, 0 of them after a gap, no problems" in (
        ended.stdout.splitlines()
    )


def test_damage_is_reported_as_text_and_as_json(mongo_uri: str, database: Any, model: Path) -> None:
    """The exit code is 1; `--json` has every finding with its kind."""
    archive = database["suppliers.versions"]
    damaged = archive.find_one({"v": 2})
    archive.update_one({"_id": damaged["_id"]}, {"$set": {"full.country": "FR"}})
    ended = run_command(*arguments(mongo_uri, database.name, model))
    assert ended.returncode == 1, ended.stdout
    assert f"suppliers/{damaged['doc']} version 2: " in ended.stdout
    assert "suppliers: 3 documents, 6 versions, 0 of them after a gap, 2 problems\n" in ended.stdout
    ended = run_command(*arguments(mongo_uri, database.name, model), "--json")
    assert ended.returncode == 1, ended.stdout
    report = json.loads(ended.stdout)["suppliers"]
    assert report["versions"] == 6
    assert [(each["kind"], each["documentId"], each["version"]) for each in report["findings"]] == [
        ("CHECKSUM", str(damaged["doc"]), 2),
        ("PRESENT", str(damaged["doc"]), 2),
    ]


def test_a_database_that_cannot_be_reached_is_reported_in_a_sentence(model: Path) -> None:
    """The error is one sentence, as for the other commands."""
    ended = run_command(*arguments("mongodb://127.0.0.1:1/", "shop", model), "--connect-s", "0.5")
    assert ended.returncode == 1, ended.stdout
    assert ended.stderr.startswith("revstream: MongoDB cannot be reached")
    assert "Traceback" not in ended.stderr


def test_the_doctor_finds_nothing_where_revstream_serves(
    mongo_uri: str, client: Client, tmp_path: Path
) -> None:
    """Without a recorder it reports an error with its remedy, as text and as JSON."""
    model = tmp_path / "schema.graphql"
    model.write_text('type Thing @collection(name: "things") { id: ID! name: String @unique }')
    name = f"doctor_{uuid4().hex[:8]}"
    doctor = ("doctor", "--mongodb-uri", mongo_uri, "--database", name, "--schema", str(model))
    asyncio.run(begin_now(mongo_uri, name, "things"))
    with running_gateway(mongo_uri, name, model):
        leases = client[name]["revstream.leases"]
        wait_until(lambda: leases.count_documents({"holder": {"$ne": None}}) == 1)
        wait_until(lambda: client[name]["revstream.checkpoints"].count_documents({}) == 1)
        ended = run_command(*doctor, "--json")
        wrong = {
            each["subject"]
            for each in json.loads(ended.stdout)
            if each["level"] in ("warning", "error")
        }
        # The oplog's fill level depends on all tests.
        assert wrong <= {"oplog"}, ended.stdout
        assert ended.returncode == len(wrong)
    ended = run_command(*doctor, "--json")
    assert ended.returncode == 1
    wrong = [each for each in json.loads(ended.stdout) if each["level"] == "error"]
    assert [each["subject"] for each in wrong] == ["recorders"]
    assert "revstream record" in wrong[0]["mend"]
    client.drop_database(name)


def test_a_gateway_warns_if_no_process_records(mongo_uri: str, database: Any, model: Path) -> None:
    """`/readyz` has the warning, and `doctor` reports it too."""
    with running_gateway(mongo_uri, database.name, model, "--no-record") as gateway:
        readiness = http.get(f"{gateway.address}/readyz", timeout=60).json()
    assert set(readiness["warnings"]) == {"recorder:suppliers"}
    assert readiness["warnings"]["recorder:suppliers"].startswith("no process records")
    command = ("doctor", *arguments(mongo_uri, database.name, model)[1:])
    assert "suppliers: no process records" in run_command(*command).stdout
