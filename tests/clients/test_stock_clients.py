"""Other vendors' clients without changes, whose subscriptions end in each way that asks for a new
subscription: they subscribe again and continue after their last token.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect, NotPrimaryError

from tests.clients.node import running_program
from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, ensure_ended, start_gateway
from tests.support.issuer import Issuer
from tests.support.metrics import scraped
from tests.support.mongod import running_mongod, temporary_directory
from tests.support.wire import tcp_proxy

CLIENTS = ("graphql-ws", "apollo", "urql", "relay")
MODEL = 'type Thing @collection(name: "things") { id: ID! text: String }'
GENEROUS_S = 120.0


@dataclass
class Stage:
    """A gateway and the clients that follow it; `written` are the ids of all documents so far."""

    things: Collection[dict[str, Any]]
    start: Callable[..., RunningGateway]
    stack: ExitStack
    headers: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    said: dict[str, list[Any]] = field(default_factory=dict)

    def connect(self, *arguments: str) -> None:
        """Start the gateway and the clients, and wait until each client follows."""
        self.gateway = self.stack.enter_context(ensure_ended(self.start()))
        self.wire = self.stack.enter_context(tcp_proxy(self.gateway.address))
        asked = {"query": "{ resumeToken }"}
        url = f"{self.gateway.address}/graphql"
        after = http.post(url, json=asked, headers=self.headers).json()["data"]["resumeToken"]
        for name in CLIENTS:
            given = (name, self.wire.address, after, *arguments)
            process, said = self.stack.enter_context(running_program("stock.mjs", *given))
            self.processes.append(process)
            self.said[name] = said
        self.write()
        wait_until(self.all_seen, within_s=GENEROUS_S)

    def write(self, text: str = "") -> None:
        id_ = f"t{len(self.written)}"
        while True:
            try:
                self.things.insert_one({"_id": id_, "text": text})
                break
            except (AutoReconnect, NotPrimaryError):
                # The file may exist already.
                if self.things.find_one({"_id": id_}):
                    break
        self.written.append(id_)

    def all_seen(self) -> bool:
        """Return whether each client has received as many events as writes, or an end."""
        return all(
            len(event_ids(said)) >= len(self.written) or ends_of(said)
            for said in self.said.values()
        )

    def connections(self, name: str) -> int:
        return max(
            (each["connected"] for each in self.said[name] if "connected" in each), default=0
        )

    def replace_gateway(self, end: Callable[[RunningGateway], object]) -> None:
        """End the gateway once another one serves the same address, as behind a load balancer."""
        successor = self.stack.enter_context(ensure_ended(self.start()))
        self.wire.mend(successor.address)
        end(self.gateway)
        self.gateway = successor
        self.write()


def event_ids(said: list[Any]) -> list[str]:
    return [each["document"] for each in list(said) if "document" in each]


def ends_of(said: list[Any]) -> list[str]:
    return [each["ended"] for each in list(said) if "ended" in each]


@contextmanager
def staged(uri: str, database: str, folder: Path, *options: str) -> Iterator[Stage]:
    model = folder / "schema.graphql"
    model.write_text(MODEL)
    start = partial(start_gateway, uri, database, model, "--lease-s", "2", *options)
    with ExitStack() as stack, MongoClient[dict[str, Any]](uri, retryWrites=False) as client:
        yield Stage(client[database]["things"], start, stack)


def assert_all_go_on(stage: Stage) -> None:
    """Compare for each client: events received, events written, other messages, reconnected."""
    for _ in range(3):
        stage.write()
    wait_until(stage.all_seen, within_s=GENEROUS_S)
    table = {name: (event_ids(said), ends_of(said)) for name, said in stage.said.items()}
    assert table == dict.fromkeys(CLIENTS, (stage.written, []))


@pytest.mark.parametrize("end", [RunningGateway.stop, RunningGateway.kill], ids=["TERM", "KILL"])
def test_clients_continue_when_the_gateway_ends(
    mongo_uri: str, database_name: str, tmp_path: Path, end: Callable[[RunningGateway], object]
) -> None:
    """The gateway ends by SIGTERM or SIGKILL, and another one serves."""
    with staged(mongo_uri, database_name, tmp_path) as stage:
        stage.connect()
        stage.replace_gateway(end)
        assert_all_go_on(stage)
        assert [stage.connections(name) >= 2 for name in CLIENTS] == [True] * len(CLIENTS)


def test_clients_continue_when_the_primary_steps_down(tmp_path: Path) -> None:
    """MongoDB has no primary for a while, and closes all connections."""
    with (
        temporary_directory() as directory,
        running_mongod(directory) as uri,
        MongoClient[dict[str, Any]](uri) as client,
        staged(uri, "stepdown", tmp_path) as stage,
    ):
        stage.connect()
        client.admin.command("replSetStepDown", 3, secondaryCatchUpPeriodSecs=0, force=True)
        assert_all_go_on(stage)


def test_slow_consumers_continue(mongo_uri: str, database_name: str, tmp_path: Path) -> None:
    """Clients stop reading while more is written than their backlogs hold."""
    options = ("--backlog-events", "4", "--socket-stalled-s", "600")
    with staged(mongo_uri, database_name, tmp_path, *options) as stage:
        stage.connect()

        def slow() -> float:
            return scraped(stage.gateway.address)["revstream_slow_consumers_total", "things"]

        before = slow()
        for each in stage.processes:
            each.send_signal(signal.SIGSTOP)
        try:
            # More than all buffers between the clients and the gateway.
            while slow() < before + len(CLIENTS):
                assert len(stage.written) < 200
                stage.write("x" * 1_000_000)
        finally:
            for each in stage.processes:
                each.send_signal(signal.SIGCONT)
        assert_all_go_on(stage)
        assert [stage.connections(name) >= 2 for name in CLIENTS] == [True] * len(CLIENTS)


def test_clients_continue_when_their_token_expires(
    mongo_uri: str, database_name: str, tmp_path: Path
) -> None:
    """Each connection of a client uses another access token."""
    issuer = Issuer(tmp_path / "jwks.json")
    with (
        passes(lambda: issuer.token(lasts_s=3)) as pass_url,
        staged(mongo_uri, database_name, tmp_path, *issuer.options()) as stage,
    ):
        stage.headers = {"authorization": f"Bearer {issuer.token()}"}
        stage.connect(pass_url)

        def renewed() -> bool:
            return all(
                stage.connections(name) >= 3 or ends_of(stage.said[name]) for name in CLIENTS
            )

        while not renewed():
            stage.write()
            wait_until(stage.all_seen, within_s=GENEROUS_S)
        assert_all_go_on(stage)


@contextmanager
def passes(issue: Callable[[], str]) -> Iterator[str]:
    """Yield the address of a server that returns another access token for each request."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = issue().encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
