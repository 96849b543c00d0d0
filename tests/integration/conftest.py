"""Fixtures: the test's database through each driver, a count of its commands, and gateways over a
shop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import bson
import pytest
import pytest_asyncio
from pymongo import MongoClient, monitoring

from revstream.gql.runtime.listeners import recorders
from revstream.streams.core import read_limiter
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver import client as client_module
from revstream.streams.mongo.wire.connection import WireConnection
from revstream.streams.recording.options import RecorderOptions
from tests.support.editing import Shop, open_shop
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.layouts import LAYOUTS, Program, layout_model, program


class Commands(monitoring.CommandListener):
    """The names of the commands sent to the server while `counting`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._counts = False

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        """Yield a list to which the names are appended."""
        self.names = []
        self._counts = True
        try:
            yield self.names
        finally:
            self._counts = False

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        # Authentication of a new connection is no command of a request.
        if self._counts and not event.command_name.startswith("sasl"):
            self.names.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def listen(patch: pytest.MonkeyPatch, commands: Commands) -> None:
    """Report all commands of gateways from now on, through the driver and through wire
    connections. None is repeated as a scan because the machine is busy.
    """
    patch.setattr(read_limiter, "_QUICK_MS", 60_000)
    make: Callable[..., Any] = client_module.AsyncIOMotorClient
    ask = WireConnection.ask

    def listened_to(*args: Any, **kwargs: Any) -> Any:
        return make(*args, event_listeners=[commands], **kwargs)

    def asked(connection: WireConnection, message: bytes) -> Any:
        command = bson.decode(message)
        commands.started(
            monitoring.CommandStartedEvent(command, command["$db"], 0, connection.address, None)
        )
        return ask(connection, message)

    patch.setattr(client_module, "AsyncIOMotorClient", listened_to)
    patch.setattr(WireConnection, "ask", asked)


@pytest.fixture
def commands() -> Commands:
    """See `counted`."""
    return Commands()


@pytest.fixture
async def counted(
    monkeypatch: pytest.MonkeyPatch, mongo_uri: str, database_name: str, commands: Commands
) -> AsyncIterator[Mongo]:
    """Return the test's database with its commands counted."""
    listen(monkeypatch, commands)
    async with Mongo.connect(mongo_uri, database_name) as connected:
        # Authentication is not counted.
        await connected.find("nothing", {})
        yield connected


@pytest.fixture(scope="module")
def database(client: MongoClient[dict[str, Any]], request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of a database for all tests of a module."""
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    name = f"{module}_{uuid4().hex[:8]}"
    yield name
    client.drop_database(name)


@pytest.fixture(scope="module")
def served(
    mongo_uri: str,
    database: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningGateway]:
    """Start the command over that database and the `MODEL` of the module."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(request.module.MODEL)
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> AsyncIterator[Shop]:
    """Run a gateway for all tests of a module, on the module's event loop.

    Modules need `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
    """
    name = f"editing_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name) as opened:
        yield opened
    client.drop_database(name)


@dataclass(frozen=True, slots=True)
class KeptShop:
    """A gateway over a shop whose products are in one layout."""

    history: str
    shop: Shop

    def program(self) -> Program:
        """Another program that writes the products."""
        return program(self.history, self.shop.database)

    @property
    def layout(self) -> Layout:
        """The layout that reads and writes the products."""
        return create_layout(self.shop.gateway.mongo, self.shop.gateway.model.entity("Product"))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LAYOUTS)
async def kept(
    request: pytest.FixtureRequest, mongo_uri: str, client: MongoClient[dict[str, Any]]
) -> AsyncIterator[KeptShop]:
    """Run a gateway for all tests of a module, once per layout."""
    name = f"layout_{uuid4().hex[:8]}"
    model = layout_model(request.param)
    # Waits for the archive's progress end soon.
    brisk = lambda **options: RecorderOptions(**{**options, "idle_save_s": 0.1})  # noqa: E731
    with patch.object(recorders, "RecorderOptions", brisk):
        async with open_shop(client, mongo_uri, name, model=model) as opened:
            yield KeptShop(request.param, opened)
    client.drop_database(name)
