"""Commands, variables and health checks of `deploy`, the Dockerfile and compose.yaml."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.gateway import ROOT

EXAMPLE = ROOT / "deploy" / "kubernetes" / "example"
SYSTEMD = ROOT / "deploy" / "systemd"


@dataclass(frozen=True)
class Deployment:
    """A way to run the gateway.

    Attributes:
        command: program and arguments.
        environment: variables, as the program gets them.
        health: paths of its health checks.
        stop_s: seconds that it gets from SIGTERM to SIGKILL.
    """

    command: list[str]
    environment: dict[str, str]
    health: list[str] = field(default_factory=list)
    stop_s: float | None = None


def image() -> Deployment:
    """Return what the image starts, from the last stage of the Dockerfile."""
    said = _last_stage()
    environment = dict(each.split("=", 1) for each in shlex.split(said["ENV"]))
    command = [*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"])]
    assert said["USER"] == "10001:10001"
    return Deployment(command, environment)


def health_check() -> list[str]:
    """Return the image's health check, with the script's path in this checkout."""
    command = json.loads(_last_stage()["HEALTHCHECK"].partition("CMD ")[2])
    script = str(ROOT / "deploy" / "image" / "ready.py")
    assert command[-1] == "/opt/revstream/ready.py"
    return [*command[:-1], script]


def _last_stage() -> dict[str, str]:
    """Return the last instruction of each kind of the Dockerfile's last stage."""
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    said = {}
    for line in re.sub(r"\\\n\s*", " ", stage).splitlines():
        name, _, rest = line.strip().partition(" ")
        said[name] = rest.strip()
    return said


def compose() -> Deployment:
    """Return what compose.yaml starts: the image with its own environment."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["revstream"]
    inherited = image()
    assert "command" not in service
    assert "entrypoint" not in service
    return Deployment(
        inherited.command,
        inherited.environment | service["environment"],
        stop_s=float(service["stop_grace_period"].removesuffix("s")),
    )


def manifests(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that kustomize makes of a folder."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("kubectl")), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(yaml.safe_load_all(done.stdout))


def kubernetes() -> Deployment:
    """Return what the overlay of the example starts: the image with arguments and environment."""
    [found] = [each for each in manifests(EXAMPLE) if each["kind"] == "Deployment"]
    pod = found["spec"]["template"]["spec"]
    [container] = pod["containers"]
    probes = [container[f"{each}Probe"] for each in ("startup", "liveness", "readiness")]
    [port] = container["ports"]
    assert {each["httpGet"]["port"] for each in probes} == {port["name"]}
    inherited = image()
    waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    return Deployment(
        [inherited.command[0], *container["args"]],
        inherited.environment | {each["name"]: each["value"] for each in container["env"]},
        [each["httpGet"]["path"] for each in probes],
        float(pod["terminationGracePeriodSeconds"] - waits),
    )


def unit(name: str) -> Deployment:
    """Return what a systemd unit starts."""
    settings = unit_settings(name)
    [command], [stop] = settings["ExecStart"], settings["TimeoutStopSec"]
    environment = dict(each.split("=", 1) for each in settings["Environment"])
    return Deployment(shlex.split(command), environment, stop_s=float(stop))


def unit_settings(name: str) -> dict[str, list[str]]:
    """Return the values of each setting of a unit, in order."""
    settings: dict[str, list[str]] = {}
    for line in (SYSTEMD / f"{name}.service").read_text().splitlines():
        key, assigned, value = line.partition("=")
        if assigned and not line.startswith("#"):
            settings.setdefault(key, []).append(value)
    return settings
