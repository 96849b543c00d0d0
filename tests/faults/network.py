"""The network of a run: starts the proxies (`proxy.py`) and changes their rules."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Network", "free_ports"]


_PORTS = range(20000, 27000)
"""Below the ports of outgoing connections, any of which could take a port while its
mongod is not running; apart from the ports of embedded servers
(`gql.runtime.embedded.embedded_mongod`)."""

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return distinct ports on which no process listens now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        if port not in _given:
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                found.append(port)
    if len(found) < count:
        raise AssertionError(f"{len(found)} of {count} ports are free among {_PORTS}")
    _given.update(found)
    return found


class Network:
    """Cuts, resets and delays between named processes and mongods."""

    def __init__(self, process: asyncio.subprocess.Process, ports: Mapping[str, int]) -> None:
        self.ports = ports
        self._process = process
        self._turn = asyncio.Lock()
        self.cuts: set[tuple[str, str]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, targets: Mapping[str, int]) -> AsyncIterator[Network]:
        """Start one proxy per mongod; `targets` are the mongods' own ports, by name."""
        ports = dict(zip(targets, free_ports(len(targets)), strict=True))
        proxies = {name: (ports[name], target) for name, target in targets.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name("proxy.py")), json.dumps(proxies)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        network = cls(process, ports)
        try:
            yield network
        finally:
            # It ends with its input, also if this process is killed.
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def name(self, pid: int, name: str) -> None:
        """Assign the connections of this process to `name` from now on."""
        await self._tell(do="name", pid=pid, name=name)

    async def forget(self, pid: int) -> None:
        await self._tell(do="forget", pid=pid)

    async def links(self) -> dict[str, Any]:
        """Return the number of connections by client and mongod."""
        return await self._tell(do="look")

    async def cut(self, one: str, others: Iterable[str], *, mode: str = "hold") -> None:
        """Cut a process from each of the others in both directions, by `hold` or `reset`."""
        for other in others:
            await self._set(one, other, mode)
            self.cuts.add((one, other))

    async def slow(self, one: str, others: Iterable[str], delay_s: float) -> None:
        for other in others:
            await self._set(one, other, "pass", delay_s)
            self.cuts.add((one, other))

    async def heal(self, one: str, others: Iterable[str]) -> None:
        for other in others:
            await self._set(one, other, "pass")
            self.cuts.discard((one, other))

    async def _set(self, one: str, other: str, mode: str, delay_s: float = 0.0) -> None:
        for pair in ((one, other), (other, one)):
            if pair[1] in self.ports:
                await self._tell(
                    **{"do": "rule", "from": pair[0], "to": pair[1]}, mode=mode, delay_s=delay_s
                )

    async def _tell(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            line = await self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the proxies have ended (exit {self._process.returncode})")
        answer: dict[str, Any] = json.loads(line)
        return answer
