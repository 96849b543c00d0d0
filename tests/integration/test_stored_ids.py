"""An id of the API finds its document, whatever type it is stored as, in every argument for ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId
from bson.binary import UUID_SUBTYPE
from pymongo import MongoClient

from tests.support.beginning import begin_new
from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Part @collection(name: "parts") {
  id: ID!
  name: String
  kitId: ID
  kit: Kit @reference(by: "kitId")
}
type Kit @collection(name: "kits") {
  id: ID!
  name: String
  parts: [Part!]! @referencedBy(field: "kitId")
}
"""
HEX = "0123456789abcdef01234567"
STORED: dict[str, Any] = {
    "text": "p-1",
    "an int": 5,
    "a long": Int64(2**40),
    "a double": 1.5,
    "a double that is no decimal": 0.1,
    "a large double": 2.0**70,
    "a decimal": Decimal128("2.50"),
    "a boolean": True,
    "an objectId": ObjectId(HEX),
    "a UUID": Binary(b"0123456789abcdef", UUID_SUBTYPE),
    "a date": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "a far date": DatetimeMS(10**15),
    "a document": {"shop": "a", "n": 1},
    "a document of ids": {"shop": ObjectId(HEX), "n": Int64(2**60), "on": "5"},
}


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway over parts and kits with ids of every type, in one collection each."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    begin_new(mongo_uri, database, model)
    for case, id_ in STORED.items():
        client[database]["kits"].insert_one({"_id": id_, "name": case})
        client[database]["parts"].insert_one({"_id": id_, "name": case, "kitId": id_})
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as running:
        yield running


@pytest.fixture
def shown(gateway: RunningGateway) -> dict[str, str]:
    """Return the API's id of each document."""
    data = gateway.query("{ kits(first: 100) { nodes { id name } } }")
    return {each["name"]: each["id"] for each in data["kits"]["nodes"]}


def now(gateway: RunningGateway) -> dict[str, str]:
    return {"token": gateway.query("{ resumeToken }")["resumeToken"]}


@pytest.mark.parametrize("case", STORED)
def test_reads_find_a_document_by_its_api_id(
    gateway: RunningGateway, shown: dict[str, str], case: str
) -> None:
    """It works by id, by node id, in lists, in history and in as-of reads, and if compiled."""
    node = gateway.query("query($id: ID!) { part(id: $id) { nodeId } }", id=shown[case])
    query = """query($id: ID!, $node: ID!, $now: TimePoint!) {
      part(id: $id) {
        id name history { nodes { documentId version } } state(version: 1) { documentId }
        kit { name }
      }
      node(nodeId: $node) { ... on Part { id } }
      parts(where: { id: { in: [$id] } }) { nodes { id } }
      kit(id: $id) { parts { nodes { id } totalCount } }
      numbered: partVersion(id: $id, version: 1) { documentId document { name } }
      then: partVersion(id: $id, asOf: $now) { documentId document { name kit { name } } }
      partVersions(where: { documentId: { eq: $id } }) { nodes { documentId } }
    }"""
    id_ = shown[case]
    for _ in range(2):
        # The second time as a compiled query.
        data = gateway.query(query, id=id_, node=node["part"]["nodeId"], now=now(gateway))
        part = data["part"]
        assert (part["id"], part["name"], part["kit"]) == (id_, case, {"name": case})
        assert part["state"] == {"documentId": id_}
        assert part["history"]["nodes"] == [{"documentId": id_, "version": 1}]
        assert data["node"] == {"id": id_}
        assert data["parts"]["nodes"] == [{"id": id_}]
        assert data["kit"]["parts"] == {"nodes": [{"id": id_}], "totalCount": 1}
        assert data["numbered"] == {"documentId": id_, "document": {"name": case}}
        assert data["then"]["documentId"] == id_
        assert data["then"]["document"] == {"name": case, "kit": {"name": case}}
        assert data["partVersions"]["nodes"] == [{"documentId": id_}]


@pytest.mark.parametrize(
    "case", representatives(STORED, "a double", "an objectId", "a date", "a document of ids")
)
async def test_writes_and_subscriptions_accept_the_api_id(
    gateway: RunningGateway, client: Client, database: str, shown: dict[str, str], case: str
) -> None:
    """Every mutation and draft uses the stored document, and creates none beside it."""
    kits, stored = client[database]["kits"], STORED[case]
    id_ = {"id": shown[case]}
    count = kits.count_documents({})

    async def followed() -> list[str]:
        changes = gateway.subscribe(
            """subscription($id: ID!) { kitChanges(id: $id, snapshot: true) {
              kind documentId operation } }""",
            **id_,
        )
        seen: list[str] = []
        written = False
        async with aclosing(changes) as events:
            async for event in events:
                change = event["kitChanges"]
                if change["kind"] == "CHECKPOINT":
                    if not written:
                        write()
                    written = True
                    continue
                assert change["documentId"] == shown[case]
                seen.append(change["operation"] or change["kind"])
                if len(seen) == 6:
                    return seen
        raise AssertionError("the subscription has ended")

    def write() -> None:
        data = gateway.query(
            """mutation($id: ID!) {
              update: updateKit(id: $id, patch: { name: "2" }) { ...W }
              replace: replaceKit(id: $id, document: { name: "3" }, expectedVersion: 2) { ...W }
              propose: proposeKit(id: $id, patch: { name: "4" }) {
                ... on KitDrafted { draft { number documentId } } }
              publish: publishKit(id: $id, draft: 1) { ...W }
              comment: commentOnKit(id: $id, version: 2, text: "why?") { documentId }
              again: proposeKit(id: $id, patch: { name: "5" }) { __typename }
              reject: rejectKit(id: $id, draft: 2) { __typename }
              delete: deleteKit(id: $id, expectedVersion: 4) { __typename }
              restore: restoreKit(id: $id, version: 1) { ...W }
            } fragment W on KitWrite { __typename ... on KitWritten { version kit { id } } }""",
            **id_,
        )
        for name, version in (("update", 2), ("replace", 3), ("publish", 4), ("restore", 6)):
            assert data[name] == {"__typename": "KitWritten", "version": version, "kit": id_}
        assert data["propose"]["draft"] == {"number": 1, "documentId": shown[case]}
        assert data["comment"] == {"documentId": shown[case]}
        assert data["reject"] == {"__typename": "KitDrafted"}
        assert data["delete"] == {"__typename": "KitWritten"}

    assert await followed() == ["SNAPSHOT", "UPDATE", "REPLACE", "UPDATE", "DELETE", "INSERT"]
    listed = gateway.query(
        """query($id: ID!) {
          kitDrafts(documentId: $id) { nodes { number } }
          kitComments(documentId: $id) { nodes { text } }
        }""",
        **id_,
    )
    assert [each["number"] for each in listed["kitDrafts"]["nodes"]] == [2, 1]
    assert listed["kitComments"]["nodes"] == [{"text": "why?"}]
    assert kits.count_documents({"_id": stored, "name": case}) == 1
    assert kits.count_documents({}) == count


def test_references_find_a_document_by_either_form_of_its_id(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """They are written as in the API, or as another program stores them.

    Back references and as-of reads work, too.
    """
    database_ = client[database]
    kit, text = ObjectId(), str(ObjectId())
    database_["kits"].insert_many([{"_id": kit, "name": "k"}, {"_id": text, "name": "t"}])
    gateway.query(
        """mutation($id: ID!) {
          createPart(id: "by-text", document: { name: "a", kitId: $id }) { __typename } }""",
        id=str(kit),
    )
    database_["parts"].insert_many(
        [
            {"_id": "by-id", "name": "b", "kitId": kit},
            {"_id": "to-text", "name": "c", "kitId": ObjectId(text)},
        ]
    )
    query = """query($kit: ID!, $other: ID!, $now: TimePoint!) {
      parts(where: { id: { in: ["by-text", "by-id", "to-text"] } }) { nodes { id kit { name } } }
      kit(id: $kit) { parts { nodes { id } } }
      other: kit(id: $other) { parts { nodes { id } } }
      partsAsOf(asOf: $now, where: { id: { in: ["by-text", "by-id", "to-text"] } }) {
        nodes { documentId document { kit { name } } } }
    }"""
    for _ in range(2):
        data = gateway.query(query, kit=str(kit), other=text, now=now(gateway))
        kits = {each["id"]: each["kit"]["name"] for each in data["parts"]["nodes"]}
        assert kits == {"by-text": "k", "by-id": "k", "to-text": "t"}
        assert {each["id"] for each in data["kit"]["parts"]["nodes"]} == {"by-text", "by-id"}
        assert data["other"]["parts"]["nodes"] == [{"id": "to-text"}]
        then = {e["documentId"]: e["document"]["kit"]["name"] for e in data["partsAsOf"]["nodes"]}
        assert then == kits


def test_of_two_equal_api_ids_the_declared_type_counts(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The other document is found after its deletion."""
    kits = client[database]["kits"]
    kits.insert_many([{"_id": "77", "name": "text"}, {"_id": 77, "name": "number"}])
    query = '{ kit(id: "77") { name } kits(where: { id: { eq: "77" } }) { nodes { name } } }'
    data = gateway.query(query)
    assert data["kit"] == {"name": "text"}
    assert {each["name"] for each in data["kits"]["nodes"]} == {"text", "number"}
    mutation = 'mutation { deleteKit(id: "77") { __typename } }'
    assert gateway.query(mutation) == {"deleteKit": {"__typename": "KitWritten"}}
    assert [each["name"] for each in kits.find({"_id": {"$in": [77, "77"]}})] == ["number"]
    assert gateway.query(query)["kit"] == {"name": "number"}


def test_equal_numbers_with_another_api_id_are_not_found(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """8 and 8.0 are equal in MongoDB, but a document has one id in the API."""
    client[database]["kits"].insert_one({"_id": Decimal128("8.0"), "name": "eight"})
    data = gateway.query('{ one: kit(id: "8.0") { id } other: kit(id: "8") { id } }')
    assert data == {"one": {"id": "8.0"}, "other": None}
    refused = gateway.query('mutation { updateKit(id: "8", patch: {name: "x"}) { __typename } }')
    assert refused == {"updateKit": {"__typename": "DocumentNotFound"}}


@pytest.mark.parametrize("text", ['{"$gt": 1}', '{"$minKey": 1}', "{", '{"a": ', "1e999", "-"])
def test_a_text_that_is_not_an_id_finds_nothing(gateway: RunningGateway, text: str) -> None:
    """It may look like an operator, a number or a document."""
    data = gateway.query(
        """query($id: ID!) {
          kit(id: $id) { id } kits(where: { id: { in: [$id] } }) { nodes { id } }
        }""",
        id=text,
    )
    assert data == {"kit": None, "kits": {"nodes": []}}
