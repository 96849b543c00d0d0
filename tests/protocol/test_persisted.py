"""Persisted documents over HTTP and WebSockets."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from graphql import get_introspection_query
from pymongo.collection import Collection

from tests.support import http
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import TRANSPORT, open_socket

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
THING = '{ thing(id: "a") { name } }'
OTHER = '{ thing(id: "a") { id } }'
SERVED: dict[str, Any] = {"data": {"thing": {"name": "first"}}}


def test_a_hash_is_sufficient_for_a_document_that_was_sent(gateway: RunningGateway) -> None:
    """Apollo's clients send the hash, then hash and document, then the hash again."""
    query = THING + f" # {uuid4().hex}"
    hash_ = hashlib.sha256(query.encode()).hexdigest()
    extensions = {"persistedQuery": {"version": 1, "sha256Hash": hash_}}

    def ask(**given: Any) -> dict[str, Any]:
        body = {"extensions": extensions, **given}
        answer: dict[str, Any] = http.post(f"{gateway.address}/graphql", json=body).json()
        return answer

    [error] = ask()["errors"]
    assert error["message"] == "PersistedQueryNotFound"
    assert error["extensions"]["code"] == "PERSISTED_QUERY_NOT_FOUND"
    assert ask(query=query) == SERVED
    assert ask() == SERVED


async def test_only_trusted_documents_are_executed_if_there_are_any(
    mongo_uri: str, things: Collection[dict[str, Any]], tmp_path: Path
) -> None:
    """They are named or sent as text, over HTTP and WebSockets.

    Introspection is refused as well, which is disabled here.
    """
    path, model = tmp_path / "manifest.json", tmp_path / "schema.graphql"
    model.write_text(MODEL)
    path.write_text(
        json.dumps(
            {
                "first": THING,
                "schema": "{ __schema { types { name } } }",
                "wrong": "{ thing(id: 5) { nmae } }",
                "variable": "query($w: ThingWhere) { things(where: $w) { totalCount } }",
            }
        )
    )
    options = ("--no-record", "--trusted-documents", str(path), "--no-introspection")
    with running_gateway(mongo_uri, things.database.name, model, *options) as gateway:

        def ask(name: str | None = None, **body: Any) -> dict[str, Any]:
            if name is not None:
                body["extensions"] = {"persistedQuery": {"version": 1, "sha256Hash": name}}
            answer: dict[str, Any] = http.post(f"{gateway.address}/graphql", json=body).json()
            return answer

        assert ask("first") == ask(query=THING) == SERVED
        for answer in (
            ask("none"),
            ask(query=OTHER),
            ask("first", query=OTHER),
            ask(query=get_introspection_query()),
        ):
            assert answer["errors"][0]["extensions"]["code"] == "FORBIDDEN", answer
            assert "data" not in answer or answer["data"] is None
        [error] = ask("schema")["errors"]
        assert "introspection is disabled" in error["message"]
        # Suggestions do not reveal names either, in documents and in variables.
        for name, variables in (("wrong", {}), ("variable", {"w": {"nmae": {"eq": 1}}})):
            [error] = ask(name, variables=variables)["errors"]
            assert "nmae" in error["message"]
            assert "Did you mean" not in error["message"]
        for page in ("schema.graphql", "examples.json"):
            assert http.get(f"{gateway.address}/{page}").status_code == 404
        async with open_socket(gateway.address, TRANSPORT) as socket:
            assert await socket.data(THING) == SERVED["data"]
            [error] = await socket.errors(OTHER)
            assert error["extensions"]["code"] == "FORBIDDEN"
