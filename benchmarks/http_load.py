"""Ask a server as fast as it answers: with wrk where there is one, else with a client of our
own."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.processes import Died, pinned
from benchmarks.stage import Stage

__all__ = ["CONNECTIONS", "Load", "Request", "client_name", "load"]

CONNECTIONS = 32

_SCRIPT = """
local requests = {
%s
}
local turn = 0
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests": %%d, "seconds": %%f, "p50_ms": %%f, "p99_ms": %%f, "failed": %%d}\\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Request:
    """`token`: of the one who signs in."""

    path: str
    body: str = ""
    token: str = ""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it."""

    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float


def client_name() -> str:
    return "wrk" if shutil.which("wrk") else "a client in Python (wrk is not installed)"


def load(stage: Stage, address: str, requests: Sequence[Request], seconds: float) -> Load:
    """Over `CONNECTIONS` that stay open, the requests in turn.

    Raises:
        Died: an answer that was not 200.
    """
    ask = _wrk if shutil.which("wrk") else _client
    answer = ask(stage, address, requests, seconds)
    if answer["failed"]:
        raise Died(f"{answer['failed']:g} of {answer['requests']:g} requests to {address} failed")
    count = int(answer["requests"])
    return Load(count, count / answer["seconds"], answer["p50_ms"], answer["p99_ms"])


def _wrk(
    stage: Stage, address: str, requests: Sequence[Request], seconds: float
) -> dict[str, float]:
    lines = (
        f'  wrk.format("{each.method}", {json.dumps(each.path)}, {_headers(each, address)}, '
        f"{json.dumps(each.body) if each.body else 'nil'}),"
        for each in requests
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script, pinned(stage.load_cores):
        script.write(_SCRIPT % "\n".join(lines))
        script.flush()
        done = subprocess.run(
            [
                *("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s"),
                *("--timeout", "10s", "-s", script.name, address),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    last = done.stdout.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        raise Died(f"wrk failed: {done.stdout}{done.stderr}")
    answer: dict[str, float] = json.loads(last)
    return answer


def _headers(request: Request, address: str) -> str:
    """As Lua writes them; wrk knows the host only once it runs."""
    host = address.removeprefix("http://")
    signed = f', ["Authorization"] = "Bearer {request.token}"' if request.token else ""
    return f'{{["Host"] = "{host}", ["Content-Type"] = "application/json"{signed}}}'


def _client(
    stage: Stage, address: str, requests: Sequence[Request], seconds: float
) -> dict[str, float]:
    at = urlsplit(address)
    with stage.program("client", CONNECTIONS, seconds) as client:
        client.tell(
            host=at.hostname,
            port=at.port,
            requests=[[each.method, each.path, each.body, each.token] for each in requests],
        )
        return client.hear("result", timeout_s=seconds + 60)
