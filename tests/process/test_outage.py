"""MongoDB away for a while: what a running process says of itself, and that it goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.bare_mongod import BareMongod, replica_set
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, running_gateway

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
OPTIONS = ("--lease-s", "2", "--connect-s", "1")
# A wait that a busy machine does not exceed; what is waited for takes a few seconds.
GENEROUS_S = 40.0

Act = Callable[[BareMongod], None]


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """A MongoDB that tests may take away; each brings it back."""
    # Not pytest's tmp_path, which keeps the directories, 300 MB each, of the last three runs.
    with (
        tempfile.TemporaryDirectory(prefix="revstream-tests-") as directory,
        replica_set(Path(directory)) as server,
    ):
        yield server


@pytest.fixture
def database(server: BareMongod) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](uri(server)) as client:
        yield client[f"outage_{uuid4().hex[:8]}"]


@pytest.fixture
def gateway(
    server: BareMongod, database: Database[dict[str, Any]], tmp_path: Path
) -> Iterator[RunningGateway]:
    """One that is ready, and has recorded a document."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(uri(server), database.name, model, *OPTIONS) as gateway:
        wait_until(lambda: ready(gateway)[0] == 200)
        database.things.insert_one({"_id": "a", "n": 1})
        wait_until(lambda: archived(database) == [1], within_s=GENEROUS_S)
        yield gateway


def uri(server: BareMongod) -> str:
    return f"mongodb://127.0.0.1:{server.port}/?replicaSet=rs0"


def ready(gateway: RunningGateway) -> tuple[int, dict[str, str]]:
    """The status of /readyz, and the parts that are not."""
    response = httpx.get(f"{gateway.address}/readyz", timeout=GENEROUS_S)
    body = response.json()
    assert body["ready"] == (not body["notReady"])
    return response.status_code, body["notReady"]


def archived(database: Database[dict[str, Any]]) -> list[int]:
    """The versions of the document, in the order of the stream."""
    return [each["v"] for each in database["things.versions"].find().sort("_id")]


@pytest.mark.parametrize(
    ("leave", "come_back", "said"),
    [
        (BareMongod.kill, BareMongod.start, "MongoDB's change stream is not open"),
        (BareMongod.hush, BareMongod.speak, "MongoDB's change stream has been silent for"),
    ],
    ids=["killed", "silent"],
)
def test_a_process_is_not_ready_while_mongodb_is_away_and_records_on_once_it_is_back(
    server: BareMongod,
    gateway: RunningGateway,
    database: Database[dict[str, Any]],
    leave: Act,
    come_back: Act,
    said: str,
) -> None:
    """/readyz names the part; the process lives on, as /livez says, and needs no help."""
    leave(server)
    try:
        wait_until(lambda: ready(gateway)[0] == 503, within_s=GENEROUS_S)
        assert ready(gateway)[1]["stream"].startswith(said)
        assert httpx.get(f"{gateway.address}/livez").status_code == 200
    finally:
        come_back(server)
    wait_until(lambda: ready(gateway) == (200, {}), within_s=GENEROUS_S)
    database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})
    wait_until(lambda: archived(database) == [1, 2], within_s=GENEROUS_S)
    assert gateway.stop() == 0
    gateway.close()
    assert not any("Traceback" in line for line in gateway.lines), "".join(gateway.lines)


def test_what_is_asked_while_mongodb_is_away_is_refused_as_unavailable(
    server: BareMongod, gateway: RunningGateway
) -> None:
    """Within the time for which MongoDB is looked for; nothing of its topology is shown."""
    server.kill()
    try:
        answer = gateway.post("{ things { nodes { n } } }")
    finally:
        server.start()
    [error] = answer["errors"]
    assert error["extensions"] == {"code": "UNAVAILABLE"}
    assert "MongoDB" in error["message"]
    assert "Topology" not in error["message"]
    wait_until(lambda: "errors" not in gateway.post("{ things { nodes { n } } }"), within_s=40)


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [(BareMongod.kill, BareMongod.start), (BareMongod.hush, BareMongod.speak)],
    ids=["killed", "silent"],
)
def test_a_process_can_be_stopped_while_mongodb_is_away(
    server: BareMongod, gateway: RunningGateway, leave: Act, come_back: Act
) -> None:
    """In order and within a bound: its leases run out by themselves."""
    leave(server)
    try:
        wait_until(lambda: ready(gateway)[0] == 503, within_s=GENEROUS_S)
        assert gateway.stop() == 0
    finally:
        come_back(server)
    gateway.close()
    assert not any("Traceback" in line for line in gateway.lines), "".join(gateway.lines)
