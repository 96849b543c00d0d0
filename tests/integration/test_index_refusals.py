"""Writes that an index refuses: an error of the document, and a result of the mutation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Place @collection(name: "places") {
  id: ID!
  at: JSON
  flat: JSON
  language: String
  title: String
  tags: JSON
  sizes: JSON
}
type Reading @collection(name: "readings") { id: ID! n: Int! @fence at: JSON }
"""
OUTSIDE = {"type": "Point", "coordinates": [500, 500]}


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    places = client[database]["places"]
    places.create_index([("at", "2dsphere")])
    places.create_index([("flat", "2d")])
    places.create_index([("title", "text")])
    places.create_index([("tags", "hashed")])
    places.create_index([("sizes.a", 1), ("sizes.b", 1)])
    client[database]["readings"].create_index([("at", "2dsphere")])
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, database, model) as running:
        yield running


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ({"at": OUTSIDE}, "a 2dsphere index"),
        ({"at": "here"}, "a 2dsphere index"),
        ({"at": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}}, "a 2dsphere index"),
        ({"flat": [500, 500]}, "a 2d index"),
        ({"flat": [1]}, "a 2d index"),
        ({"flat": ["x", "y"]}, "a 2d index"),
        ({"flat": []}, None),
        ({"title": "x", "language": "klingon"}, "a text index"),
        ({"tags": ["a"]}, "a hashed index"),
        ({"sizes": {"a": [1], "b": [2]}}, "an index over several fields"),
    ],
)
def test_a_document_that_an_index_refuses_is_invalid(
    gateway: RunningGateway, client: Client, database: str, given: dict[str, Any], index: str | None
) -> None:
    """Creations, replacements and updates are refused; the message has the kind of index."""
    answer = gateway.query(
        """mutation($document: PlaceInput!, $patch: PlacePatch!) {
          good: createPlace(document: {}) { ...R }
          createPlace(id: "bad", document: $document) { ...R }
          first: createPlace(id: "there", document: {}) { ...R }
          updatePlace(id: "there", patch: $patch) { ...R }
          replacePlace(id: "there", document: $document) { ...R }
        } fragment R on PlaceWrite { __typename ... on WriteError { message } }""",
        document=given,
        patch=given,
    )
    client[database]["places"].delete_many({})
    for name in ("createPlace", "updatePlace", "replacePlace"):
        if index is None:
            assert answer[name]["__typename"] == "PlaceWritten"
            continue
        assert answer[name]["__typename"] == "InvalidDocument", answer[name]
        assert f"has a value that an index does not support, {index}: " in answer[name]["message"]


def test_an_event_that_an_index_refuses_is_invalid(gateway: RunningGateway) -> None:
    """A single event and one in a batch are refused, with an error in the result."""
    alone = gateway.query(
        'mutation($d: ReadingInput!) { applyReading(id: "r", document: $d) { __typename } }',
        d={"n": 1, "at": OUTSIDE},
    )
    assert alone["applyReading"]["__typename"] == "InvalidDocument"
    batch = gateway.post(
        "mutation($e: [ReadingEvent!]!) { applyReadings(events: $e) { applied } }",
        e=[{"id": "a", "document": {"n": 1}}, {"id": "r", "document": {"n": 1, "at": OUTSIDE}}],
    )
    [error] = batch["errors"]
    assert error["extensions"]["code"] == "BAD_USER_INPUT"
    assert (
        "one document has a value that an index does not support, a 2dsphere index"
        in error["message"]
    )
