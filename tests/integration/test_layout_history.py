"""A long version history, written by another program in each classic layout, is read back exactly
through GraphQL; half of it was there before the gateway.

Each layout has the history of other documents; REVSTREAM_TEST_WHOLE=1 uses all of it in each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.history import FIELDS, HISTORY, MODEL, WHOLE, Event, api_body, same_json
from tests.support.layouts import CLASSIC, Program, program

Client = MongoClient[dict[str, Any]]
PAGE = """
query Page($after: String) {
  featureVersions(first: 500, after: $after) {
    totalCount
    pageInfo { hasNextPage endCursor }
    nodes { documentId version operation gap document { FIELDS } }
  }
}
""".replace("FIELDS", FIELDS)
PRESENT = """
query Present {
  features(first: 1000) { totalCount nodes { id version FIELDS } }
}
""".replace("FIELDS", FIELDS)
_PARTS = 6
AS_OF = "query($at: TimePoint!) { featuresAsOf(asOf: $at, first: 1) { totalCount } }"


@pytest.fixture(params=representatives(CLASSIC, "SEPARATE", "DELTAS"))
def history(request: pytest.FixtureRequest) -> str:
    """Return the layout."""
    return str(request.param)


@pytest.fixture
def events(history: str) -> list[Event]:
    """Return the writes for the layout."""
    if WHOLE:
        return HISTORY
    documents = sorted({each.doc for each in HISTORY})
    some = set(documents[CLASSIC.index(history) % _PARTS :: _PARTS])
    return [each for each in HISTORY if each.doc in some]


@pytest.mark.timeout(600)
async def test_every_version_of_a_history_is_read_back_exactly(
    history: str,
    events: list[Event],
    mongo_uri: str,
    client: Client,
    database_name: str,
    tmp_path: Path,
) -> None:
    """Versions have their own numbers, current documents agree, and `verify` has no findings."""
    model = tmp_path / "schema.graphql"
    model.write_text(
        MODEL.replace("@collection(", f'@collection(history: {history}, version: "v", ')
    )
    # The many thousand writes need not wait for the disk.
    hasty = client.get_database(database_name, write_concern=WriteConcern(w=1))
    others = program(history, hasty, "features")
    half = len(events) // 2
    write(others, events[:half])
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        # The oplog does not contain these writes.
        now = resume_tokens.token_from_time(await mongo.operation_time())
        begun = Checkpoint(now, now, Baseline())
        await Checkpoints(mongo).save("recorder:features", begun, fencing_token=0)
    with running_gateway(
        mongo_uri, database_name, model, "--archive-wait-s", "20", "--read-limit-s", "60"
    ) as gateway:
        write(others, events[half:])
        client[database_name]["unrelated"].insert_one({})
        wait_until(lambda: has_read(gateway), within_s=300)
        now_there = gateway.query("{ resumeToken }")["resumeToken"]
        wait_until(lambda: has_archived(gateway, now_there), within_s=300)
        check_versions(gateway, events)
        check_present(gateway, events)
        where = ("--mongodb-uri", mongo_uri, "--database", database_name, "--schema", str(model))
        ended = run_command("verify", *where)
        assert ended.returncode == 0, ended.stdout
        assert f"{len(events):,} versions" in ended.stdout


def has_read(gateway: RunningGateway) -> bool:
    """Return whether the initial snapshot is done; documents after its position have no history."""
    [found] = gateway.query("{ streams { state } }")["streams"]
    return found["state"] == "recording"


def has_archived(gateway: RunningGateway, token: str) -> bool:
    """Return whether the archive has reached the token, which may take longer than one request."""
    errors = gateway.post(AS_OF, at={"token": token}).get("errors", [])
    codes = [each["extensions"]["code"] for each in errors]
    assert codes in ([], ["ARCHIVE_BEHIND"])
    return not codes


def write(others: Program, events: list[Event]) -> None:
    for event in events:
        assert others.write(event.doc, event.body) == event.seq


def check_versions(gateway: RunningGateway, events: list[Event]) -> None:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    after = None
    while True:
        page = gateway.query(PAGE, after=after)["featureVersions"]
        assert page["totalCount"] == len(events)
        found |= {(each["documentId"], each["version"]): each for each in page["nodes"]}
        if not page["pageInfo"]["hasNextPage"]:
            break
        after = page["pageInfo"]["endCursor"]
    assert len(found) == len(events)
    for event in events:
        version = found[event.doc, event.seq]
        assert same_json(version["document"], api_body(event.body)), f"{event.doc}@{event.seq}"
        assert (version["operation"] == "DELETE") is (event.body is None)
        assert version["gap"] is False


def check_present(gateway: RunningGateway, events: list[Event]) -> None:
    last = {event.doc: event for event in events}
    expected = {doc: each for doc, each in last.items() if each.body is not None}
    found = gateway.query(PRESENT)["features"]
    assert found["totalCount"] == len(found["nodes"]) == len(expected)
    for node in found["nodes"]:
        event = expected[node.pop("id")]
        assert node.pop("version") == event.seq
        assert same_json(node, api_body(event.body))
