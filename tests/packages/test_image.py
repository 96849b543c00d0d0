"""The image that the Dockerfile makes, built by buildah and run by podman.

Its base is Debian 13 with Debian's Python 3.13, which debootstrap makes, in place of
python:3.13-slim: the same system without a registry.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from pymongo import MongoClient

from tests.packages.conftest import Distributions
from tests.packages.systems import BUILD_TOOLS, Engine, clean_system, container_engine
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT

# debootstrap takes one to two minutes.
pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]

BASE = "docker.io/library/python:3.13-slim"
IMAGE = "localhost/revstream"
MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }\n'
PORT = 18718


@pytest.fixture(scope="module")
def engine(
    distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Provide an engine with the image, built from the source distribution."""
    context = tmp_path_factory.mktemp("context")
    unpack = ["tar", "-xzf", distributions.sdist, "--strip-components=1", "-C", context]
    subprocess.run(unpack, check=True)
    with (
        container_engine() as engine,
        clean_system("trixie", "python3-venv", "ca-certificates") as system,
    ):
        assert system.run("python3", "--version").startswith("Python 3.13.")
        assert system.found(*BUILD_TOOLS) == []
        configuration = system.root / "etc" / "pip.conf"
        mounted = context.with_name("pip.conf")
        mounted.write_bytes(configuration.read_bytes())
        configuration.unlink()
        engine.image_of(system, BASE)
        engine.run(
            "buildah", "bud", "--isolation", "chroot", "--format", "docker", "--pull-never",
            "--volume", f"{mounted}:/etc/pip.conf:ro", "--tag", IMAGE, context,
        )  # fmt: skip
        yield engine


def _inspect(engine: Engine) -> dict[str, Any]:
    [found] = json.loads(engine.run("podman", "image", "inspect", IMAGE))
    return found["Config"]


def test_the_image_has_no_rights_and_nothing_to_build_with(engine: Engine) -> None:
    """It runs as a numbered user, without pip in its environment, a compiler or a MongoDB."""
    config = _inspect(engine)
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    looking = ["sh", "-c", f"command -v {' '.join(BUILD_TOOLS)}; ls /opt/revstream/bin; ls /source"]
    with engine.container(IMAGE, "--entrypoint", json.dumps(looking)) as container:
        engine.run("podman", "wait", container)
        found = engine.run("podman", "logs", container).split()
    assert "revstream" in found
    assert [each for each in found if each.startswith(("pip", "/"))] == []


def test_the_container_serves_with_the_restrictions_of_compose(
    engine: Engine,
    mongo_uri: str,
    client: MongoClient[dict[str, Any]],
    database_name: str,
    tmp_path: Path,
) -> None:
    """Read-only and without capabilities, it becomes healthy, answers, and stops in order."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["revstream"]
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    [volume] = service["volumes"]
    uri = mongo_uri.replace("/?", f"/{database_name}?authSource=admin&", 1)
    client[database_name].things.insert_one({"_id": "a", "n": 1})
    options = [
        f"--read-only={json.dumps(service['read_only'])}",
        # Docker leaves /tmp read-only, too.
        "--read-only-tmpfs=false",
        *(f"--cap-drop={each}" for each in service["cap_drop"]),
        *(f"--security-opt={each}" for each in service["security_opt"]),
        f"--volume={volume.replace('./schema.graphql', str(model))}",
        f"--env=REVSTREAM_MONGODB_URI={uri}",
        f"--env=REVSTREAM_PORT={PORT}",
    ]
    with engine.container(IMAGE, *options) as container:
        _serves(engine, container)
        status = "cat /proc/1/status; touch /tmp/file || echo refused"
        said = engine.run("podman", "exec", container, "sh", "-c", status)
        assert "Uid:\t10001\t10001\t10001\t10001" in said
        assert "CapBnd:\t0000000000000000" in said
        assert "NoNewPrivs:\t1" in said
        assert said.endswith("refused\n")
        engine.run("podman", "stop", "--time", service["stop_grace_period"].rstrip("s"), container)
        [state] = json.loads(engine.run("podman", "inspect", container))
        assert state["State"]["ExitCode"] == 0


def _serves(engine: Engine, container: str) -> None:
    """Wait until the image's own health check succeeds, and query."""
    wait_until(lambda: _is_healthy(engine, container))
    answer = httpx.post(
        f"http://127.0.0.1:{PORT}/graphql", json={"query": "{ things { nodes { id n } } }"}
    )
    assert answer.json() == {"data": {"things": {"nodes": [{"id": "a", "n": 1}]}}}


def _is_healthy(engine: Engine, container: str) -> bool:
    command = engine.command("podman", "healthcheck", "run", container)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
