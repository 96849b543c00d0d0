"""Fixtures that every test may use: a MongoDB replica set, and a database of the test's own."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from bson import CodecOptions
from bson.binary import UuidRepresentation
from hypothesis import HealthCheck, settings
from pymongo import MongoClient
from pymongo.database import Database

from revstream.gql.cli.demo.data import beginnings
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from tests.support.exhaustive import representatives
from tests.support.gateway import ROOT, running_gateway
from tests.support.mongod import running_mongod, temporary_directory

# Slowness of a busy machine is no fault; the first generated text in a fresh clone takes a second.
_SLOW_IS_RIGHT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("all", _SLOW_IS_RIGHT)
# `make test`: see tests.support.exhaustive.
settings.register_profile("fast", _SLOW_IS_RIGHT, max_examples=25)
settings.load_profile("all")


def pytest_collection_finish() -> None:
    """Exclude all modules and tests from garbage collections, which take a sixth of the time."""
    gc.freeze()


@pytest.fixture(scope="session")
def mongo_uri() -> Iterator[str]:
    """Return the URI of REVSTREAM_TEST_MONGODB_URI, or of a replica set started for this run.

    Each worker of pytest-xdist starts its own.
    """
    given = os.environ.get("REVSTREAM_TEST_MONGODB_URI")
    if given:
        yield given
        return
    with temporary_directory() as directory, running_mongod(directory) as uri:
        yield uri


@pytest.fixture(scope="session")
def client(mongo_uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    """Provide the driver's client, as a program without revstream uses it."""
    with MongoClient[dict[str, Any]](mongo_uri, tz_aware=True) as connected:
        yield connected


@pytest.fixture(scope="session")
def drop_later(client: MongoClient[dict[str, Any]]) -> Iterator[Callable[[str], None]]:
    """Drop a database while other tests run: MongoDB takes a tenth of a second."""
    dropped: list[Future[None]] = []
    with ThreadPoolExecutor(1) as dropping:
        yield lambda name: dropped.append(dropping.submit(client.drop_database, name))
    for each in dropped:
        each.result()


@pytest.fixture
def database_name(
    drop_later: Callable[[str], None], request: pytest.FixtureRequest
) -> Iterator[str]:
    """Name a database that exists for this test only, after the test."""
    name = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())[:40]
    unique = f"{name}_{uuid4().hex[:8]}"
    yield unique
    drop_later(unique)


@pytest.fixture(params=representatives(["motor", "pymongo"], "motor"))
async def mongo(
    request: pytest.FixtureRequest, mongo_uri: str, database_name: str
) -> AsyncIterator[Mongo]:
    """Connect to the test's database with each of the two drivers.

    Tests in which the driver makes no difference use one: `@pytest.mark.parametrize("mongo",
    ["motor"], indirect=True)`.
    """
    options = MongoOptions(driver=request.param)
    async with Mongo.connect(mongo_uri, database_name, options=options) as connected:
        yield connected


@dataclass(frozen=True, slots=True)
class ServedShop:
    """The example shop as served by the real command; `database` is the shop's own connection."""

    url: str
    database: Database[dict[str, Any]]


@pytest.fixture(scope="session")
def gateway(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> Iterator[ServedShop]:
    """Run a gateway with the example shop's data, for tests of the pages."""
    name = f"shop_{uuid4().hex[:8]}"
    codec = CodecOptions[dict[str, Any]](
        tz_aware=True, uuid_representation=UuidRepresentation.STANDARD
    )
    shop = client.get_database(name, codec_options=codec)
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql") as running:
        for collection, documents in beginnings().items():
            if documents:
                shop[collection].insert_many(documents)
        yield ServedShop(running.address, shop)
    client.drop_database(name)
