"""Counters that leave no room, and numbers beyond GraphQL's Int: they harm no other document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import Int64
from pymongo import MongoClient

from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
COUNTERS = (2**31 - 1, 2**31, Int64(2**63 - 1), 2.0**40, float("nan"), -5, "x", [7], None)


@pytest.fixture
def database(client: Client) -> Iterator[str]:
    name = f"numbers_{uuid4().hex[:8]}"
    yield name
    client.drop_database(name)


@pytest.fixture
def gateway(
    mongo_uri: str, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as running:
        yield running


def test_a_counter_that_leaves_no_room_is_not_counted_on_from(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The archive counts by itself; pages, lookups and mutations of that document work as ever."""
    things = client[database]["things"]
    for index, counter in enumerate(COUNTERS):
        things.insert_one({"_id": f"t{index}", "name": "1", "version": counter})
        things.update_one({"_id": f"t{index}"}, {"$set": {"name": "2"}})
    now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
    query = """query($now: TimePoint!) {
      thingsAsOf(asOf: $now) { nodes { version } }
      thingVersions(first: 50) { nodes { documentId version } }
      things(first: 50) { nodes { id version } }
    }"""
    for _ in range(2):
        # The second time as it was compiled.
        data = gateway.query(query, now=now)
        assert [each["version"] for each in data["thingsAsOf"]["nodes"]] == [2] * len(COUNTERS)
        assert {each["version"] for each in data["thingVersions"]["nodes"]} == {1, 2}
        assert [each["version"] for each in data["things"]["nodes"]] == [2] * len(COUNTERS)
    for index in range(len(COUNTERS)):
        written = gateway.query(
            """mutation($id: ID!) {
              blind: updateThing(id: $id, patch: { name: "3" }) { ...W }
              compared: updateThing(id: $id, patch: { name: "4" }, expectedVersion: 3) { ...W }
            } fragment W on ThingWrite { __typename ... on ThingWritten { version } }""",
            id=f"t{index}",
        )
        assert [each.get("version") for each in written.values()] == [3, 4], (index, written)


def test_a_number_beyond_int_is_an_error_of_that_version_alone(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """As an archive may have them that was counted otherwise: the others are on the page."""
    client[database]["things"].insert_many([{"_id": "good"}, {"_id": "far"}])
    now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
    gateway.query("query($now: TimePoint!) { thingsAsOf(asOf: $now) { totalCount } }", now=now)
    client[database]["things.versions"].update_one({"doc": "far"}, {"$set": {"v": Int64(2**31)}})
    query = """query($now: TimePoint!) {
      thingVersions { nodes { documentId version } totalCount }
      thingsAsOf(asOf: $now) { edges { node { documentId v: version } } }
      thing(id: "good") { version }
    }"""
    for _ in range(2):
        answer = gateway.post(query, now=now)
        data = answer["data"]
        assert data["thingVersions"] == {
            "nodes": [{"documentId": "good", "version": 1}],
            "totalCount": 2,
        }
        assert data["thingsAsOf"]["edges"] == [{"node": {"documentId": "good", "v": 1}}]
        assert data["thing"] == {"version": 1}
        facts = [(each["extensions"]["code"], each["path"][-1]) for each in answer["errors"]]
        assert sorted(facts) == [("DOCUMENT_MISFIT", "v"), ("DOCUMENT_MISFIT", "version")]
        assert {each["extensions"]["documentId"] for each in answer["errors"]} == {"far"}
