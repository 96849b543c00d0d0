"""Version fields at the limit of their type, and numbers beyond GraphQL's Int: they do not affect
other documents.
"""

from __future__ import annotations

from typing import Any

from bson import Int64
from pymongo import MongoClient

from tests.support.gateway import RunningGateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") { id: ID! name: String }
type Other @collection(name: "others") { id: ID! name: String }
"""
COUNTERS = (2**31 - 1, 2**31, Int64(2**63 - 1), 2.0**40, float("nan"), -5, "x", [7], None)


def test_a_version_field_at_its_limit_is_not_incremented(
    served: RunningGateway, client: Client, database: str
) -> None:
    """The archive counts by itself; pages, lookups and mutations of that document work."""
    things = client[database]["things"]
    for index, counter in enumerate(COUNTERS):
        things.insert_one({"_id": f"t{index}", "name": "1", "version": counter})
        things.update_one({"_id": f"t{index}"}, {"$set": {"name": "2"}})
    now = {"token": served.recorded("things")}
    query = """query($now: TimePoint!) {
      thingsAsOf(asOf: $now) { nodes { version } }
      thingVersions(first: 50) { nodes { documentId version } }
      things(first: 50) { nodes { id version } }
    }"""
    for _ in range(2):
        # The second time as a compiled query.
        data = served.query(query, now=now)
        assert [each["version"] for each in data["thingsAsOf"]["nodes"]] == [2] * len(COUNTERS)
        assert {each["version"] for each in data["thingVersions"]["nodes"]} == {1, 2}
        assert [each["version"] for each in data["things"]["nodes"]] == [2] * len(COUNTERS)
    for index in range(len(COUNTERS)):
        written = served.query(
            """mutation($id: ID!) {
              blind: updateThing(id: $id, patch: { name: "3" }) { ...W }
              compared: updateThing(id: $id, patch: { name: "4" }, expectedVersion: 3) { ...W }
            } fragment W on ThingWrite { __typename ... on ThingWritten { version } }""",
            id=f"t{index}",
        )
        assert [each.get("version") for each in written.values()] == [3, 4], (index, written)


def test_a_number_beyond_int_is_an_error_of_that_version_alone(
    served: RunningGateway, client: Client, database: str
) -> None:
    """An archive from elsewhere may contain it: the other versions are on the page."""
    client[database]["others"].insert_many([{"_id": "good"}, {"_id": "far"}])
    now = {"token": served.recorded("others")}
    client[database]["others.versions"].update_one({"doc": "far"}, {"$set": {"v": Int64(2**31)}})
    query = """query($now: TimePoint!) {
      otherVersions { nodes { documentId version } totalCount }
      othersAsOf(asOf: $now) { edges { node { documentId v: version } } }
      other(id: "good") { version }
    }"""
    for _ in range(2):
        answer = served.post(query, now=now)
        data = answer["data"]
        assert data["otherVersions"] == {
            "nodes": [{"documentId": "good", "version": 1}],
            "totalCount": 2,
        }
        assert data["othersAsOf"]["edges"] == [{"node": {"documentId": "good", "v": 1}}]
        assert data["other"] == {"version": 1}
        facts = [(each["extensions"]["code"], each["path"][-1]) for each in answer["errors"]]
        assert sorted(facts) == [("DOCUMENT_MISFIT", "v"), ("DOCUMENT_MISFIT", "version")]
        assert {each["extensions"]["documentId"] for each in answer["errors"]} == {"far"}
