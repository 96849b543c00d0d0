"""One running gateway for all tests of the protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support.beginning import begin_new
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "schema.graphql"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="session")
def things(mongo_uri: str, client: Client, model: Path) -> Iterator[Collection[dict[str, Any]]]:
    """Provide the served collection."""
    database = client[f"protocol_{uuid4().hex[:8]}"]
    begin_new(mongo_uri, database.name, model)
    database["things"].insert_one({"_id": "a", "name": "first"})
    yield database["things"]
    client.drop_database(database.name)


@pytest.fixture(scope="session")
def gateway(
    mongo_uri: str, things: Collection[dict[str, Any]], model: Path
) -> Iterator[RunningGateway]:
    """Run a gateway; at the end it must still run, without an internal error in its log."""
    with running_gateway(mongo_uri, things.database.name, model) as running:
        yield running
        assert running.process.poll() is None
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]
