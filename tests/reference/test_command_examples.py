"""The examples of docs/reference/cli.md, each run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, run_command, running_gateway
from tests.support.mongod import running_mongod, temporary_directory
from tests.support.page_examples import assert_lines, headed_blocks
from tools.reference.commands import COMMANDS

PAGE = ROOT / "docs" / "reference" / "cli.md"
DATABASE = "command_examples"
Client = MongoClient[dict[str, Any]]


def _examples() -> Iterator[tuple[str, str, str]]:
    """Yield heading, command line and output of each example."""
    command = ""
    for heading, block in headed_blocks(PAGE):
        if block.language == "sh":
            command = block.text.strip()
        elif block.language == "text" and command:
            yield heading, command, block.text
            command = ""


EXAMPLES = list(_examples())
RUN = [each for each in EXAMPLES if each[1].split()[1] not in ("serve", "record", "demo")]


class _Receiver(BaseHTTPRequestHandler):
    """A receiver of webhooks that refuses one document."""

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(422 if event["subject"] == "p1" else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def mongo_uri() -> Iterator[str]:
    """Run a MongoDB of the module's own: doctor reports an oplog that other tests have filled."""
    with temporary_directory() as directory, running_mongod(directory) as uri:
        yield uri


@pytest.fixture(scope="module")
def client(mongo_uri: str) -> Iterator[Client]:
    with Client(mongo_uri) as connected:
        yield connected


@pytest.fixture(scope="module")
def receiver() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/changes"
        server.shutdown()


@pytest.fixture(scope="module")
def environment(
    mongo_uri: str, receiver: str, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    model = tmp_path_factory.mktemp("commands") / "schema.graphql"
    model.write_text(
        f'type Product @collection(name: "products") @sink(url: "{receiver}") '
        "{ id: ID! name: String! price: Int! }\n"
        'type Note @collection(name: "notes", history: EMBEDDED) { id: ID! text: String! }\n'
    )
    return {
        "REVSTREAM_MONGODB_URI": mongo_uri,
        "REVSTREAM_DATABASE": DATABASE,
        "REVSTREAM_SCHEMA": str(model),
    }


@pytest.fixture(scope="module")
def gateway(environment: Mapping[str, str], client: Client) -> Iterator[RunningGateway]:
    """Run a gateway with a delivery that its receiver refuses."""
    model = Path(environment["REVSTREAM_SCHEMA"])
    uri = environment["REVSTREAM_MONGODB_URI"]
    database = client[DATABASE]
    with running_gateway(uri, DATABASE, model) as running:
        # Together: the receiver takes one of them, so that the other one is refused for itself.
        database.products.insert_many(
            [
                {"_id": "p1", "name": "Lamp", "price": 30},
                {"_id": "p2", "name": "Shade", "price": 9},
            ]
        )
        database.products.update_one({"_id": "p1"}, {"$set": {"price": 25}})
        note = {"current": {"text": "b", "version": 1}, "prev": []}
        database.notes.insert_one({"_id": "n1", **note})
        wait_until(lambda: database["revstream.deliveries"].find_one({"doc": "p1"}))
        wait_until(lambda: database["products.versions"].count_documents({}) == 3)
        wait_until(lambda: database["notes.versions"].find_one())
        yield running
    client.drop_database(DATABASE)


def test_each_command_has_an_example() -> None:
    """A new command needs one."""
    assert {f"revstream {each}" for each in COMMANDS} == {heading for heading, *_ in EXAMPLES}


@pytest.mark.parametrize(("heading", "command", "output"), RUN, ids=[each[1] for each in RUN])
def test_a_command_prints_what_the_page_says(
    gateway: RunningGateway,
    environment: Mapping[str, str],
    heading: str,
    command: str,
    output: str,
) -> None:
    """The lines of the page come in that order, and the command succeeds."""
    done = run_command(*shlex.split(command)[1:], **environment)
    assert_lines(done.stdout, output)
    assert command.startswith(heading)
    # Parked after some attempts, which the command reports.
    parked = re.search(r"of which [1-9]", done.stdout) is not None
    assert done.returncode == int(parked)


def test_a_server_logs_what_the_page_says(gateway: RunningGateway) -> None:
    """The lines of the log come in that order."""
    logged = "".join(gateway.lines).replace(DATABASE, "shop")
    assert_lines(logged, _output("revstream serve"))


@pytest.mark.parametrize(("name", "last"), [("record", "recording"), ("demo", "Ctrl+C stops it")])
def test_a_server_that_is_stopped_has_printed_what_the_page_says(
    environment: Mapping[str, str], client: Client, name: str, last: str
) -> None:
    """A server that was asked to stop exits with 0."""
    environ = {**os.environ, **environment, "REVSTREAM_DATABASE": f"{DATABASE}_{name}"}
    if name == "demo":
        environ |= {"REVSTREAM_PORT": "0"}
        del environ["REVSTREAM_SCHEMA"]
    command = [sys.executable, "-m", "revstream", name]
    lines = []
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if last in line:
                break
        process.terminate()
        process.communicate(timeout=60)
    client.drop_database(environ["REVSTREAM_DATABASE"])
    printed = "".join(lines).replace(environ["REVSTREAM_DATABASE"], "shop")
    assert_lines(printed, _output(f"revstream {name}"))
    assert process.returncode == 0


def _output(command: str) -> str:
    return next(text for heading, _, text in EXAMPLES if heading == command)
