"""Dockerfile, compose.yaml and `deploy`: valid for their own tools, and what they start serves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from pymongo import MongoClient
from pymongo.database import Database

from revstream.gql.runtime import lifecycle
from revstream.gql.runtime.configuration.settings import Settings
from tests.packages.deployments import (
    EXAMPLE,
    SYSTEMD,
    Deployment,
    compose,
    health_check,
    image,
    kubernetes,
    manifests,
    unit,
    unit_settings,
)
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, ensure_ended, start_command

BIN = Path(sys.executable).parent
SERVING = {
    "image": image,
    "compose": compose,
    "kubernetes": kubernetes,
    "systemd": lambda: unit("revstream"),
}
UNITS = ("revstream", "revstream-record")
# 2.0 is the upper end of what systemd calls OK.
MOST_EXPOSURE = 20

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }\n'


def _run(*command: str | Path) -> str:
    """Run a tool of the environment and return its output; fails with it."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    """Its rules include those of shellcheck for RUN."""
    assert _run("hadolint", "Dockerfile") == ""


def test_shellcheck_has_nothing_to_say_about_the_scripts() -> None:
    """All scripts of the repository."""
    assert _run("shellcheck", "deploy/image/build.sh", "tools/setup", ".ci/run") == ""


def test_compose_yaml_is_valid() -> None:
    """By the schema of the Compose specification, which comes with the tool."""
    _run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")


@pytest.mark.parametrize("folder", ["base", "example"])
def test_the_objects_for_kubernetes_are_valid(folder: str, tmp_path: Path) -> None:
    """By the schemas of the oldest version that the page names and of the newest; none unknown."""
    made = tmp_path / "made.yaml"
    made.write_text(yaml.safe_dump_all(manifests(ROOT / "deploy" / "kubernetes" / folder)))
    for version in ("1.30", "1.37"):
        _run("kubernetes-validate", "--strict", "--kubernetes-version", version, made)


def test_the_example_for_kubernetes_names_what_it_makes() -> None:
    """The Deployment mounts the ConfigMap and the Secret, and the selectors are its labels."""
    found = {each["kind"]: each for each in manifests(EXAMPLE)}
    template = found["Deployment"]["spec"]["template"]
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    assert volumes["schema"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert volumes["mongodb"]["secret"]["secretName"] == found["Secret"]["metadata"]["name"]
    labels = template["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert {each["metadata"]["namespace"] for each in found.values()} == {"shop"}
    # A Service named revstream would set REVSTREAM_PORT=tcp://…
    assert template["spec"]["enableServiceLinks"] is False


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit_and_calls_it_safe(name: str, tmp_path: Path) -> None:
    """`verify` names unknown settings, and `security` those that are missing."""
    # It wants a program that exists.
    path = tmp_path / f"{name}.service"
    text = (SYSTEMD / path.name).read_text()
    path.write_text(text.replace("/opt/revstream/bin/revstream", str(BIN / "revstream")))
    said = _run("systemd-analyze", "--man=no", "verify", path)
    assert [line for line in said.splitlines() if name in line] == []
    _run(
        "systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}",
        "--no-pager", path,
    )  # fmt: skip


def test_both_units_are_equally_safe() -> None:
    """They differ in the command, its environment, and the connections of clients."""
    own = {"Description", "ExecStart", "EnvironmentFile", "LimitNOFILE"}
    serving, recording = (
        {key: value for key, value in unit_settings(name).items() if key not in own}
        for name in UNITS
    )
    assert serving == recording


@pytest.mark.parametrize("deployment", [compose, kubernetes, *map(partial(partial, unit), UNITS)])
def test_a_gateway_has_the_time_that_it_takes_to_stop(
    deployment: Callable[[], Deployment],
) -> None:
    """Requests first, then three turns for the background tasks: no supervisor kills it before."""
    stop_s, settings = deployment().stop_s, Settings(schema=Path("schema.graphql"))
    assert stop_s is not None
    assert stop_s > settings.shutdown_s + 3 * lifecycle._END_S


@pytest.fixture
def database(client: MongoClient[dict[str, Any]], database_name: str) -> Database[dict[str, Any]]:
    """Provide the test's own database, as a program without revstream uses it."""
    return client[database_name]


@pytest.fixture
def place(
    mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> tuple[str, dict[str, str]]:
    """Provide the URI with the database's name, and the files that deployments name."""
    uri = mongo_uri.replace("/?", f"/{database.name}?authSource=admin&", 1)
    (tmp_path / "schema.graphql").write_text(MODEL)
    (tmp_path / "uri").write_text(f"{uri}\n")
    files = {
        "/etc/revstream/schema.graphql": str(tmp_path / "schema.graphql"),
        "/run/secrets/revstream/uri": str(tmp_path / "uri"),
        "%d/mongodb-uri": str(tmp_path / "uri"),
    }
    return uri, files


def _prepare(
    deployment: Deployment, place: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set the variables of a deployment, with files and a MongoDB that are here."""
    uri, files = place
    for name, value in deployment.environment.items():
        if name.startswith("REVSTREAM_"):
            monkeypatch.setenv(name, files.get(value, value))
    if "REVSTREAM_MONGODB_URI_FILE" not in deployment.environment:
        monkeypatch.setenv("REVSTREAM_MONGODB_URI", uri)


@pytest.mark.parametrize("name", SERVING)
def test_the_gateway_serves_with_the_command_and_the_variables_of(
    name: str,
    place: tuple[str, dict[str, str]],
    database: Database[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option, a variable or a path that does not exist ends it or fails the check."""
    deployment = SERVING[name]()
    _prepare(deployment, place, monkeypatch)
    monkeypatch.setenv("REVSTREAM_PORT", "0")
    assert Path(deployment.command[0]).name == "revstream"
    database.things.insert_one({"_id": "a", "n": 1})
    with ensure_ended(start_command(*deployment.command[1:])) as gateway:
        port = gateway.address.rsplit(":", 1)[1]
        gateway.address = f"http://127.0.0.1:{port}"
        for path in deployment.health:
            # As the kubelet asks: by an address that --allowed-hosts does not name.
            check = httpx.Request(
                "GET", gateway.address + path, headers={"host": f"10.0.0.7:{port}"}
            )
            with httpx.Client() as client:
                wait_until(lambda check=check, client=client: client.send(check).status_code == 200)
        if "REVSTREAM_ALLOWED_HOSTS" not in deployment.environment:
            assert gateway.query("{ things { nodes { id n } } }") == {
                "things": {"nodes": [{"id": "a", "n": 1}]}
            }
        monkeypatch.setenv("REVSTREAM_PORT", port)
        program, *arguments = health_check()
        assert program == "python"
        _run(sys.executable, *arguments)
        assert gateway.stop() == 0


def test_the_recorder_starts_with_the_command_and_the_variables_of_its_unit(
    place: tuple[str, dict[str, str]],
    database: Database[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It records what is written."""
    deployment = unit("revstream-record")
    _prepare(deployment, place, monkeypatch)
    with ensure_ended(start_command(*deployment.command[1:])) as recorder:
        database.things.insert_one({"_id": "a", "n": 1})
        wait_until(lambda: database["things.versions"].count_documents({}) == 1)
        assert recorder.stop() == 0


def test_the_health_check_fails_where_nothing_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker calls the container unhealthy."""
    monkeypatch.setenv("REVSTREAM_PORT", "1")
    done = subprocess.run([sys.executable, *health_check()[1:]], capture_output=True, check=False)
    assert done.returncode == 1
