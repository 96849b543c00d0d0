"""Prometheus with the rules of `ops`, and its tools."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT

__all__ = ["DASHBOARD", "RULES", "Prometheus", "dashboard_expressions", "program", "prometheus"]

RULES = ROOT / "ops" / "prometheus-rules.yaml"
DASHBOARD = ROOT / "ops" / "grafana.json"


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`: on PATH, or where tools/setup puts it."""
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    assert found is not None, f"{name}: not found, expected it on PATH; run tools/setup test"
    return found


def dashboard_expressions() -> list[str]:
    """Return the expressions of all panels, as Grafana sends them with all variables at "All"."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    written = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [
        each.replace("$job", ".+").replace("$instance", ".+").replace("$__rate_interval", "1m")
        for each in written
    ]


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str

    def firing(self) -> dict[str, str]:
        """Return the summaries of the alerts that fire, by name."""
        alerts = self._get("alerts")["alerts"]
        return {
            each["labels"]["alertname"]: each["annotations"]["summary"]
            for each in alerts
            if each["state"] == "firing"
        }

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        return self._get("query", query=expression)["result"]

    def targets(self) -> list[str]:
        """Return the health of each target."""
        return [each["health"] for each in self._get("targets")["activeTargets"]]

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        response = http.get(f"{self.address}/api/v1/{path}", params=parameters, timeout=30)
        body = response.json()
        assert body["status"] == "success", body
        return body["data"]


@contextlib.contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """Run a server that scrapes and evaluates every second; alerts wait one second, not minutes.

    Args:
        targets: host and port of each gateway.
    """
    rules = folder / "rules.yaml"
    rules.write_text(re.sub(r"for: \d+m", "for: 1s", RULES.read_text(encoding="utf-8")))
    config = folder / "prometheus.yaml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": "revstream", "static_configs": [{"targets": list(targets)}]}
                ],
            }
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: _answers(server), within_s=60)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


def _answers(server: Prometheus) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get(f"{server.address}/-/ready").status_code == 200
    return False
