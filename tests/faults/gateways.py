"""The gateways of a run: real `revstream serve` processes, and a supervisor that restarts them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx

from tests.faults.clock import Clocks
from tests.faults.copied import COPIED_MODEL
from tests.faults.network import Network, free_ports

__all__ = ["MODEL", "Gateway", "Gateways"]

ROOT = Path(__file__).parents[2]
MODEL = (
    """
"Some programs count its writes, some don't."
type Thing @collection(name: "things") @sink(url: "SINK") {
  id: ID! op: Int n: Int tags: [String!] body: JSON
}
"Nobody counts."
type Tally @collection(name: "tallies", version: null) {
  id: ID! op: Int n: Int tags: [String!] body: JSON
}
"""
    + COPIED_MODEL
)
START_S = 60.0
AWAY = (
    "MongoDB cannot be reached",
    "connection to MongoDB was lost",
    "primary has changed",
    "MongoDB did not confirm a write",
)


@dataclass
class Gateway:
    """One gateway over all its restarts. `says`: its last answer to a readiness check."""

    name: str
    port: int
    log_file: Path
    process: subprocess.Popen[bytes] | None = None
    wanted: bool = True
    stopped: bool = False
    exits: list[int] = field(default_factory=list)
    began_at_byte: int = 0
    says: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    def stop(self) -> None:
        """Suspend the process; it does not notice."""
        assert self.process is not None
        self.stopped = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def lines(self, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield its log lines from a byte of its log file on."""
        with self.log_file.open("rb") as log:
            log.seek(after)
            for line in log:
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"level": "text", "event": line.decode(errors="replace").rstrip()}

    def log_size(self) -> int:
        return self.log_file.stat().st_size

    async def ready(self) -> bool:
        try:
            async with httpx.AsyncClient(timeout=2) as client:
                response = await client.get(f"{self.address}/readyz")
        except httpx.HTTPError as exc:
            self.says = repr(exc)
            return False
        self.says = response.text
        return bool(response.status_code == 200)


class Gateways:
    """All gateways of a run; `supervise` runs in the background."""

    def __init__(
        self,
        network: Network,
        clocks: Clocks,
        uri: str,
        database: str,
        directory: Path,
        *,
        count: int,
        lease_s: float,
        sink: str,
    ) -> None:
        self._network = network
        self._clocks = clocks
        self._uri = uri
        self._database = database
        self._model = directory / "schema.graphql"
        self._model.write_text(MODEL.replace("SINK", sink))
        self._lease_s = lease_s
        self.all = [
            Gateway(f"g{n}", port, directory / f"g{n}.log")
            for n, port in enumerate(free_ports(count))
        ]
        self.unasked: list[str] = []
        self.refused_starts = 0
        self.mongodb_broken: Callable[[], bool] = lambda: False

    async def start(self, gateway: Gateway) -> None:
        """Start a gateway; returns before it serves."""
        # fmt: off
        command = [
            sys.executable, "-m", "revstream", "serve",
            "--mongodb-uri", self._uri, "--database", self._database,
            "--schema", str(self._model), "--port", str(gateway.port),
            "--lease-s", str(self._lease_s), "--quiet-s", "3", "--log-json",
            # Small, so that hand-overs from archive to ring and slow consumers are frequent.
            "--ring-events", "1000", "--backlog-events", "500",
        ]
        # fmt: on
        with gateway.log_file.open("ab") as log:
            gateway.began_at_byte = log.tell()
            gateway.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    **self._clocks.environment(gateway.name),
                    "PYTHONPATH": str(ROOT),
                },
            )
        gateway.wanted = True
        gateway.stopped = False
        await self._network.name(gateway.process.pid, gateway.name)

    async def until_ready(self, *, within_s: float = START_S) -> None:
        """Wait until all are ready; time in which MongoDB is broken, too, does not count."""
        deadline = time.monotonic() + within_s
        while True:
            waiting = [each.name for each in self.all if not await each.ready()]
            if not waiting:
                return
            if self.mongodb_broken():
                deadline = time.monotonic() + within_s
            if time.monotonic() > deadline:
                last = {
                    each.name: (each.says, list(each.lines())[-3:])
                    for each in self.all
                    if each.name in waiting
                }
                raise AssertionError(f"not ready after {within_s} s: {last}")
            await asyncio.sleep(0.2)

    async def supervise(self) -> None:
        """Restart ended processes, as a container platform does; record unexpected ends."""
        while True:
            for each in self.all:
                if each.wanted and each.process is not None and not each.runs:
                    self._note_end(each)
                    await self._network.forget(each.process.pid)
                    await self.start(each)
            await asyncio.sleep(0.25)

    def _note_end(self, gateway: Gateway) -> None:
        """Record the end of a process that had served.

        A process may refuse to start when MongoDB does not answer; once it serves, it must not end.
        """
        assert gateway.process is not None
        life = list(gateway.lines(after=gateway.began_at_byte))
        served = any(line["event"] == "serving" for line in life)
        last = life[-1]["event"] if life else ""
        if not served and last.startswith("revstream: ") and any(each in last for each in AWAY):
            self.refused_starts += 1
            return
        said = [
            f"{line['event']}: {line.get('task', '')} {line.get('reason', '')}"
            for line in life
            if line.get("level") in ("error", "critical", "text")
        ]
        code = gateway.process.returncode
        self.unasked.append(f"{gateway.name} ended by itself with {code}: {said[-3:]}")

    async def end(self, gateway: Gateway, how: str) -> None:
        """Kill or terminate a gateway and wait; it stays down until `start`."""
        gateway.wanted = False
        assert gateway.process is not None
        if how == "kill":
            gateway.kill()
        else:
            gateway.terminate()
        gateway.exits.append(await asyncio.to_thread(gateway.process.wait, 30))
        await self._network.forget(gateway.process.pid)

    def by_holder(self, holder: str) -> Gateway | None:
        """Return the gateway that holds a lease; holders are named `host:pid:…`."""
        pid = int(holder.split(":")[1])
        for each in self.all:
            if each.process is not None and each.process.pid == pid:
                return each
        return None

    def end_all(self) -> None:
        for each in self.all:
            each.wanted = False
            if each.runs:
                assert each.process is not None
                each.process.send_signal(signal.SIGCONT)
                each.process.kill()
                each.process.wait()
