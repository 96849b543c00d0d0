"""A sharded cluster of the mongod and mongos on PATH, and the rule that its tests need a mongos."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.gql.runtime.embedded.mongod import LAUNCH
from tests.support.bare_mongod import replica_set

MONGOS = os.environ.get("REVSTREAM_MONGOS") or shutil.which("mongos")
SHARDS = ("shard0", "shard1")
# Events of a cluster wait until each shard has reported a time; an idle one reports so often.
NOOP = ("--setParameter", "periodicNoopIntervalSecs=1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked `sharded` where there is no mongos.

    `make test-sharded` fails there, since it then runs no test.
    """
    if MONGOS is None:
        sharded = [each for each in items if each.get_closest_marker("sharded")]
        config.hook.pytest_deselected(items=sharded)
        items[:] = [each for each in items if each not in sharded]


@dataclass(frozen=True)
class Cluster:
    """A running cluster; `uri` leads to its mongos."""

    uri: str
    client: MongoClient[dict[str, Any]]

    def shard(self, namespace: str) -> None:
        """Distribute a new collection over both shards, by the hash of `_id`."""
        self.client.admin.command("shardCollection", namespace, key={"_id": "hashed"})

    def shards_of(self, namespace: str) -> set[str]:
        """Return the shards that have documents of a collection."""
        database, _, collection = namespace.partition(".")
        [stats] = self.client[database][collection].aggregate(
            [{"$collStats": {"storageStats": {}}}, {"$match": {"storageStats.count": {"$gt": 0}}},
             {"$group": {"_id": None, "names": {"$addToSet": "$shard"}}}]
        )  # fmt: skip
        return set(stats["names"])


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start a cluster of two shards, a config server and a mongos."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="revstream-tests-")))
        config = running.enter_context(
            replica_set(folder / "config", "--configsvr", name="config", configsvr=True)
        )
        uri = running.enter_context(_mongos(folder, f"config/127.0.0.1:{config.port}"))
        client = running.enter_context(MongoClient[dict[str, Any]](uri, tz_aware=True))
        for name in SHARDS:
            shard = running.enter_context(
                replica_set(folder / name, "--shardsvr", *NOOP, name=name)
            )
            client.admin.command("addShard", f"{name}/127.0.0.1:{shard.port}")
        yield Cluster(uri, client)


@contextmanager
def _mongos(folder: Path, config: str) -> Iterator[str]:
    assert MONGOS is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # fmt: off
    command = [
        sys.executable, "-ISc", LAUNCH, str(os.getpid()), MONGOS,
        "--configdb", config, "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket",
    ]
    # fmt: on
    uri = f"mongodb://127.0.0.1:{port}/"
    with (folder / "mongos.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=60000) as client:
            client.admin.command("ping")
        yield uri
    finally:
        process.terminate()
        process.wait(timeout=30)
