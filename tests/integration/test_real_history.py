"""A long version history, written by another program, is read back exactly through GraphQL.

One parameter uses all of it, the other kinds of writes its first third; REVSTREAM_TEST_WHOLE=1 uses
all of it for each.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support.exhaustive import scaled
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.history import (
    FIELDS,
    HISTORY,
    MODEL,
    WHOLE,
    Event,
    api_body,
    replay,
    same_json,
)

Client = MongoClient[dict[str, Any]]
PAGE = """
query Page($after: String) {
  featureVersions(first: 500, after: $after) {
    totalCount
    pageInfo { hasNextPage endCursor }
    nodes {
      documentId version operation at until author comment gap resumeToken
      document { FIELDS }
    }
  }
}
""".replace("FIELDS", FIELDS)
AS_OF = """
query AsOf($at: TimePoint!) {
  featuresAsOf(asOf: $at, first: 1000) {
    totalCount
    nodes { documentId version document { FIELDS } }
  }
}
""".replace("FIELDS", FIELDS)

SOME = HISTORY if WHOLE else scaled(all=HISTORY[: len(HISTORY) // 3], fast=HISTORY[:600])


@pytest.fixture(params=["FULL", "DELTA"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the model of the history's documents."""
    path = tmp_path / "schema.graphql"
    path.write_text(MODEL.replace("@collection(", f"@collection(storage: {request.param}, "))
    return path


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("model", "driver", "images", "events"),
    [("FULL", "motor", "--images", HISTORY), ("DELTA", "pymongo", "--no-images", SOME)],
    ids=["FULL", "DELTA"],
    indirect=["model"],
)
def test_every_version_of_a_history_written_under_revstream_is_read_back_exactly(
    mongo_uri: str,
    database_name: str,
    model: Path,
    driver: str,
    images: str,
    events: list[Event],
) -> None:
    """Each version equals its body, with post-images or deltas, in either storage kind."""
    with running_gateway(
        mongo_uri, database_name, model, "--driver", driver, images, "--archive-wait-s", "60"
    ) as gateway:
        replay(mongo_uri, database_name, len(events))
        _check_everything(gateway, events)
        _verify(mongo_uri, database_name, model, events)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", ["DELTA"], indirect=True)
def test_writes_before_the_first_start_have_their_whole_history(
    mongo_uri: str, database_name: str, model: Path
) -> None:
    """Half of the history is written before the first start, the rest during it."""
    half = len(SOME) // 2
    replay(mongo_uri, database_name, half)
    with running_gateway(mongo_uri, database_name, model, "--archive-wait-s", "60") as gateway:
        replay(mongo_uri, database_name, len(SOME), start=half)
        _check_everything(gateway, SOME)
        _verify(mongo_uri, database_name, model, SOME)


def _verify(uri: str, database: str, model: Path, events: list[Event]) -> None:
    """Check that the command `verify` has no findings."""
    where = ("--mongodb-uri", uri, "--database", database, "--schema", str(model))
    ended = run_command("verify", *where)
    assert ended.returncode == 0, ended.stdout
    assert f"{len(events):,} versions" in ended.stdout


def _check_everything(gateway: RunningGateway, events: list[Event]) -> None:
    now = gateway.query("{ resumeToken }")["resumeToken"]
    # Wait for the recorder.
    gateway.query(AS_OF, at={"token": now})
    versions = _versions(gateway, len(events))
    assert len(versions) == len(events)
    by_key = {(each["documentId"], each["version"]): each for each in versions}
    assert len(by_key) == len(events)
    for event in events:
        _check_version(event, by_key[event.doc, event.seq])
    _check_chains(versions, events)
    _check_moments(gateway, by_key, events)


def _versions(gateway: RunningGateway, count: int) -> list[dict[str, Any]]:
    """Return all versions, oldest first."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = gateway.query(PAGE, after=after)["featureVersions"]
        found += page["nodes"]
        assert page["totalCount"] == count
        if not page["pageInfo"]["hasNextPage"]:
            return found[::-1]
        after = page["pageInfo"]["endCursor"]


def _check_version(event: Event, version: dict[str, Any]) -> None:
    assert same_json(version["document"], api_body(event.body)), f"{event.doc}@{event.seq}"
    assert (version["operation"] == "DELETE") is (event.body is None)
    assert version["author"] is None
    assert version["comment"] is None
    assert version["gap"] is False


def _check_chains(versions: list[dict[str, Any]], events: list[Event]) -> None:
    """Check that each version is valid until the next one of its document, without hole or
    overlap.
    """
    last: dict[str, dict[str, Any]] = {}
    for version in versions:
        before = last.get(version["documentId"])
        assert version["version"] == (1 if before is None else before["version"] + 1)
        assert before is None or before["until"] == version["at"]
        last[version["documentId"]] = version
    assert all(version["until"] is None for version in last.values())
    counts = Counter(each["documentId"] for each in versions)
    assert counts == Counter(each.doc for each in events)


def _check_moments(
    gateway: RunningGateway, by_key: dict[tuple[str, int], dict[str, Any]], events: list[Event]
) -> None:
    """Compare the collection at random time points with the history."""
    dice = random.Random(3)
    for index in sorted(dice.sample(range(len(events)), scaled(all=50, fast=10))):
        event = events[index]
        token = by_key[event.doc, event.seq]["resumeToken"]
        state: dict[str, Event] = {}
        for each in events[: index + 1]:
            state[each.doc] = each
        expected = {doc: each for doc, each in state.items() if each.body is not None}
        found = gateway.query(AS_OF, at={"token": token})["featuresAsOf"]
        assert found["totalCount"] == len(expected)
        assert {each["documentId"] for each in found["nodes"]} == set(expected)
        for node in found["nodes"]:
            event_then = expected[node["documentId"]]
            assert node["version"] == event_then.seq
            assert same_json(node["document"], api_body(event_then.body))
