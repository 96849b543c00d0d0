"""mongod processes with options that a test chooses: standalone, replica set, or with passwords."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from revstream.gql.runtime.embedded.mongod import LAUNCH, find_mongod

__all__ = [
    "BareMongod",
    "bare_mongod",
    "failing",
    "guarded_mongod",
    "replica_set",
    "short_lived_replica_set",
]

ROOT, PASSWORD = "root", "rootpw"
REPLICA_SET = "rs0"


@dataclass
class BareMongod:
    """A server that can be stopped and started again on its port and data."""

    directory: Path
    port: int
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Return the URI of the replica set that `replica_set` starts on this server."""
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet={REPLICA_SET}"

    def start(self) -> None:
        """Start the process; returns when it answers."""
        # fmt: off
        command = [
            sys.executable, "-ISc", LAUNCH, str(os.getpid()), str(find_mongod().path),
            "--dbpath", str(self.directory), "--port", str(self.port), "--bind_ip", "127.0.0.1",
            "--nounixsocket", "--wiredTigerCacheSizeGB", "0.25",
            "--setParameter", "diagnosticDataCollectionEnabled=false",
            *self.options,
        ]
        # fmt: on
        with (self.directory / "mongod.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        with MongoClient[dict[str, Any]](
            f"mongodb://127.0.0.1:{self.port}/?directConnection=true",
            serverSelectionTimeoutMS=20000,
        ) as client:
            client.admin.command("ping")

    def hush(self) -> None:
        """Stop answering, with all connections kept open, like a broken network."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def speak(self) -> None:
        """Answer again after `hush`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, as a power cut does; `start` starts it again."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            # A stopped process does not handle the signal.
            self.speak()
            self.process.terminate()
            self.process.wait(timeout=30)
            self.process = None


@contextmanager
def failing(server: BareMongod, command: str, times: int, **how: Any) -> Iterator[None]:
    """Let the next `times` of a command fail, on a server started with `enableTestCommands`.

    Args:
        how: see MongoDB's fail point `failCommand`.
    """
    data = {"failCommands": [command], **how}
    with MongoClient[dict[str, Any]](f"127.0.0.1:{server.port}", directConnection=True) as client:
        fail = {"configureFailPoint": "failCommand", "mode": {"times": times}, "data": data}
        client.admin.command(fail)
        try:
            yield
        finally:
            client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@contextmanager
def bare_mongod(directory: Path, *options: str) -> Iterator[BareMongod]:
    """Start a server with these options; it is stopped at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = BareMongod(directory, port, options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def short_lived_replica_set(*options: str) -> Iterator[BareMongod]:
    """Start a replica set of one member whose data is deleted at the end."""
    # Not pytest's tmp_path, which keeps the directories, 300 MB each, of the last three runs.
    with (
        tempfile.TemporaryDirectory(prefix="revstream-tests-") as directory,
        replica_set(Path(directory), *options) as server,
    ):
        yield server


@contextmanager
def replica_set(
    directory: Path, *options: str, name: str = REPLICA_SET, **configuration: Any
) -> Iterator[BareMongod]:
    """Start a replica set of one member, and return when it is primary."""
    with bare_mongod(directory, "--replSet", name, *options) as server:
        host = f"127.0.0.1:{server.port}"
        with MongoClient[dict[str, Any]](host, directConnection=True) as first:
            members = [{"_id": 0, "host": host}]
            first.admin.command(
                "replSetInitiate", {"_id": name, "members": members, **configuration}
            )
            _once_primary(first)
        yield server


@contextmanager
def guarded_mongod(directory: Path, *options: str) -> Iterator[MongoClient[dict[str, Any]]]:
    """Start a replica set that requires a password; yields a client with all rights."""
    directory.mkdir(parents=True, exist_ok=True)
    key = directory / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    with replica_set(directory, "--keyFile", str(key), *options) as server:
        host = f"127.0.0.1:{server.port}"
        # The localhost exception allows one user to be created without a password.
        with MongoClient[dict[str, Any]](host, directConnection=True) as first:
            first.admin.command("createUser", ROOT, pwd=PASSWORD, roles=["root"])
        with MongoClient[dict[str, Any]](
            host, replicaSet="rs0", username=ROOT, password=PASSWORD
        ) as client:
            yield client


def _once_primary(client: MongoClient[dict[str, Any]]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if client.admin.command("hello")["isWritablePrimary"]:
                return
        except PyMongoError:
            continue
    raise AssertionError("not primary within 20 s")
