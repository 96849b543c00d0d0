"""Proxies between all processes and the mongods, as a program of its own: one per mongod.

`python proxy.py '{"m0": [listen_port, mongod_port], …}'`; then one JSON command per line on stdin,
each answered by a line:

- `{"do": "name", "pid": 17, "name": "g0"}`: connections of that process are g0's;
- `{"do": "rule", "from": "g0", "to": "m1", "mode": "pass" | "hold" | "reset", "delay_s": 0}`.

Clients are identified by /proc: the process with the other end of the socket. So the programs under
test need no configuration. `hold` delivers nothing in both directions, without an error, like a cut
cable; data in flight arrives once the rule is `pass` again. `reset` breaks connections and refuses
new ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Pair = tuple[str, str]
STRANGER = "?"


@dataclass(frozen=True)
class Rule:
    mode: str = "pass"
    delay_s: float = 0.0


@dataclass
class Network:
    """Rules by (from, to), and their connections."""

    names: dict[int, str] = field(default_factory=dict)
    rules: dict[Pair, Rule] = field(default_factory=dict)
    links: set[Link] = field(default_factory=set)
    connections: int = 0

    def rule(self, pair: Pair) -> Rule:
        # A mongod finds itself among the members through its own proxy.
        return Rule() if pair[0] == pair[1] else self.rules.get(pair, Rule())

    def change(self, pair: Pair, rule: Rule) -> None:
        self.rules[pair] = rule
        for link in [each for each in self.links if each.pair == pair]:
            link.obey(rule)

    def owner(self, port: int, listening: int) -> str:
        """Return the name of the process whose socket 127.0.0.1:`port` is connected to
        `listening`.
        """
        local, remote = f"0100007F:{port:04X}", f"0100007F:{listening:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines():
            columns = line.split()
            if columns[1] == local and columns[2] == remote:
                wanted = f"socket:[{columns[9]}]"
                for pid, name in list(self.names.items()):
                    with suppress(OSError):
                        for entry in os.scandir(f"/proc/{pid}/fd"):
                            with suppress(OSError):
                                if os.readlink(entry.path) == wanted:
                                    return name
        return STRANGER


class End(asyncio.Protocol):
    """One end of a link; data that arrives here is sent at the other end."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.other: End | None = None
        # uvloop's transport does not inherit from asyncio.Transport.
        self.transport: Any = None
        self.stops: set[str] = set()
        self.kept: list[bytes] = []
        # Delayed actions: time, method, arguments.
        self.waiting: deque[tuple[float, str, tuple[bytes, ...]]] = deque()
        self.open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._obey_stops()

    def data_received(self, data: bytes) -> None:
        # The event loop may have read data before reading was paused.
        if self.stops & {"held", "connecting"}:
            self.kept.append(data)
        else:
            self._later("send", data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self.link in self.link.network.links:
            self._later("close")
        if self.other is None or not self.other.open:
            self.link.forget()

    def send(self, data: bytes) -> None:
        if self.open:
            self.transport.write(data)

    def close(self) -> None:
        """Close once everything is sent."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        self.open = False
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.stop("full")

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.go("full")

    def stop(self, why: str) -> None:
        self.stops.add(why)
        self._obey_stops()

    def go(self, why: str) -> None:
        self.stops.discard(why)
        if not self.stops & {"held", "connecting"}:
            kept, self.kept = self.kept, []
            for data in kept:
                self._later("send", data)
        self._obey_stops()

    def _later(self, act: str, *arguments: bytes) -> None:
        """Call a method of the other end, now or after the delay; the order is kept."""
        if self.other is None:
            return
        delay_s = self.link.rule.delay_s
        if not delay_s and not self.waiting:
            getattr(self.other, act)(*arguments)
            return
        loop = asyncio.get_running_loop()
        self.waiting.append((loop.time() + delay_s, act, arguments))
        if len(self.waiting) == 1:
            loop.call_later(delay_s, self._release)

    def _release(self) -> None:
        assert self.other is not None
        loop = asyncio.get_running_loop()
        while self.waiting and self.waiting[0][0] <= loop.time():
            _, act, arguments = self.waiting.popleft()
            getattr(self.other, act)(*arguments)
        if self.waiting:
            loop.call_later(self.waiting[0][0] - loop.time(), self._release)

    def _obey_stops(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.stops:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class Link:
    """One proxied connection to a mongod."""

    def __init__(self, network: Network, server: str, listening: int, target: int) -> None:
        self.network = network
        self.pair: Pair = (STRANGER, server)
        self.rule = Rule()
        self.near: End = Accepting(self)
        self.far = End(self)
        self.near.other, self.far.other = self.far, self.near
        # Data until the other end is connected.
        self.near.stops.add("connecting")
        self._listening = listening
        self._target = target
        self._connecting: asyncio.Task[None] | None = None

    def accepted(self, port: int) -> None:
        self.network.connections += 1
        self.network.links.add(self)
        self.pair = (self.network.owner(port, self._listening), self.pair[1])
        self.obey(self.network.rule(self.pair))

    def obey(self, rule: Rule) -> None:
        self.rule = rule
        if rule.mode == "reset":
            self._break()
        elif rule.mode == "hold":
            self.near.stop("held")
            self.far.stop("held")
        else:
            self.near.go("held")
            self.far.go("held")
            if self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, "127.0.0.1", self._target)
        except OSError:
            self._break()
            return
        if not self.near.open:
            self._break()
            return
        self.near.go("connecting")

    def _break(self) -> None:
        self.near.abort()
        self.far.abort()
        self.forget()

    def forget(self) -> None:
        self.network.links.discard(self)


class Accepting(End):
    """The end to which a client has connected."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # A client that has disconnected already has no port to identify it.
        peer = transport.get_extra_info("peername")
        self.link.accepted(peer[1] if peer else 0)


async def main(proxies: dict[str, tuple[int, int]]) -> None:
    network = Network()
    loop = asyncio.get_running_loop()

    def accepting(server: str, listening: int, target: int) -> Callable[[], End]:
        return lambda: Link(network, server, listening, target).near

    for server, (listening, target) in proxies.items():
        made = accepting(server, listening, target)
        await loop.create_server(made, "127.0.0.1", listening, backlog=512)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        command = json.loads(line)
        if command["do"] == "name":
            network.names[command["pid"]] = command["name"]
        elif command["do"] == "forget":
            network.names.pop(command["pid"], None)
        elif command["do"] == "rule":
            rule = Rule(command["mode"], command["delay_s"])
            network.change((command["from"], command["to"]), rule)
        found: dict[str, int] = {}
        for link in network.links:
            name = "→".join(link.pair)
            found[name] = found.get(name, 0) + 1
        answer = {"links": found, "connections": network.connections}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    work = main(json.loads(sys.argv[1]))
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
