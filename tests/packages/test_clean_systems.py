"""The wheel in clean systems that have Python and nothing to build with."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.packages.conftest import Distributions
from tests.packages.systems import BUILD_TOOLS, System, clean_system, container_engine
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT

# debootstrap takes one to two minutes.
pytestmark = [pytest.mark.packages, pytest.mark.timeout(1800)]

# The library is one of MongoDB's: the demo needs it, `serve` does not.
PACKAGES = ("python3-venv", "ca-certificates", "libcurl4")
QUERY = "{ products(first: 3) { nodes { name history(first: 1) { nodes { version } } } } }"


@pytest.fixture(scope="module")
def debian(distributions: Distributions) -> Iterator[System]:
    """Provide Debian 12 with systemd, and the wheel in /opt/revstream."""
    with clean_system("bookworm", *PACKAGES, "systemd-sysv", "dbus") as system:
        _install(system, distributions.wheel)
        yield system


@pytest.fixture(scope="module")
def ubuntu(distributions: Distributions) -> Iterator[System]:
    """Provide Ubuntu 24.04, and the wheel in /opt/revstream."""
    with clean_system("noble", *PACKAGES[:2], "libcurl4t64") as system:
        _install(system, distributions.wheel)
        yield system


def _install(system: System, wheel: Path) -> None:
    """Follow docs/how-to/install.md with a wheel in place of the package's name."""
    assert system.found(*BUILD_TOOLS) == []
    shutil.copy(wheel, system.root / "tmp")
    system.run("python3", "-m", "venv", "/opt/revstream")
    system.run("/opt/revstream/bin/pip", "install", "--only-binary", ":all:", f"/tmp/{wheel.name}")


@pytest.mark.parametrize(
    ("name", "described"), [("debian", 'VERSION_ID="12"'), ("ubuntu", 'VERSION_ID="24.04"')]
)
def test_the_demo_serves_without_a_compiler_npm_or_git(
    name: str, described: str, request: pytest.FixtureRequest
) -> None:
    """The wheel is installed by pip alone, and a user without rights runs its demo."""
    system: System = request.getfixturevalue(name)
    assert described in system.run("cat", "/etc/os-release")
    assert system.found(*BUILD_TOOLS) == []
    command = system.command(
        "/opt/revstream/bin/revstream", "demo", "--port", "0", "--embedded", "/tmp/demo",
        user="1000:1000",
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    reader.start()
    try:
        address = ""
        for line in process.stdout:
            if line.strip().startswith("GraphiQL"):
                address = line.split()[-1]
            if "Ctrl+C stops it" in line:
                break
        assert address, "".join(errors)
        answer = httpx.post(address, json={"query": QUERY}, timeout=30).json()
        assert "errors" not in answer, answer
        assert len(answer["data"]["products"]["nodes"]) == 3
        page = httpx.get(address, headers={"accept": "text/html"})
        assert (page.status_code, "<script" in page.text) == (200, True)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
        reader.join()
        process.stdout.close()
        process.stderr.close()


def test_systemd_runs_both_units_as_they_are(
    debian: System, mongo_uri: str, database_name: str
) -> None:
    """With all of their restrictions: they serve, record, are started again, and stop in order."""
    for path in (ROOT / "deploy" / "systemd").glob("*.service"):
        shutil.copy(path, debian.root / "etc" / "systemd" / "system")
    folder = debian.root / "etc" / "revstream"
    folder.mkdir()
    (folder / "schema.graphql").write_text(
        'type Thing @collection(name: "things") { id: ID! n: Int }\n'
    )
    (folder / "mongodb-uri").write_text(
        mongo_uri.replace("/?", f"/{database_name}?authSource=admin&", 1)
    )
    (folder / "mongodb-uri").chmod(0o600)
    (folder / "revstream.env").write_text("REVSTREAM_PORT=18719\n")
    with container_engine() as engine:
        # Services see credentials through mounts, which a container does not share by itself.
        start = ("sh", "-c", "mount --make-rshared / && exec /sbin/init")
        options = ("--systemd=always", "--privileged", "--rootfs")
        with engine.container(str(debian.root), *options, command=start) as container:

            def systemctl(*arguments: str) -> str:
                return engine.run("podman", "exec", container, "systemctl", *arguments)

            def has_started() -> bool:
                asking = ("exec", container, "systemctl", "is-system-running")
                done = subprocess.run(engine.command("podman", *asking), capture_output=True)
                # Some services of a system may have nothing to do in a container, and fail.
                return done.stdout.strip() in (b"running", b"degraded")

            def serves() -> bool:
                try:
                    return httpx.get("http://127.0.0.1:18719/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            def wait_until_it_serves() -> None:
                try:
                    wait_until(serves)
                except AssertionError as exc:
                    journal = ("journalctl", "--no-pager", "--lines=30")
                    raise AssertionError(engine.run("podman", "exec", container, *journal)) from exc

            wait_until(has_started)
            systemctl("start", "revstream", "revstream-record")
            wait_until_it_serves()
            metrics = httpx.get("http://127.0.0.1:18719/metrics").text
            assert "process_resident_memory_bytes" in metrics
            systemctl("kill", "--signal=KILL", "revstream")
            wait_until(lambda: systemctl("show", "-P", "NRestarts", "revstream").strip() == "1")
            wait_until_it_serves()
            assert systemctl("is-active", "revstream-record").strip() == "active"
            systemctl("stop", "revstream", "revstream-record")
            for unit in ("revstream", "revstream-record"):
                ended = systemctl("show", "-P", "Result", "-P", "ExecMainStatus", unit)
                assert ended.split() == ["success", "0"]
