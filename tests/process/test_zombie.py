"""A holder that is paused beyond its lease.

Its writes are refused, it logs that, and it continues as a follower.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support import gateway as support
from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.repeating import repeat_in_background
from tests.support.streams import check_chains

Things = Database[dict[str, Any]]

MODEL = 'type Thing @collection(name: "things", version: null) { id: ID! n: Int }'
LISTENER = {"_id": "recorder:things"}
GENEROUS_S = 120.0

# It never checks its lease or its share: only the fencing token stops it.
BLIND = """
import asyncio

from revstream.gql.cli.main import main
from revstream.streams.coordination.leased_task import LeasedTask

async def renew(self):
    return True

async def reassigned(self):
    await asyncio.Event().wait()

LeasedTask._renew = renew
LeasedTask._reassigned = reassigned
main()
"""


@pytest.fixture(params=representatives(["as it is", "blind"], "blind"))
def blind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Decide whether the next process never renews its lease."""
    if request.param == "blind":
        real = subprocess.Popen

        def started(command: list[str], **options: Any) -> Any:
            monkeypatch.undo()
            assert command[1:3] == ["-m", "revstream"]
            return real([sys.executable, "-c", BLIND, *command[3:]], **options)

        monkeypatch.setattr(support.subprocess, "Popen", started)
    return bool(request.param == "blind")


def fence(database: Things) -> int:
    """Return the fencing token of the newest holder that has begun to record."""
    found = database["revstream.checkpoints"].find_one(LISTENER) or {}
    return int(found.get("fencingToken", 0))


def archived(database: Things) -> list[int]:
    return [each["full"]["n"] for each in database["things.versions"].find().sort("_id")]


def log_lines(gateway: RunningGateway, text: str) -> list[str]:
    return [each for each in gateway.lines if text in each]


@contextmanager
def writing(database: Things) -> Iterator[list[int]]:
    """Write without a pause until the context ends; yields the written numbers."""
    written: list[int] = []

    def write() -> None:
        number = len(written)
        database.things.update_one({"_id": number % 7}, {"$set": {"n": number}}, upsert=True)
        written.append(number)

    with repeat_in_background(write):
        yield written


@pytest.mark.timeout(240)
def test_a_holder_paused_beyond_its_lease_is_refused_and_becomes_a_follower(
    mongo_uri: str, database: Things, model: Path, blind: bool
) -> None:
    """The archive has each write once, in order.

    The paused process lives, and takes over when it is needed again.
    """
    start = (mongo_uri, database.name, model, "--lease-s", "2")
    with running_gateway(*start) as sleeper:
        wait_until(lambda: fence(database) == 1, within_s=GENEROUS_S)
        with running_gateway(*start) as other, writing(database) as written:
            wait_until(lambda: len(archived(database)) > 20, within_s=GENEROUS_S)
            sleeper.process.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: fence(database) == 2, within_s=GENEROUS_S)
                count = len(written)
                wait_until(lambda: len(archived(database)) > count, within_s=GENEROUS_S)
            finally:
                sleeper.process.send_signal(signal.SIGCONT)
            wait_until(lambda: log_lines(sleeper, "lease lost"), within_s=GENEROUS_S)
            count = len(written)
            wait_until(lambda: len(archived(database)) > count + 20, within_s=GENEROUS_S)
            assert sleeper.query("{ things { nodes { n } } }")["things"]["nodes"]
            assert not log_lines(other, "lease lost")
            other.kill()
            wait_until(lambda: fence(database) == 3, within_s=GENEROUS_S)
            count = len(written)
            wait_until(lambda: len(archived(database)) > count, within_s=GENEROUS_S)
        wait_until(lambda: len(archived(database)) == len(written), within_s=GENEROUS_S)
        assert sleeper.process.poll() is None
    assert archived(database) == written
    check_chains(list(database["things.versions"].find().sort("_id")))
    if blind:
        [line] = log_lines(sleeper, "lease lost")
        assert re.search(
            r"checkpoint with fencing token 1, minimum is 2"
            r"|another process wrote to the archive",
            line,
        )
