"""Webhook sinks of the real command: kills and stops during deliveries, and commands."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import socket
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pymongo.database import Database

from revstream.gql.runtime.listeners.webhook_sinks import sink_name
from revstream.streams.listeners.webhooks.message import redact_url
from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, run_command, running_gateway
from tests.support.metrics import scraped
from tests.support.receiver import Receiver, Reply, Request, running_receiver
from tests.support.repeating import repeat_in_background

Things = Database[dict[str, Any]]

GENEROUS_S = 120.0
SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"


def model_at(tmp_path: Path, url: str) -> Path:
    path = tmp_path / "schema.graphql"
    path.write_text(
        f'type Thing @collection(name: "things") @sink(url: "{url}") {{ id: ID! n: Int }}'
    )
    return path


def place_of(database: Things, name: str) -> dict[str, Any]:
    return database["revstream.checkpoints"].find_one({"_id": name}) or {}


def holder_of(database: Things, name: str, *gateways: RunningGateway) -> RunningGateway:
    """Return the process that delivers."""
    lease = database["revstream.leases"].find_one({"_id": name})
    assert lease is not None
    pid = int(lease["holder"].split(":")[-2])
    [found] = [each for each in gateways if each.process.pid == pid]
    return found


@contextmanager
def writing(database: Things) -> Iterator[Counter[str]]:
    """Write to seven documents in turn, without a pause; yields the number of writes of each."""
    written: Counter[str] = Counter()
    step = 0

    def write() -> None:
        nonlocal step
        key = str(step % 7)
        database.things.update_one({"_id": key}, {"$inc": {"n": 1, "version": 1}}, upsert=True)
        written[key] += 1
        step += 1

    with repeat_in_background(write):
        yield written


def await_more(count: Callable[[], float], by: float) -> None:
    """Wait until there are `by` more than now."""
    now = count()
    wait_until(lambda: count() > now + by, within_s=GENEROUS_S)


class Fenced(Receiver):
    """Refuses older fencing tokens, as a receiver should, and answers with a short delay."""

    def __init__(self) -> None:
        super().__init__(self._behave_fenced)
        self.highest = 0
        self.refused: list[Request] = []

    async def _behave_fenced(self, request: Request) -> Reply:
        await asyncio.sleep(0.005)
        if request.fence < self.highest:
            self.refused.append(request)
            return Reply(status=409)
        self.highest = request.fence
        return Reply()


def check(receiver: Receiver, written: Counter[str]) -> None:
    """Check that no version is lost or out of order.

    Each fencing token has each version once and in order; a repeated version has a newer one.
    """
    by_document: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for each in receiver.requests:
        if each.status == 200:
            by_document[each.subject].append((each.fence, each.version))
    for subject, count in written.items():
        received = by_document[subject]
        assert {version for _, version in received} == set(range(1, count + 1)), subject
        assert received == sorted(received), subject
        assert len(received) == len(set(received)), subject
    assert receiver.overlapping == []


@pytest.mark.timeout(240)
def test_a_killed_sink_is_continued_by_another_process(
    mongo_uri: str, database: Things, tmp_path: Path
) -> None:
    """This happens twice: each time the survivor continues at the last saved checkpoint."""
    with running_receiver(Fenced()) as receiver, ExitStack() as opened:
        name = sink_name("things", receiver.url)
        start = (mongo_uri, database.name, model_at(tmp_path, receiver.url), "--lease-s", "2")
        gateways = [opened.enter_context(running_gateway(*start)) for _ in range(3)]
        wait_until(lambda: place_of(database, name), within_s=GENEROUS_S)
        with writing(database) as written:
            for _ in range(2):
                await_more(lambda: len(receiver.taken), by=100)
                victim = holder_of(database, name, *gateways)
                victim.kill()
                gateways.remove(victim)
                await_more(lambda: place_of(database, name)["fencingToken"], by=0)
        wait_until(lambda: len(set(receiver.taken)) == written.total(), within_s=GENEROUS_S)
    check(receiver, written)


@pytest.mark.timeout(240)
def test_a_sink_paused_beyond_its_lease_is_refused_by_its_fencing_token(
    mongo_uri: str, database: Things, tmp_path: Path
) -> None:
    """Its process lives, and takes over when it is needed again."""
    with running_receiver(Fenced()) as receiver, ExitStack() as opened:
        name = sink_name("things", receiver.url)
        start = (mongo_uri, database.name, model_at(tmp_path, receiver.url), "--lease-s", "2")
        gateways = [opened.enter_context(running_gateway(*start)) for _ in range(2)]
        wait_until(lambda: place_of(database, name), within_s=GENEROUS_S)
        with writing(database) as written:
            wait_until(lambda: len(receiver.taken) > 100, within_s=GENEROUS_S)
            sleeper = holder_of(database, name, *gateways)
            fence = place_of(database, name)["fencingToken"]
            sleeper.process.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: receiver.highest > fence, within_s=GENEROUS_S)
            finally:
                sleeper.process.send_signal(signal.SIGCONT)
            wait_until(
                lambda: any("lease lost" in each for each in sleeper.lines), within_s=GENEROUS_S
            )
            await_more(lambda: len(receiver.taken), by=50)
        wait_until(lambda: len(set(receiver.taken)) == written.total(), within_s=GENEROUS_S)
        assert sleeper.process.poll() is None
        assert {each.fence for each in receiver.refused} <= {fence}
        [other] = [each for each in gateways if each is not sleeper]
        other.kill()
        database.things.insert_one({"_id": "late", "version": 1})
        wait_until(lambda: ("late", 1) in receiver.taken, within_s=GENEROUS_S)
    written["late"] = 1
    check(receiver, written)


def settle(database: Things) -> Callable[[], bool]:
    return lambda: database["revstream.deliveries"].count_documents({}) == 0


@pytest.mark.timeout(180)
def test_parked_deliveries_are_listed_retried_and_dropped(
    mongo_uri: str, database: Things, tmp_path: Path
) -> None:
    """Commands do it while the process runs; Query.streams and the metrics show it.

    No log line and no metric has the secret.
    """
    ill = True

    def behave(request: Request) -> Reply:
        bad = ill and request.subject in ("a", "b") and request.version == 2
        return Reply(status=400, body=b"bad unit") if bad else Reply()

    with running_receiver(Receiver(behave)) as receiver:
        path = model_at(tmp_path, receiver.url)
        name = sink_name("things", receiver.url)
        options = ("--sink-secrets", SECRET, "--log-level", "debug")
        where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(path))
        with running_gateway(mongo_uri, database.name, path, *options) as gateway:
            wait_until(lambda: place_of(database, name), within_s=GENEROUS_S)
            for key in ("a", "b", "c"):
                for _ in range(3):
                    change = {"$inc": {"n": 1, "version": 1}}
                    database.things.update_one({"_id": key}, change, upsert=True)
            wait_until(lambda: ("c", 3) in receiver.taken, within_s=GENEROUS_S)
            wait_until(lambda: database["revstream.deliveries"].count_documents({}) == 2)

            ended = run_command("deliveries", "list", *where)
            assert ended.returncode == 0, ended.stderr
            assert "Thing a version 2: waits since" in ended.stdout
            assert (
                f"{name} to {redact_url(receiver.url)}; 1 later versions wait for it"
                in ended.stdout
            )
            assert "the last one: HTTP 400: bad unit" in ended.stdout
            assert "2 documents wait, of which 0 are parked" in ended.stdout

            def parked() -> bool:
                # This is the state after many attempts; a pending attempt undoes it. Parked
                # deliveries are not retried, so only the commands below change it.
                now = {"$set": {"parked": datetime.now(UTC)}}
                again = database["revstream.deliveries"].update_many({"parked": None}, now)
                found = scraped(gateway.address)
                counted = [
                    found[f"revstream_sink_{each}_documents", name]
                    for each in ("waiting", "parked")
                ]
                return again.modified_count == 0 and counted == [2, 2]

            wait_until(parked, within_s=GENEROUS_S)
            ended = run_command("deliveries", "list", "--json", *where)
            assert ended.returncode == 1, ended.stderr
            listing = json.loads(ended.stdout)
            assert (listing["waiting"], listing["parked"]) == (2, 2)
            # The longest waiting first; those of several documents are sent at once.
            assert sorted(each["id"] for each in listing["documents"]) == ["a", "b"]

            ended = run_command(
                "deliveries", "drop", "Thing", "a", "--by", "ada", "--why", "t1", *where
            )
            assert (ended.returncode, ended.stdout) == (0, "Thing a: version 2 is dropped\n")
            wait_until(lambda: ("a", 3) in receiver.taken, within_s=GENEROUS_S)
            ill = False
            ended = run_command("deliveries", "retry", "Thing", "b", *where)
            assert (ended.returncode, ended.stdout) == (0, "1 deliveries are tried again now\n")
            wait_until(settle(database), within_s=GENEROUS_S)
            ended = run_command("deliveries", "list", *where)
            assert (ended.returncode, ended.stdout) == (0, "no deliveries wait\n")
            ended = run_command("deliveries", "retry", "Thing", "b", *where)
            assert ended.returncode == 1
            assert "Thing b: no failed deliveries" in ended.stderr
            [status] = [
                each
                for each in gateway.query("{ streams { name state trouble lagSeconds } }")[
                    "streams"
                ]
                if each["name"] == name
            ]
            assert (status["state"], status["trouble"]) == ("working", None)
            pages = http.get(f"{gateway.address}/metrics").text
        taken = sorted(receiver.taken)
        expected = [("a", 1), ("a", 3), *((key, n) for key in "bc" for n in (1, 2, 3))]
        assert taken == expected
        assert receiver.requests[0].headers["webhook-signature"].startswith("v1,")
        for text in ("".join(gateway.lines), pages):
            assert SECRET.removeprefix("whsec_") not in text
            assert "c2VjcmV0" not in text


@pytest.mark.timeout(120)
def test_a_receiver_that_is_unreachable_is_reported(
    mongo_uri: str, database: Things, tmp_path: Path
) -> None:
    """Query.streams, metrics, log and the list of deliveries have it; the process stays ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/changes"
    name, path = sink_name("things", url), model_at(tmp_path, url)
    with running_gateway(mongo_uri, database.name, path) as gateway:
        wait_until(lambda: place_of(database, name), within_s=GENEROUS_S)
        database.things.insert_one({"_id": "a", "version": 1})

        def stream_status() -> dict[str, Any]:
            streams = gateway.query("{ streams { name trouble lagSeconds } }")["streams"]
            [found] = [each for each in streams if each["name"] == name]
            return dict(found)

        trouble = f"{redact_url(url)} accepts nothing: no connection: Connection refused"
        wait_until(lambda: stream_status()["trouble"] == trouble, within_s=GENEROUS_S)
        wait_until(lambda: stream_status()["lagSeconds"] > 0, within_s=GENEROUS_S)
        assert scraped(gateway.address)["revstream_sink_paused", name] == 1
        assert http.get(f"{gateway.address}/readyz").status_code == 200
        where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(path))
        ended = run_command("deliveries", "list", *where)
        assert (ended.returncode, ended.stdout) == (
            0,
            f"{name} to {redact_url(url)}: paused: {trouble}\nno deliveries wait\n",
        )
        receiver = Receiver()
        receiver.port = port
        with running_receiver(receiver):
            wait_until(lambda: receiver.taken == [("a", 1)], within_s=GENEROUS_S)
            wait_until(lambda: stream_status()["trouble"] is None, within_s=GENEROUS_S)
    lines = "".join(gateway.lines)
    assert lines.count("listener failed") == 1
    assert "Traceback" not in lines
    assert "listener works again" in lines


def example() -> Any:
    """Return the module of `examples/`, which is no package."""
    path = ROOT / "examples" / "receiver" / "receiver.py"
    spec = importlib.util.spec_from_file_location("receiver", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def example_receiver(store: Path) -> Iterator[str]:
    """Serve it as its README describes; yields its address."""
    module = example()
    server = uvicorn.Server(
        uvicorn.Config(
            lambda: module.create_app(str(store), SECRET), factory=True, port=0, log_config=None
        )
    )
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]))
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


@pytest.mark.timeout(240)
def test_the_example_has_an_exactly_once_effect(
    mongo_uri: str, database: Things, tmp_path: Path
) -> None:
    """Each change counts once and the last state arrives, although the process is killed."""
    with example_receiver(tmp_path / "store.sqlite") as address:
        url = f"{address}/changes"
        name, path = sink_name("things", url), model_at(tmp_path, url)
        start = (mongo_uri, database.name, path, "--lease-s", "1", "--sink-secrets", SECRET)

        def changes() -> int:
            return sum(each["changes"] for each in http.get(f"{address}/products").json())

        with running_gateway(*start):
            wait_until(lambda: place_of(database, name), within_s=GENEROUS_S)
        with writing(database) as written:
            for _ in range(3):
                with running_gateway(*start) as gateway:
                    await_more(changes, by=50)
                    gateway.kill()
        with running_gateway(*start):
            wait_until(lambda: changes() >= written.total(), within_s=GENEROUS_S)
        found = {each["id"]: each for each in http.get(f"{address}/products").json()}
        assert {key: each["changes"] for key, each in found.items()} == dict(written)
        assert {key: each["document"]["n"] for key, each in found.items()} == dict(written)
        forged = http.post(url, json={"sink": "x"}, headers={"webhook-id": "1"})
        assert forged.status_code == 401


def test_the_example_refuses_older_fencing_tokens(tmp_path: Path) -> None:
    """The token is compared per sink; repeated events are recognized."""
    module = example()
    store = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
    store.executescript(module.SCHEMA)

    def event(fence: int, sequence: str, sink: str = "s") -> dict[str, Any]:
        data = {"version": 1, "document": {}}
        return {
            "sink": sink, "fencingtoken": fence, "subject": "a", "sequence": sequence,
            "type": "revstream.Thing.update", "data": data,
        }  # fmt: skip

    assert module.take(store, event(1, "1")) == (200, "done")
    assert module.take(store, event(2, "1")) == (200, "known")
    assert module.take(store, event(2, "2")) == (200, "done")
    assert module.take(store, event(1, "3")) == (409, "fencing token 1 is older than 2")
    assert module.take(store, event(1, "3", "other")) == (200, "done")
    assert store.execute("select changes from products").fetchone() == (3,)
    store.close()
