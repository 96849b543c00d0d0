"""Documents that a driver would decode as objects: the same in all reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from bson import Code
from pymongo import MongoClient

from tests.support.gateway import run_command, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") { id: ID! sub: Sub data: JSON }
type Sub { x: Int name: String }
"""


def test_documents_with_the_form_of_a_db_reference_are_documents(
    mongo_uri: str, client: Client, tmp_path: Path
) -> None:
    """Current documents, history, diffs and mutations agree; `verify` has no findings."""
    database = f"shapes_{uuid4().hex[:8]}"
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    things = client[database]["things"]
    reference = {"$ref": "users", "$id": 1, "x": 5, "name": "n"}
    try:
        with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as gateway:
            things.insert_one({"_id": "d", "sub": reference})
            things.update_one({"_id": "d"}, {"$set": {"sub.x": 6}})
            things.insert_one({"_id": "plain", "data": {"$ref": "users", "$id": 1}})
            things.update_one({"_id": "plain"}, {"$set": {"data.y": 1}})
            things.insert_one({"_id": "code", "data": Code("return x", {"x": 1})})
            things.insert_one({"_id": {"$ref": "users", "$id": 1}})
            now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
            answer = gateway.query(
                """query($now: TimePoint!) {
                  then: thingVersion(id: "d", asOf: $now) { document { sub { x name } } }
                  thing(id: "d") {
                    sub { x name }
                    history { nodes { changedFields diff { path } document { sub { x name } } } }
                  }
                  plain: thing(id: "plain") { data diff(from: 1) { path after } }
                  things { nodes { id sub { x } data } }
                }""",
                now=now,
            )
            assert answer["thing"]["sub"] == {"x": 6, "name": "n"}
            assert answer["then"]["document"]["sub"] == {"x": 6, "name": "n"}
            newest, first = answer["thing"]["history"]["nodes"]
            assert (newest["changedFields"], newest["diff"]) == (["sub.x"], [{"path": "sub.x"}])
            assert first["document"] == {"sub": {"x": 5, "name": "n"}}
            assert answer["plain"]["data"] == {"$ref": "users", "$id": 1, "y": 1}
            assert answer["plain"]["diff"] == [{"path": "data.y", "after": 1}]
            written = gateway.query(
                """mutation { updateThing(id: "d", expectedVersion: 2, patch: { sub: { x: 7 } }) {
                  ... on ThingWritten { thing { sub { x name } } } } }"""
            )
            assert written["updateThing"]["thing"]["sub"] == {"x": 7, "name": "n"}
            stored = list(things.find_one({"_id": "d"}, {"sub": 1})["sub"].as_doc())  # type: ignore[index]
            assert stored == ["$ref", "$id", "x", "name"]
            assert gateway.stop() == 0
        place = ("--mongodb-uri", mongo_uri, "--database", database, "--schema", str(model))
        verified = run_command("verify", *place)
        assert verified.returncode == 0, verified.stdout
    finally:
        client.drop_database(database)
