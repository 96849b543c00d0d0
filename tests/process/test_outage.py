"""Outage of MongoDB: the reports of a running process, and its recovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support import http
from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.eventually import wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.metrics import scraped

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
OPTIONS = ("--lease-s", "2", "--connect-s", "1")
# A time limit that a busy machine does not exceed; the awaited state takes a few seconds.
GENEROUS_S = 120.0

Act = Callable[[BareMongod], None]


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Run a MongoDB that tests may stop; each starts it again."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


@pytest.fixture
def database(server: BareMongod) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](server.uri) as client:
        yield client[f"outage_{uuid4().hex[:8]}"]


@pytest.fixture
def gateway(
    server: BareMongod, database: Database[dict[str, Any]], tmp_path: Path
) -> Iterator[RunningGateway]:
    """Run a gateway that is ready, and has recorded a document."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(server.uri, database.name, model, *OPTIONS) as gateway:
        wait_until(lambda: ready(gateway)[0] == 200, within_s=GENEROUS_S)
        database.things.insert_one({"_id": "a", "n": 1})
        wait_until(lambda: archived(database) == [1], within_s=GENEROUS_S)
        yield gateway


def ready(gateway: RunningGateway) -> tuple[int, dict[str, str]]:
    """Return the status of /readyz, and the parts that are not ready."""
    response = http.get(f"{gateway.address}/readyz", timeout=GENEROUS_S)
    body = response.json()
    assert body["ready"] == (not body["notReady"])
    return response.status_code, body["notReady"]


def archived(database: Database[dict[str, Any]]) -> list[int]:
    """Return the versions of the document, in the order of the stream."""
    return [each["v"] for each in database["things.versions"].find().sort("_id")]


@pytest.mark.parametrize(
    ("leave", "come_back", "reason"),
    [
        (BareMongod.kill, BareMongod.start, "MongoDB's change stream is not open"),
        pytest.param(
            BareMongod.hush,
            BareMongod.speak,
            "MongoDB's change stream: silent for",
            marks=exhaustive,
        ),
    ],
    ids=["killed", "silent"],
)
def test_a_process_is_not_ready_during_an_outage_and_continues_after_it(
    server: BareMongod,
    gateway: RunningGateway,
    database: Database[dict[str, Any]],
    leave: Act,
    come_back: Act,
    reason: str,
) -> None:
    """/readyz names the part; /livez stays live, and the process recovers without help."""
    leave(server)
    try:
        wait_until(
            lambda: ready(gateway)[1].get("stream", "").startswith(reason), within_s=GENEROUS_S
        )
        assert ready(gateway)[0] == 503
        assert http.get(f"{gateway.address}/livez").status_code == 200
    finally:
        come_back(server)
    wait_until(lambda: ready(gateway) == (200, {}), within_s=GENEROUS_S)
    interruptions = [line for line in gateway.lines if "change stream interrupted" in line]
    # One line of the live stream, one of the recorder; none for each attempt.
    assert len(interruptions) <= 2, interruptions
    database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})
    wait_until(lambda: archived(database) == [1, 2], within_s=GENEROUS_S)
    assert gateway.stop() == 0
    gateway.close()
    assert not any("Traceback" in line for line in gateway.lines), "".join(gateway.lines)


def test_requests_during_an_outage_are_refused_as_unavailable(
    server: BareMongod, gateway: RunningGateway
) -> None:
    """They wait for at most the time of server selection; the error does not show the topology."""
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
    [
        pytest.param(BareMongod.kill, BareMongod.start, marks=exhaustive),
        (BareMongod.hush, BareMongod.speak),
    ],
    ids=["killed", "silent"],
)
def test_requests_during_a_known_outage_do_not_wait(
    server: BareMongod,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    leave: Act,
    come_back: Act,
) -> None:
    """The driver would wait for a primary for a minute.

    Requests without MongoDB are answered, others are refused at once, and pending ones within
    seconds.
    """
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    write = "mutation { createThing(document: { n: 1 }) { __typename } }"
    with running_gateway(server.uri, database.name, model, "--connect-s", "60") as gateway:
        wait_until(lambda: ready(gateway)[0] == 200, within_s=GENEROUS_S)
        assert "errors" not in gateway.post("{ things { nodes { n } } }")
        leave(server)
        try:
            began = time.monotonic()
            # One client for all: creating one takes longer than a response.
            with (
                httpx.Client(
                    timeout=GENEROUS_S, limits=httpx.Limits(max_connections=200)
                ) as client,
                ThreadPoolExecutor(150) as pool,
            ):

                def post(text: str) -> Any:
                    return client.post(f"{gateway.address}/graphql", json={"query": text}).json()

                texts = ["{ things { nodes { n } } }", "{ resumeToken streams { name } }", write]
                pending = [pool.submit(post, text) for text in 50 * texts]
                for text in ("{ __typename }", "{ ...F } fragment F on Query { __typename }"):
                    assert gateway.post(text) == {"data": {"__typename": "Query"}}
                assert http.get(f"{gateway.address}/livez").status_code == 200
                waited_s = time.monotonic() - began
                answers = [each.result() for each in pending]
            took_s = time.monotonic() - began
            codes = {each["extensions"]["code"] for a in answers for each in a.get("errors", ())}
            assert codes == {"UNAVAILABLE"}
            assert waited_s < 10
            assert took_s < 20
            began = time.monotonic()
            for text in (texts[0], write):
                [error] = gateway.post(text)["errors"]
                assert error["extensions"]["code"] == "UNAVAILABLE"
            assert gateway.post("{ __schema { queryType { name } } }")["data"]
            assert time.monotonic() - began < 5
        finally:
            come_back(server)
        wait_until(lambda: "errors" not in gateway.post(texts[0]), within_s=GENEROUS_S)
        assert gateway.stop() == 0
    assert not any("Traceback" in line for line in gateway.lines), "".join(gateway.lines)


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [
        (BareMongod.kill, BareMongod.start),
        pytest.param(BareMongod.hush, BareMongod.speak, marks=exhaustive),
    ],
    ids=["killed", "silent"],
)
def test_a_process_can_be_stopped_during_an_outage(
    server: BareMongod, gateway: RunningGateway, leave: Act, come_back: Act
) -> None:
    """It stops in order and in bounded time: its leases expire by themselves."""
    leave(server)
    try:
        wait_until(lambda: ready(gateway)[0] == 503, within_s=GENEROUS_S)
        assert gateway.stop() == 0
    finally:
        come_back(server)
    gateway.close()
    assert not any("Traceback" in line for line in gateway.lines), "".join(gateway.lines)


def test_a_recorder_that_cannot_write_is_reported(
    server: BareMongod, gateway: RunningGateway, database: Database[dict[str, Any]]
) -> None:
    """The stream is followed and reads are served, but the archive does not grow.

    The process is not ready, with the reason and one line in the log; another recording process
    would change that.
    """
    refusing = {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn",
        "data": {
            "failCommands": ["insert"],
            "namespace": f"{database.name}.things.versions",
            "closeConnection": True,
        },
    }
    database.client.admin.command(refusing)
    try:
        database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})
        wait_until(
            lambda: (
                scraped(gateway.address)["revstream_recorder_interruptions_total", "things"] >= 2
            ),
            within_s=GENEROUS_S,
        )
        status, missing = ready(gateway)
        assert status == 503
        assert list(missing) == ["recorder:things"]
        assert missing["recorder:things"].startswith("work interrupted: ")
        assert scraped(gateway.address)["revstream_ready",] == 0
        assert http.get(f"{gateway.address}/livez").status_code == 200
        assert gateway.query('{ thing(id: "a") { n } }') == {"thing": {"n": 2}}
    finally:
        database.client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    wait_until(lambda: archived(database) == [1, 2], within_s=GENEROUS_S)
    wait_until(lambda: ready(gateway) == (200, {}), within_s=GENEROUS_S)
    assert len([line for line in gateway.lines if "work interrupted" in line]) == 1


def test_a_process_is_ready_while_another_one_records(
    server: BareMongod, gateway: RunningGateway, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    """It follows the stream, and knows the other one's position."""
    with running_gateway(
        server.uri, database.name, tmp_path / "schema.graphql", *OPTIONS
    ) as follower:
        wait_until(lambda: ready(follower) == (200, {}), within_s=GENEROUS_S)
        database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})

        def metric(name: str) -> list[float]:
            return [scraped(each.address)[name, "things"] for each in (gateway, follower)]

        wait_until(lambda: archived(database) == [1, 2], within_s=GENEROUS_S)
        assert metric("revstream_recorder_lease_held") == [1, 0]
        wait_until(lambda: metric("revstream_recorder_lag_events") == [0, 0], within_s=GENEROUS_S)
        wait_until(lambda: metric("revstream_recorder_lag_seconds") == [0, 0], within_s=GENEROUS_S)
        assert follower.stop() == 0


def test_a_recorder_waits_for_space_on_a_full_disk(
    server: BareMongod, gateway: RunningGateway, database: Database[dict[str, Any]]
) -> None:
    """No change is lost.

    The process lives, reports the reason, and continues by itself once there is space.
    """
    data = {
        "failCommands": ["insert"],
        "errorCode": 14031,
        "namespace": f"{database.name}.things.versions",
    }
    failing = {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data}
    database.client.admin.command(failing)
    try:
        database.things.update_one({"_id": "a"}, {"$set": {"n": 2}})
        wait_until(
            lambda: any("MongoDB's disk: full" in line for line in gateway.lines),
            within_s=GENEROUS_S,
        )
        assert gateway.query("{ things { nodes { n } } }") == {"things": {"nodes": [{"n": 2}]}}
    finally:
        database.client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    wait_until(lambda: archived(database) == [1, 2], within_s=GENEROUS_S)
    assert gateway.process.poll() is None
