"""A replica set of three mongods whose members use the proxies' addresses."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from revstream.gql.runtime.embedded.mongod import LAUNCH, find_mongod
from tests.faults.clock import Clocks
from tests.faults.network import Network, free_ports

__all__ = ["Cluster", "Member"]

Client = AsyncMongoClient[dict[str, Any]]
REPLICA_SET = "faults"
HARNESS = "harness"
START_S = 90.0


@dataclass
class Member:
    """One mongod, killed and restarted with its data and port."""

    name: str
    port: int
    directory: Path
    clocks: Clocks
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        # fmt: off
        command = [
            sys.executable, "-ISc", LAUNCH, str(os.getpid()), str(find_mongod().path),
            "--dbpath", str(self.directory), "--port", str(self.port), "--bind_ip", "127.0.0.1",
            "--nounixsocket", "--replSet", REPLICA_SET, "--oplogSize", "1024",
            "--wiredTigerCacheSizeGB", "0.25",
            # Allows failCommand, which simulates a full disk.
            "--setParameter", "enableTestCommands=1",
            "--setParameter", "diagnosticDataCollectionEnabled=false",
            # For abandoned cursors: no client here needs longer ones.
            "--setParameter", "transactionLifetimeLimitSeconds=10",
        ]
        # fmt: on
        with (self.directory.parent / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.clocks.environment(self.name)},
            )

    def kill(self) -> None:
        """Kill the process, as a power failure does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @asynccontextmanager
    async def direct(self, **options: Any) -> AsyncIterator[Client]:
        """Open a client of this member only, without the proxies."""
        async with Client(
            f"mongodb://127.0.0.1:{self.port}/?directConnection=true",
            serverSelectionTimeoutMS=2000,
            socketTimeoutMS=5000,
            **options,
        ) as client:
            yield client


@dataclass
class Cluster:
    """The replica set; it has a primary after `open`."""

    members: list[Member]
    network: Network

    @property
    def uri(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.network.ports.values())
        return f"mongodb://{hosts}/?replicaSet={REPLICA_SET}"

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, clocks: Clocks, count: int = 3) -> AsyncIterator[Cluster]:
        ports = free_ports(count)
        members = [
            Member(f"m{n}", port, directory / f"m{n}", clocks) for n, port in enumerate(ports)
        ]
        async with Network.open({each.name: each.port for each in members}) as network:
            await network.name(os.getpid(), HARNESS)
            cluster = cls(members, network)
            try:
                for each in members:
                    await cluster.start(each)
                await cluster._initiate()
                yield cluster
            finally:
                for each in members:
                    if each.process is not None and each.runs:
                        # The data is deleted: no clean shutdown is needed.
                        each.process.kill()
                        each.process.wait()

    async def start(self, member: Member) -> None:
        """Start a member; returns when it answers."""
        member.start()
        assert member.process is not None
        await self.network.name(member.process.pid, member.name)
        deadline = time.monotonic() + START_S
        while True:
            with suppress(PyMongoError):
                async with member.direct() as client:
                    await client.admin.command("ping")
                    return
            if not member.runs:
                raise AssertionError(f"{member.name} ended with {member.process.returncode}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{member.name} does not answer after {START_S} s")
            await asyncio.sleep(0.1)

    async def _initiate(self) -> None:
        config = {
            "_id": REPLICA_SET,
            "members": [
                {"_id": n, "host": f"127.0.0.1:{port}"}
                for n, port in enumerate(self.network.ports.values())
            ],
            # Short timeouts, for many elections in a short time.
            "settings": {
                "electionTimeoutMillis": 2000,
                "heartbeatIntervalMillis": 500,
                "heartbeatTimeoutSecs": 2,
            },
        }
        async with self.members[0].direct() as client:
            await client.admin.command("replSetInitiate", config)
        await self.primary(within_s=START_S)

    async def status(self, member: Member) -> dict[str, Any] | None:
        """Return a member's `hello`, or None if it does not answer."""
        if not member.runs or member.paused:
            return None
        with suppress(PyMongoError, OSError):
            async with member.direct() as client:
                return dict(await client.admin.command("hello"))
        return None

    async def current_primary(self) -> Member | None:
        """Return the member that reports to be primary; of two, the one elected later."""
        found: list[tuple[Any, Member]] = []
        for each in self.members:
            hello = await self.status(each)
            if hello is not None and hello.get("isWritablePrimary"):
                found.append((hello["electionId"], each))
        return max(found, key=lambda each: each[0])[1] if found else None

    async def primary(self, *, within_s: float = 60.0) -> Member:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            found = await self.current_primary()
            if found is not None:
                return found
            await asyncio.sleep(0.2)
        raise AssertionError(f"no primary within {within_s} s")

    async def healthy(self, *, within_s: float = 60.0) -> None:
        """Wait until there is a primary that all others follow."""
        deadline = time.monotonic() + within_s
        states: list[Any] = []
        while time.monotonic() < deadline:
            states = []
            for each in self.members:
                hello = await self.status(each)
                states.append(
                    None
                    if hello is None
                    else "primary"
                    if hello.get("isWritablePrimary")
                    else "secondary"
                    if hello.get("secondary")
                    else "other"
                )
            if sorted(map(str, states)) == ["primary"] + ["secondary"] * (len(states) - 1):
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"the replica set is not whole within {within_s} s: {states}")

    async def term(self) -> int:
        """Return the election term, which only grows; -1 if no member answers."""
        highest = -1
        for each in self.members:
            if not each.runs:
                continue
            with suppress(PyMongoError, OSError):
                async with each.direct() as client:
                    reply = await client.admin.command("replSetGetStatus")
                    highest = max(highest, int(reply["term"]))
        return highest
