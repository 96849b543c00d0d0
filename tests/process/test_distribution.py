"""One distribution, one name: modules of the user never replace those of revstream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

MODEL = """
type Thing @collection(name: "things") { id: ID!, n: Int }
"""
NAMES = ("gql", "model", "resolvers", "streams")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder whose modules have names of revstream's packages, and cannot be imported."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the user')\n")
    return tmp_path


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("revstream")
    return subprocess.run(
        [str(command), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": "."},
    )


def test_modules_of_the_user_are_not_imported_as_packages_of_revstream(folder: Path) -> None:
    """`revstream --version` works in a folder with a `model.py`."""
    done = _run(folder, "--version")
    assert (done.stderr, done.returncode) == ("", 0)
    assert re.fullmatch(r"revstream, version [\d.]+\n", done.stdout)


def test_a_listener_imports_the_modules_of_its_own_folder(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path, tmp_path: Path
) -> None:
    """A listener's `import model` is the user's module, beside `revstream.listeners`."""
    (tmp_path / "model.py").write_text("COLLECTION = 'nowhere'\n")
    (tmp_path / "mine.py").write_text(
        "import model\n"
        "from revstream.listeners import Handler, ListenerContext, Version\n\n\n"
        "class Mine(Handler):\n"
        "    name = 'mine'\n"
        "    collection = model.COLLECTION\n\n"
        "    def __init__(self, context: ListenerContext) -> None: ...\n\n"
        "    async def handle(self, versions: list[Version], fencing_token: int) -> None: ...\n"
    )
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    done = _run(tmp_path, "record", *where, "--listeners", "mine:Mine")
    assert done.returncode != 0
    assert "--listeners: 'mine' follows the collection 'nowhere'" in done.stderr
