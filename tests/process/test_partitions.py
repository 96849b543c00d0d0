"""Several processes that record one collection together, through starts, stops and kills."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pymongo.database import Database

from revstream.streams.core import resume_tokens
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.repeating import repeat_in_background
from tests.support.streams import check_chains

Shop = Database[dict[str, Any]]
GENEROUS_S = 120.0
LEASE = ("--lease-s", "2")


def model(tmp_path: Path, partitions: int) -> Path:
    path = tmp_path / f"schema{partitions}.graphql"
    path.write_text(
        f'type Thing @collection(name: "things", partitions: {partitions}) {{ id: Int! n: Int }}'
    )
    return path


def shares(database: Shop, count: int, *gateways: RunningGateway) -> list[int]:
    """Return the number of partitions that each process holds."""
    names = [f"recorder:things:{n + 1}/{count}" for n in range(count)]
    names = ["recorder:things"] if count == 1 else names
    leases = database["revstream.leases"].find({"_id": {"$in": names}})
    pids = Counter(each.get("holder", "::").split(":")[1] for each in leases)
    return [pids[str(each.process.pid)] for each in gateways]


class Writer:
    """Increments each document in turn, in a thread."""

    keys = 20

    def __init__(self, database: Shop) -> None:
        self.written = 0
        self._things = database.things

    def write(self) -> None:
        key = {"_id": self.written % self.keys}
        self._things.update_one(key, {"$inc": {"n": 1}}, upsert=True)
        self.written += 1

    def more(self, count: int) -> None:
        wanted = self.written + count
        wait_until(lambda: self.written >= wanted, within_s=GENEROUS_S)

    def assert_recorded(self, database: Shop) -> None:
        """Check that each write is recorded once, in order and without a gap."""
        archive = database["things.versions"]
        wait_until(lambda: archive.count_documents({}) >= self.written, within_s=GENEROUS_S)
        records = list(archive.find().sort("_id"))
        check_chains(records)
        for key in range(self.keys):
            counted = [each["full"]["n"] for each in records if each["doc"] == key]
            assert counted == list(range(1, len(counted) + 1))
        assert len(records) == self.written
        assert not any(each.get("gap") for each in records)


def assert_nothing_wrong(uri: str, database: Shop, schema: Path) -> None:
    place = ("--mongodb-uri", uri, "--database", database.name, "--schema", str(schema))
    run = run_command("verify", *place, "--json")
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout)["things"]["findings"] == []


def test_partitions_are_shared_and_taken_over_during_writes(
    mongo_uri: str, database: Shop, tmp_path: Path
) -> None:
    """The shares are two and two; after kill -9 all four; two and two again with the next process.

    Every process reports all partitions.
    """
    schema = model(tmp_path, 4)
    writer = Writer(database)
    start = (mongo_uri, database.name, schema, *LEASE)
    with running_gateway(*start) as first, repeat_in_background(writer.write, 0.003):
        wait_until(lambda: shares(database, 4, first) == [4], within_s=GENEROUS_S)
        with running_gateway(*start, command="record") as second:
            wait_until(lambda: shares(database, 4, first, second) == [2, 2], within_s=GENEROUS_S)
            writer.more(100)
            streams = first.query("{ streams { name state owner fence } }")["streams"]
            assert [each["name"] for each in streams] == [
                f"recorder:things:{n}/4" for n in range(1, 5)
            ]
            owners = Counter(each["owner"].split(":")[1] for each in streams)
            assert owners == {str(each.process.pid): 2 for each in (first, second)}
            second.kill()
            wait_until(lambda: shares(database, 4, first) == [4], within_s=GENEROUS_S)
            writer.more(100)
        with running_gateway(*start, command="record") as third:
            wait_until(lambda: shares(database, 4, first, third) == [2, 2], within_s=GENEROUS_S)
            writer.more(100)
            token = first.query("{ resumeToken }")["resumeToken"]
            query = f'{{ thingsAsOf(asOf: {{ token: "{token}" }}) {{ nodes {{ version }} }} }}'
            past = sum(each["version"] for each in first.query(query)["thingsAsOf"]["nodes"])
            assert third.stop() == 0
            wait_until(lambda: shares(database, 4, first) == [4], within_s=GENEROUS_S)
            writer.more(100)
    with running_gateway(*start, command="record"):
        writer.assert_recorded(database)
    # Two processes recorded at that time, and the read has all of their versions.
    by_then = {"at": {"$lte": resume_tokens.cluster_time(token)}}
    assert past == database["things.versions"].count_documents(by_then)
    assert_nothing_wrong(mongo_uri, database, schema)


def test_the_number_of_partitions_may_change_in_a_rolling_restart(
    mongo_uri: str, database: Shop, tmp_path: Path
) -> None:
    """Processes of both numbers are alive: the newest one decides.

    No write is lost, repeated or read again, and no reader waits for partitions that no longer
    exist.
    """
    undivided, divided, halves = (model(tmp_path, count) for count in (1, 4, 2))
    writer = Writer(database)
    with running_gateway(mongo_uri, database.name, undivided, *LEASE) as one:
        with repeat_in_background(writer.write, 0.003):
            writer.more(50)
            wait_until(lambda: shares(database, 1, one) == [1], within_s=GENEROUS_S)
            with running_gateway(mongo_uri, database.name, divided, *LEASE) as other:
                wait_until(lambda: shares(database, 4, other) == [4], within_s=GENEROUS_S)
                assert shares(database, 1, one) == [0]
                writer.more(100)
                # Its model has another number, but it knows the archive's position all the same.
                token = one.query("{ resumeToken }")["resumeToken"]
                one.query(f'{{ thingsAsOf(asOf: {{ token: "{token}" }}) {{ nodes {{ id }} }} }}')
                assert other.stop() == 0
            wait_until(lambda: shares(database, 1, one) == [1], within_s=GENEROUS_S)
            writer.more(50)
            with running_gateway(mongo_uri, database.name, halves, *LEASE) as last:
                wait_until(lambda: shares(database, 2, last) == [2], within_s=GENEROUS_S)
                writer.more(50)
                one.kill()
                writer.more(50)
        with running_gateway(mongo_uri, database.name, halves, *LEASE):
            writer.assert_recorded(database)
    stored = {each["_id"] for each in database["revstream.checkpoints"].find()}
    assert stored == {"recorder:things:1/2", "recorder:things:2/2"}
    assert_nothing_wrong(mongo_uri, database, halves)
