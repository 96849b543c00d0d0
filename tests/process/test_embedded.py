"""A real mongod in a directory: start, reuse, repair, stop, and errors."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from revstream.gql.runtime.embedded.embedded_mongod import EmbeddedError, embedded_mongod
from revstream.gql.runtime.embedded.mongod import find_mongod, start, stop
from tests.support.eventually import eventually

KEEPER = """
import asyncio, sys
from pathlib import Path
from revstream.gql.runtime.embedded.embedded_mongod import embedded_mongod

async def keep():
    async with embedded_mongod(Path(sys.argv[1])) as uri:
        print(uri, flush=True)
        await asyncio.Event().wait()

{before}
asyncio.run(keep())
"""
"""A process that only runs its server; its parameter is the directory."""


@contextmanager
def keeper(directory: Path, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a process that keeps its server.

    Yields once the server is up, and kills it at the end.
    """
    with subprocess.Popen(
        [sys.executable, "-c", KEEPER.format(before=before), str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            assert "@127.0.0.1:" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def is_running(pid: int) -> bool:
    """Return whether the process exists; zombies do not count, as an orphan may never be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def server_pid(directory: Path) -> int:
    return int((directory / "mongod.pid").read_text())


def insert(uri: str, document: dict[str, Any]) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        client.shop.things.insert_one(document)


def things(uri: str) -> list[object]:
    with MongoClient[dict[str, Any]](uri) as client:
        return [each["_id"] for each in client.shop.things.find().sort("_id")]


def fake_mongod(directory: Path, script: str) -> None:
    """Put a program named mongod into `directory`."""
    program = directory / "mongod"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


async def test_a_new_directory_becomes_a_replica_set_with_change_streams(tmp_path: Path) -> None:
    """The URI leads to a writable primary that a change stream can follow, and all ends with it."""
    async with embedded_mongod(tmp_path / "new" / "db") as uri:
        pid = server_pid(tmp_path / "new" / "db")
        with MongoClient[dict[str, Any]](uri) as client, client.shop.watch() as stream:
            client.shop.things.insert_one({"_id": 1})
            change = stream.next()
        assert change["documentKey"] == {"_id": 1}
        assert os.getpgid(pid) != os.getpgid(0), "Ctrl-C would reach the server too"
    assert not is_running(pid)
    assert not (tmp_path / "new" / "db" / "mongod.pid").exists()


async def test_a_restart_serves_the_same_data_on_the_same_port(tmp_path: Path) -> None:
    """A directory keeps its data and, while it is free, its port."""
    async with embedded_mongod(tmp_path) as first:
        insert(first, {"_id": 1})
    async with embedded_mongod(tmp_path) as second:
        assert second == first
        assert things(second) == [1]


async def test_a_server_whose_port_was_taken_meanwhile_moves_to_another(tmp_path: Path) -> None:
    """The replica set gets its new address, and the data stay."""
    async with embedded_mongod(tmp_path) as first:
        insert(first, {"_id": 1})
    port = int((tmp_path / "port").read_text())
    # A server that is no mongod but closes connections: a silent one costs mongod 30 s.
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port),
        embedded_mongod(tmp_path) as second,
    ):
        assert second != first
        insert(second, {"_id": 2})
        assert things(second) == [1, 2]


async def test_other_users_of_the_machine_read_neither_files_nor_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are readable by this user only, and the port needs a password.

    The environment of mongod has no secrets.
    """
    monkeypatch.setenv("REVSTREAM_JWT_SECRET", "of-the-gateway")
    directory = tmp_path / "new"
    async with embedded_mongod(directory) as uri:
        insert(uri, {"_id": 1})
        port = int((directory / "port").read_text())
        with (
            MongoClient[dict[str, Any]](f"127.0.0.1:{port}", directConnection=True) as stranger,
            pytest.raises(OperationFailure, match="requires authentication"),
        ):
            stranger.shop.things.find_one()
        environment = environment_of(server_pid(directory))
    assert b"PATH=" in environment
    assert b"of-the-gateway" not in environment
    opened = [path for path in [directory, *directory.rglob("*")] if path.stat().st_mode & 0o077]
    assert [path.name for path in opened if path.parent != directory] == []
    assert {path.name for path in opened} <= {"lock", "mongod.pid", "port"}, "and no more"


async def test_data_without_a_password_gets_one(tmp_path: Path) -> None:
    """A directory of an earlier version, readable by all, is closed and keeps its data."""
    (tmp_path / "data").mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("--replSet", "revstream", "--port", str(port), "--dbpath", str(tmp_path / "data"))
    mongod = await start(find_mongod(), options, log_file=tmp_path / "mongod.log")
    member = {"_id": 0, "host": f"127.0.0.1:{port}"}
    with MongoClient[dict[str, Any]](f"127.0.0.1:{port}", directConnection=True) as client:
        client.admin.command("replSetInitiate", {"_id": "revstream", "members": [member]})
        await eventually(lambda: client.admin.command("hello")["isWritablePrimary"])
        client.shop.things.insert_one({"_id": 1})
    await stop(mongod, 20)
    (tmp_path / "port").write_text(str(port))
    async with embedded_mongod(tmp_path) as uri:
        assert things(uri) == [1]
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


async def test_a_password_of_other_data_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """The error is immediate, without waiting for the time limit."""
    async with embedded_mongod(tmp_path) as uri:
        insert(uri, {"_id": 1})
    (tmp_path / "uri").unlink()
    with pytest.raises(EmbeddedError, match="file `uri`: wrong, expected that of user revstream"):
        async with embedded_mongod(tmp_path):
            pass


async def test_the_server_ends_with_a_killed_revstream(tmp_path: Path) -> None:
    """The server stops by itself after kill -9, and the next start has all acknowledged data."""
    with keeper(tmp_path) as process:
        pid = server_pid(tmp_path)
        insert((tmp_path / "uri").read_text(), {"_id": 1})
        process.send_signal(signal.SIGKILL)
        await eventually(lambda: not is_running(pid))
    async with embedded_mongod(tmp_path) as uri:
        assert things(uri) == [1]


async def test_a_start_right_after_a_kill_waits_for_the_old_server(tmp_path: Path) -> None:
    """A restart succeeds whether or not the old server has ended."""
    for number in range(3):
        with keeper(tmp_path):
            insert((tmp_path / "uri").read_text(), {"_id": number})
    async with embedded_mongod(tmp_path) as uri:
        assert things(uri) == [0, 1, 2]


async def test_an_orphaned_server_is_stopped_by_the_next_start(tmp_path: Path) -> None:
    """This is needed where the kernel does not end it."""
    with keeper(
        tmp_path,
        before="from revstream.gql.runtime.embedded import mongod; mongod.sys.platform = 'other'",
    ):
        pid = server_pid(tmp_path)
    assert is_running(pid)
    async with embedded_mongod(tmp_path) as uri:
        assert not is_running(pid)
        assert things(uri) == []


async def test_a_process_that_only_has_the_recorded_number_is_not_stopped(tmp_path: Path) -> None:
    """Process ids are reused: only a mongod on this data is stopped."""
    other = await asyncio.create_subprocess_exec("sleep", "60")
    (tmp_path / "mongod.pid").write_text(str(other.pid))
    async with embedded_mongod(tmp_path):
        assert other.returncode is None
    other.kill()
    await other.wait()


async def test_a_server_that_dies_is_reported_and_starts_again(tmp_path: Path) -> None:
    """Its death is reported once, with the reason, and the next start succeeds."""
    deaths: list[EmbeddedError] = []
    async with embedded_mongod(tmp_path, on_death=deaths.append) as uri:
        insert(uri, {"_id": 1})
        os.kill(server_pid(tmp_path), signal.SIGKILL)
        await eventually(lambda: deaths)
    assert len(deaths) == 1
    assert "mongod ended: signal 9" in str(deaths[0])
    assert (tmp_path / "data" / "mongod.lock").read_text().strip(), "not an unclean end"
    async with embedded_mongod(tmp_path) as uri:
        assert things(uri) == [1]


async def test_a_directory_serves_one_revstream_only(tmp_path: Path) -> None:
    """The second process is refused with the first one's id, and the first is not disturbed."""
    async with embedded_mongod(tmp_path) as uri:
        with pytest.raises(
            EmbeddedError, match=rf"in use by another revstream \(process {os.getpid()}\)"
        ):
            async with embedded_mongod(tmp_path):
                pass
        insert(uri, {"_id": 1})


async def test_a_configured_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    """It is never replaced by another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port of MongoDB: {port} on 127.0.0.1 is in use"):
            async with embedded_mongod(tmp_path, port=port):
                pass


async def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """A file at its path is an error that names the directory."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"file/db: Not a directory"):
        async with embedded_mongod(tmp_path / "file" / "db"):
            pass


async def test_options_that_mongod_refuses_are_reported_with_its_message(tmp_path: Path) -> None:
    """The error contains the message of a real server that refuses to start."""
    with pytest.raises(EmbeddedError, match="cacheSizeGB must be greater"):
        async with embedded_mongod(tmp_path, cache_gb=-1):
            pass


async def test_a_server_that_dies_at_start_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of its log are shown, as text, without the messages of its shutdown."""
    fake_mongod(
        tmp_path,
        'case "$1" in --version) echo "db version v7.0.1";; *) '
        """echo '{"s":"E","msg":"Wrong mongod version","attr":{"error":"UPGRADE PROBLEM"}}'; """
        """echo '{"s":"I","msg":"Shutting down"}'; exit 62;; esac""",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(EmbeddedError) as caught:
        async with embedded_mongod(tmp_path / "db"):
            pass
    assert "exit code 62" in str(caught.value)
    assert 'Wrong mongod version {"error": "UPGRADE PROBLEM"}' in str(caught.value)
    assert "Shutting down" not in str(caught.value)


async def test_a_start_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that never accepts writes is stopped, and the error has the time limit."""
    fake_mongod(
        tmp_path, 'case "$1" in --version) echo "db version v7.0.1";; *) exec sleep 60;; esac'
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(EmbeddedError, match=r"not primary after 0\.3 s"):
        async with embedded_mongod(tmp_path / "db", start_s=0.3):
            pass
    assert not (tmp_path / "db" / "mongod.pid").exists()


async def test_a_server_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping is bounded: a server that ignores SIGTERM does not delay revstream's end."""
    fake_mongod(
        tmp_path,
        'case "$1" in --version) echo "db version v7.0.1";; *) trap "" TERM; '
        "echo ready; exec sleep 60;; esac",
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    started = asyncio.create_task(_enter(tmp_path / "db"))
    log_file = tmp_path / "db" / "mongod.log"
    await eventually(lambda: log_file.exists() and "ready" in log_file.read_text())
    pid = server_pid(tmp_path / "db")
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    assert not is_running(pid)


async def _enter(directory: Path) -> None:
    async with embedded_mongod(directory, stop_s=0.2):
        pass


def test_a_missing_mongod_is_an_error_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says where to get a server, and how to run without."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedError) as caught:
        find_mongod()
    for way in (
        "https://www.mongodb.com/try/download",
        "apt-get install libcurl4",
        "--mongodb-uri",
    ):
        assert way in str(caught.value)


def test_a_mongod_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not started."""
    fake_mongod(tmp_path, 'echo "db version v5.0.9"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedError, match=r"mongod: MongoDB 5\.0\.9, minimum is 6\.0"):
        find_mongod()


def test_a_mongod_that_does_not_run_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing library is reported with the loader's message."""
    fake_mongod(tmp_path, 'echo "libcrypto.so.3: cannot open shared object file" >&2; exit 127')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedError, match=r"mongod: does not run: libcrypto\.so\.3"):
        find_mongod()


def test_the_packaged_mongod_is_used_if_the_one_on_path_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optional package has precedence over an old installation."""
    package = tmp_path / "site" / "fiftyone" / "db" / "bin"
    package.mkdir(parents=True)
    fake_mongod(package, 'echo "db version v6.0.5"')
    fake_mongod(tmp_path, 'echo "db version v4.4.0"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert find_mongod().path == package / "mongod"
    assert "fiftyone" not in sys.modules
