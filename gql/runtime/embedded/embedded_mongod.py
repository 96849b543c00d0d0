"""Embedded MongoDB: a mongod as a one-node replica set, for as long as revstream runs.

Guarantees: one revstream per directory (a file lock, which the kernel releases). The server listens
on 127.0.0.1 only, requires a password, and is a writable primary before the URI is returned. It is
stopped at the end, within a bound. If this process is killed, the kernel stops the server (Linux);
elsewhere the next start stops it, identified by its recorded pid and its command line. Data
survives both.
Does not guarantee: anything about a server that another program starts on the same data; mongod
refuses that itself.

The directory holds `data/`, `mongod.log` (and that of the start before), `mongod.pid`, `port`,
`lock`, `keyfile` (which mongod needs beside a password in a replica set) and `uri`, which contains
the password. Only the user that runs revstream can read them: other users of the machine reach the
port, but neither the data nor the password.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import secrets
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from pymongo.uri_parser import parse_uri

from revstream.gql.runtime.embedded.mongod import (
    EmbeddedError,
    Mongod,
    death_of,
    find_mongod,
    start,
    stop,
)
from revstream.gql.runtime.embedded.replica_set import REPLICA_SET, USER, become_primary
from revstream.streams.core.task_cleanup import cancel_and_wait

__all__ = ["EmbeddedError", "embedded_mongod"]

log = logging.getLogger(__name__)


@asynccontextmanager
async def embedded_mongod(
    directory: Path,
    *,
    port: int | None = None,
    cache_gb: float = 0.25,
    oplog_mb: int = 1024,
    start_s: float = 120.0,
    stop_s: float = 20.0,
    on_death: Callable[[EmbeddedError], None] | None = None,
) -> AsyncIterator[str]:
    """A server that runs as long as the context; yields its URI.

    To be entered in a thread that outlives the context (the main thread, as a rule): on Linux the
    end of the thread that started the server stops it.

    Args:
        directory: Made where missing, for this user alone (mode 0700). What an earlier run left
            there is served again, also after it was killed.
        port: On 127.0.0.1. None: the port of the last run where that is free, else any free one.
        cache_gb: WiredTiger's cache; mongod's own minimum is 0.25.
        oplog_mb: Size of the oplog when the directory is new; an existing one keeps its size.
        start_s: How long it may take until it accepts writes; recovery after a kill is part of it.
        stop_s: How long it may take to stop before it is killed.
        on_death: Called once, from the loop, when the server ends before the context does.

    Raises:
        EmbeddedError: No mongod, too old, the port is taken, the directory is in use or not
            writable, its password is not the server's, or the server died at start.

    Cancellation: safe; the server is stopped.
    """
    mongod = await asyncio.to_thread(find_mongod)
    directory = await asyncio.to_thread(directory.resolve)
    with _held(directory):
        await _end_orphan(directory, stop_s)
        bound = _choose_port(directory, port)
        password = _known_password(directory) or secrets.token_urlsafe(32)
        uri = f"mongodb://{USER}:{password}@127.0.0.1:{bound}/?replicaSet={REPLICA_SET}"
        _write_private(directory / "uri", uri)
        process = await _start(mongod, directory, bound, cache_gb, oplog_mb)
        watch: asyncio.Task[None] | None = None
        try:
            (directory / "mongod.pid").write_text(str(process.pid))
            (directory / "port").write_text(str(bound))
            await become_primary(process, directory, bound, password, start_s)
            log.info(
                "embedded mongod started",
                extra={"version": mongod.version, "port": bound, "directory": str(directory)},
            )
            watch = asyncio.create_task(_watch(process, directory, on_death))
            yield uri
        finally:
            await cancel_and_wait(watch)
            await stop(process, stop_s)
            (directory / "mongod.pid").unlink(missing_ok=True)


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Own the directory, made where missing, and close its data to other users."""
    # The lock file stays: removing it would let two processes lock two files of that name.
    try:
        # A directory that was there before keeps its mode: it may hold other things.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / "data").mkdir(mode=0o700, exist_ok=True)
        # Made by an earlier version, with the modes of the user's umask.
        (directory / "data").chmod(0o700)
        for log_file in directory.glob("mongod.log*"):
            log_file.chmod(0o600)
        lock = (directory / "lock").open("a+")
    except OSError as exc:
        raise EmbeddedError(
            f"directory of MongoDB's data: {directory}: {exc.strerror}; choose another"
        ) from exc
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise EmbeddedError(
                f"directory of MongoDB's data: {directory} is in use by another revstream (process "
                f"{lock.read() or 'unknown'}); stop that process, choose another directory, or "
                "connect to its server with --mongodb-uri"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


async def _end_orphan(directory: Path, stop_s: float) -> None:
    """Stop the server of a killed revstream, and wait until it is gone."""
    pid_file = directory / "mongod.pid"
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return
    if _runs_on(pid, directory):
        log.warning("stopping the mongod of an earlier run", extra={"pid": pid})
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sign)
            with suppress(TimeoutError):
                async with asyncio.timeout(stop_s):
                    # Not our child: nothing to wait on but the process table.
                    while _runs_on(pid, directory):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                break
        else:
            raise EmbeddedError(
                f"mongod of an earlier run in {directory} (process {pid}): still runs after "
                "SIGKILL; stop it by hand"
            )
    pid_file.unlink(missing_ok=True)


def _runs_on(pid: int, directory: Path) -> bool:
    """Return whether process `pid` is a mongod on this data.

    The number alone proves nothing, since pids are reused.
    """
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        if Path("/proc/self").exists():
            return False
        # Not Linux: no /proc at all.
        line = subprocess.run(
            ["ps", "-p", str(pid), "-o", "command="], capture_output=True, check=False
        ).stdout
    return b"mongod" in line and f"--dbpath {directory / 'data'} ".encode() in line


async def _start(
    mongod: Mongod, directory: Path, port: int, cache_gb: float, oplog_mb: int
) -> asyncio.subprocess.Process:
    """The running process, which listens soon. One earlier log is kept."""
    # fmt: off
    options = (
        "--dbpath", str(directory / "data"),
        "--port", str(port),
        "--bind_ip", "127.0.0.1",
        "--nounixsocket",
        "--replSet", REPLICA_SET,
        "--keyFile", str(directory / "keyfile"),
        # The password is random: iterations would protect nothing, and cost each connection 10 ms.
        "--setParameter", "scramSHA256IterationCount=5000",
        "--oplogSize", str(oplog_mb),
        "--wiredTigerCacheSizeGB", str(cache_gb),
        "--setParameter", "diagnosticDataCollectionEnabled=false",
        # Transactions of a killed process; those of this deployment are shorter.
        "--setParameter", "transactionLifetimeLimitSeconds=10",
    )
    # fmt: on
    if not (directory / "keyfile").exists():
        _write_private(directory / "keyfile", secrets.token_hex(256))
    with suppress(FileNotFoundError):
        (directory / "mongod.log").replace(directory / "mongod.log.1")
    (directory / "mongod.log").touch(mode=0o600)
    return await start(mongod, options, log_file=directory / "mongod.log")


def _known_password(directory: Path) -> str | None:
    """Return the password of the last run; None in a new directory, or one that had none yet."""
    try:
        password = parse_uri((directory / "uri").read_text())["password"]
    except FileNotFoundError:
        return None
    return str(password)


def _write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, in one step: a crash leaves the old one."""
    beside = path.with_name(path.name + ".new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _choose_port(directory: Path, asked: int | None) -> int:
    if asked is not None:
        if not _is_free(asked):
            raise EmbeddedError(
                f"port of MongoDB: {asked} on 127.0.0.1 is in use, expected a free one; choose "
                "another, or none"
            )
        return asked
    with suppress(OSError, ValueError):
        last = int((directory / "port").read_text())
        if _is_free(last):
            return last
    # Below the ports that systems give to outgoing connections, any of which could take ours before
    # mongod does.
    ports = random.sample(range(27100, 32000), 100)
    for port in ports:
        if _is_free(port):
            return port
    raise EmbeddedError(
        f"port of MongoDB: 100 ports on 127.0.0.1 are in use, such as {ports[0]}, expected a free "
        "one; stop some of the programs that use them"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As mongod does it: connections of the last run in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


async def _watch(
    process: asyncio.subprocess.Process,
    directory: Path,
    on_death: Callable[[EmbeddedError], None] | None,
) -> None:
    await process.wait()
    error = EmbeddedError(death_of(process, directory / "mongod.log"))
    log.error("embedded mongod died", extra={"error": str(error)})
    if on_death is not None:
        on_death(error)
