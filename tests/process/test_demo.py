"""`revstream demo` as run by `make demo`: its output, its changes, and its data."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, ensure_ended

LAST_LINE = "Ctrl+C stops it"
# A time limit that a busy machine does not exceed.
GENEROUS_S = 120.0

VERSIONS = """
{
  productVersions(first: 200) { nodes { ...Shown author comment } }
  orderVersions(first: 200) { nodes { ...Shown } }
  readingVersions(first: 1) { nodes { version } }
}
fragment Shown on Version { documentId version operation resumeToken }
"""
# All inserts and deletes: the first ones are those of the shop's loading.
GOODS = """
{
  productVersions(first: 500, where: { operation: { in: [INSERT, DELETE] } }) {
    nodes { documentId version operation }
  }
}
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """Provide a directory for a shop of the test's own."""
    # Not pytest's tmp_path, which keeps the directories, 300 MB each, of the last three runs.
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        yield Path(name)


@contextlib.contextmanager
def running_demo(directory: Path, rate: int) -> Iterator[tuple[RunningGateway, str]]:
    """Run the demo; yields it with its output, once the addresses are printed."""
    arguments = ("--embedded", str(directory), "--port", "0", "--rate", str(rate))
    process = subprocess.Popen(
        [sys.executable, "-m", "revstream", "demo", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    demo = RunningGateway(process, "")
    assert process.stdout is not None
    # Without further reads, a full pipe would stop the process.
    demo.reader = threading.Thread(target=lambda: demo.lines.extend(process.stderr or ()))
    demo.reader.start()
    with ensure_ended(demo), process.stdout as output:
        printed_lines = []
        for line in output:
            printed_lines.append(line)
            if LAST_LINE in line:
                break
        assert printed_lines, "".join(demo.lines)
        assert LAST_LINE in printed_lines[-1], "".join(demo.lines)
        demo.address = printed(printed_lines, "Timeline").rstrip("/")
        yield demo, "".join(printed_lines)


def printed(printed_lines: list[str], name: str) -> str:
    """Return the address that is printed after a name."""
    [line] = [each for each in printed_lines if each.strip().startswith(name)]
    return line.split()[-1]


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[RunningGateway, str]]:
    """Run a demo with many writes, for tests that only read."""
    with (
        tempfile.TemporaryDirectory(prefix="revstream-tests-") as name,
        running_demo(Path(name), rate=100) as running,
    ):
        yield running


def versions(demo: RunningGateway) -> dict[str, list[dict[str, Any]]]:
    return {name: found["nodes"] for name, found in demo.query(VERSIONS).items()}


def test_the_printed_addresses_are_served(demo: tuple[RunningGateway, str]) -> None:
    """They are pages for a browser, and the API's schema."""
    _, printed_lines = demo
    for name, content in (
        ("GraphiQL", "text/html"),
        ("Timeline", "text/html"),
        ("Schema", "text/plain"),
    ):
        address = printed(printed_lines.splitlines(), name)
        assert address.startswith("http://127.0.0.1:")
        response = http.get(address, headers={"accept": content})
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(content)


async def test_the_three_printed_queries_are_valid(
    demo: tuple[RunningGateway, str],
) -> None:
    """Each is on one line: two reads and a subscription."""
    running, printed_lines = demo
    goods, trail, changes = (
        line.strip()
        for line in printed_lines.splitlines()
        if line.startswith(("  {", "  subscription"))
    )
    products = running.query(goods)["products"]["nodes"]
    assert len(products) == 3
    assert all(each["history"]["nodes"] for each in products)
    answer = running.query(trail)
    assert len(answer["productVersions"]["nodes"]) == 5
    assert answer["resumeToken"]
    async with contextlib.aclosing(running.subscribe(changes)) as events:
        async for data in events:
            order = data["orderChanges"]["order"]
            # Null if an order is removed, or for a checkpoint; an article may have been deleted
            # since.
            if order is not None and order["lines"][0]["product"] is not None:
                break
    assert order["customer"]["name"]
    assert order["lines"][0]["product"]["name"]


def test_its_history_grows_by_programs_of_all_kinds(demo: tuple[RunningGateway, str]) -> None:
    """Updates have an attribution; replacements and transactions over two collections occur."""
    running, _ = demo

    def all_kinds() -> bool:
        found = versions(running)
        products, orders = found["productVersions"], found["orderVersions"]
        operations = {each["operation"] for each in products}
        signed = [each for each in products if each["author"] and each["comment"]]
        # A transaction has one cluster time, with which a token begins.
        taken = {each["resumeToken"][:16] for each in products if each["operation"] == "UPDATE"}
        sold = [each for each in orders if each["operation"] == "INSERT"]
        together = [each for each in sold if each["resumeToken"][:16] in taken]
        measured = found["readingVersions"][0]["version"] > 1
        return bool({"UPDATE", "REPLACE"} <= operations and signed and together and measured)

    wait_until(all_kinds, within_s=GENEROUS_S)


def test_goods_that_are_deleted_and_inserted_again_continue_their_history(
    demo: tuple[RunningGateway, str],
) -> None:
    """A deletion is a version, and the next insert continues after it."""
    running, _ = demo

    def came_back() -> bool:
        found = running.query(GOODS)["productVersions"]["nodes"]
        deleted = {
            (each["documentId"], each["version"]) for each in found if each["operation"] == "DELETE"
        }
        return any(
            each["operation"] == "INSERT" and (each["documentId"], each["version"] - 1) in deleted
            for each in found
        )

    wait_until(came_back, within_s=GENEROUS_S)


def test_it_stops_with_its_server_and_restarts_with_the_same_data(directory: Path) -> None:
    """SIGTERM ends both, in order; the next start in the directory has the history of the first."""
    with running_demo(directory, rate=50) as (demo, _):
        wait_until(
            lambda: len(versions(demo)["productVersions"]) > 60 and versions(demo)["orderVersions"],
            within_s=GENEROUS_S,
        )
        pid = int((directory / "mongod.pid").read_text())
        assert demo.stop() == 0
    assert not Path(f"/proc/{pid}").exists()
    assert demo.lines == []
    with running_demo(directory, rate=1) as (demo, _):
        found = demo.query(GOODS)["productVersions"]["nodes"]
        loaded = [each for each in found if each["operation"] == "INSERT" and each["version"] == 1]
        # The data are loaded once.
        assert len(loaded) == len({each["documentId"] for each in loaded}) == 40
        assert len(versions(demo)["productVersions"]) > 60
        assert demo.stop() == 0
    assert demo.lines == []
