"""Packages of revstream, built once per run as a release builds them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.gateway import ROOT


@dataclass(frozen=True)
class Distributions:
    """The wheel and the source distribution of this checkout."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Build the source distribution from the checkout, and the wheel from that, for a release."""
    folder = tmp_path_factory.mktemp("distributions")
    # With the build requirements of the tests' environment: no network.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Distributions(wheel, sdist)
