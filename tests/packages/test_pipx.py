"""`pipx run revstream demo` of the built wheel, as a user's first command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.packages.conftest import Distributions

pytestmark = pytest.mark.packages

MOST_S = 60.0
QUERY = "{ products(first: 3) { nodes { name history(first: 1) { nodes { version } } } } }"


def test_the_demo_answers_a_query_within_a_minute(
    distributions: Distributions, tmp_path: Path
) -> None:
    """In a new home, with nothing but pipx: revstream and its MongoDB are installed and serve."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "pipx", "run", "--spec", str(distributions.wheel)]
    process = subprocess.Popen(
        [*command, "revstream", "demo", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            # No mongod but the one that comes with the wheel, and no environment of the tests.
            **{name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"},
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        },
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    reader.start()
    try:
        address = ""
        for line in process.stdout:
            if line.strip().startswith("GraphiQL"):
                address = line.split()[-1]
            if "Ctrl+C stops it" in line:
                break
        assert address, "".join(errors)
        answer = httpx.post(address, json={"query": QUERY}, timeout=30).json()
        taken_s = time.monotonic() - begun
        assert "errors" not in answer, answer
        assert len(answer["data"]["products"]["nodes"]) == 3
        assert taken_s < MOST_S
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
        reader.join()
        process.stdout.close()
        process.stderr.close()
