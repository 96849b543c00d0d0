"""Load on an HTTP server: requests as fast as it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.processes import Failed, Process
from benchmarks.stage import Stage

__all__ = ["CONNECTIONS", "Load", "Request", "load", "measure"]

CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `token`: the access token of its caller."""

    path: str
    body: str = ""
    token: str = ""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


@dataclass(frozen=True, slots=True)
class Load:
    """Results of a load."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float


def load(stage: Stage, address: str, requests: Sequence[Request], seconds: float) -> Load:
    """Send the requests in turn over `CONNECTIONS` open connections.

    Raises:
        Failed: a response was not 200.
    """
    at = urlsplit(address)
    with stage.program("client", CONNECTIONS, seconds) as client:
        client.send_json(
            host=at.hostname,
            port=at.port,
            requests=[[each.method, each.path, each.body, each.token] for each in requests],
        )
        answer = client.await_event("result", timeout_s=seconds + 60)
    if answer["failed"]:
        raise Failed(f"{answer['failed']:g} of {answer['requests']:g} requests to {address} failed")
    count = int(answer["requests"])
    return Load(count, count / answer["seconds"], answer["p50_ms"], answer["p99_ms"])


def measure(
    stage: Stage, server: Process, address: str, requests: Sequence[Request]
) -> tuple[float, float, float, float]:
    """Return requests/s, p50 and p99 in ms, and the server's CPU microseconds for each request."""
    cpu_s = server.cpu_s()
    done = load(stage, address, requests, stage.scale.requests_s)
    cpu_s = server.cpu_s() - cpu_s
    return done.per_second, done.p50_ms, done.p99_ms, cpu_s / done.requests * 1e6
