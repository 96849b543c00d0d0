"""No input of a client reaches MongoDB as an operator: drawn operations run against a gateway, and
every command to the server is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from graphql import GraphQLSchema, build_schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from tests.support import http
from tests.support.beginning import begin_new
from tests.support.exhaustive import examples
from tests.support.fuzzing import CANARY, drawn_operation
from tests.support.gateway import ROOT, RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

COMPARES = {"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"}
"""Operators of a filter whose operands are always values."""
CODES = {
    "BAD_USER_INPUT", "LIMIT_EXCEEDED", "ARCHIVE_BEHIND", "HISTORY_LOST", "RESUME_TOKEN_INVALID",
    "DOCUMENT_MISFIT", "TIMEOUT", "UNAUTHENTICATED",
}  # fmt: skip


@pytest.fixture(scope="module")
def database(mongo_uri: str, client: Client) -> Iterator[str]:
    """Return a database for all tests of the module, whose commands are logged."""
    name = f"operators_{uuid4().hex[:8]}"
    begin_new(mongo_uri, name, ROOT / "schema.graphql")
    client[name].create_collection("system.profile", capped=True, size=400 * 1024 * 1024)
    supplier = ObjectId("0" * 24)
    client[name].suppliers.insert_one({"_id": supplier, "name": CANARY, "country": "DE"})
    for number in (1, 2):
        client[name].products.insert_one(_product(f"p{number}", supplier))
    yield name
    client[name].command("profile", 0)
    client.drop_database(name)


def _product(id_: str, supplier: ObjectId) -> dict[str, Any]:
    return {
        "_id": id_,
        "sku": f"{CANARY}{id_}",
        "name": CANARY,
        "price": 1,
        "stock": 5,
        "tags": [CANARY],
        "supplierId": supplier,
        "attributes": {CANARY: {"$gt": ""}, "a.b": [CANARY]},
        "version": 1,
    }


@pytest.fixture(scope="module")
def gateway(mongo_uri: str, client: Client, database: str) -> Iterator[RunningGateway]:
    """Run one gateway for all tests of the module; at the end it still runs, without internal
    errors, and no command that it sent contained an operator of a client.
    """
    options = ("--archive-wait-s", "20", "--read-limit-s", "10")
    with running_gateway(mongo_uri, database, ROOT / "schema.graphql", *options) as running:
        client[database].command("profile", 2)
        yield running
        check_commands(client[database])
        assert running.process.poll() is None
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture(scope="module")
def schema(gateway: RunningGateway) -> GraphQLSchema:
    return build_schema(http.get(f"{gateway.address}/schema.graphql").text)


def ask(gateway: RunningGateway, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    response = http.post(
        f"{gateway.address}/graphql",
        content=json.dumps({"query": query, "variables": variables}),
        headers={"content-type": "application/json"},
        timeout=60,
    )
    assert response.status_code < 500, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.timeout(0)
@given(data=st.data())
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_every_operation_gets_a_response(
    gateway: RunningGateway, schema: GraphQLSchema, data: st.DataObject
) -> None:
    """Any field with any arguments causes neither an internal error nor a hanging request."""
    kind = data.draw(st.sampled_from(["query", "query", "mutation"]))
    query, variables = data.draw(drawn_operation(schema, kind))
    answer = ask(gateway, query, variables)
    for error in answer.get("errors") or ():
        assert error["extensions"]["code"] in CODES, (error, query, variables)


def test_saved_cursors_are_refused_without_authentication(gateway: RunningGateway) -> None:
    """A drawn query of them has one of the expected codes."""
    [error] = ask(gateway, "{ savedCursors { name } }", {})["errors"]
    assert error["extensions"]["code"] in CODES


VALUES: list[Any] = [
    CANARY,
    "$$ROOT",
    {CANARY: 1},
    {"$gt": ""},
    {"$set": {"name": "x"}, "a.b": [{"$literal": "$name"}], "": {".": 1}},
    {"$oid": "nonsense"},
    [{"$where": "sleep(1000)"}, "$name"],
]


def check_stored_unchanged(gateway: RunningGateway, value: Any) -> None:
    """Write a value with each mutation, with a comment, and read it."""
    fields = (
        "{ __typename ... on WriteError { message } "
        "... on ProductWritten { product { attributes name tags } } }"
    )
    document = {
        "sku": uuid4().hex, "name": "$name", "price": "1.5", "stock": 1, "tags": ["$tags", "$$NOW"],
        "attributes": {"held": value}, "addedAt": "2024-05-01T12:00:00Z",
    }  # fmt: skip
    shown = {"attributes": {"held": value}, "name": "$name", "tags": ["$tags", "$$NOW"]}
    id_ = f"{CANARY}{uuid4().hex}"

    def write(field: str, declared: str, **variables: Any) -> dict[str, Any]:
        arguments = ", ".join(f"{each}: ${each}" for each in ("id", "comment", *variables))
        head = f"mutation($id: ID!, $comment: String, {declared})"
        text = f"{head} {{ done: {field}({arguments}) {fields} }}"
        done: dict[str, Any] = gateway.query(text, id=id_, comment=CANARY, **variables)["done"]
        assert done["__typename"] == "ProductWritten", done
        return done["product"]

    made = write("createProduct", "$document: ProductInput!", document=document)
    assert made == shown
    patch = {"attributes": value if isinstance(value, dict) else {"now": value}, "name": "$sku"}
    changed = write("updateProduct", "$patch: ProductPatch!", patch=patch)
    assert changed["name"] == "$sku"
    for name, each in patch["attributes"].items():
        assert changed["attributes"][name] == each
    assert write("replaceProduct", "$document: ProductInput!", document=document) == shown
    assert write("restoreProduct", "$version: Int!", version=1) == shown
    found = gateway.query(
        "query($id: ID!, $w: ProductWhere) { products(where: $w) { nodes { id } } "
        "product(id: $id) { history(last: 1) { nodes { comment document { attributes } } } } }",
        id=id_,
        w={"name": {"startsWith": "$"}, "tags": {"has": "$tags"}, "id": {"eq": id_}},
    )
    assert found["products"]["nodes"] == [{"id": id_}]
    [first] = found["product"]["history"]["nodes"]
    assert first == {"comment": CANARY, "document": {"attributes": {"held": value}}}


@pytest.mark.parametrize("value", VALUES, ids=map(str, VALUES))
def test_values_that_look_like_operators_are_stored_unchanged(
    gateway: RunningGateway, value: Any
) -> None:
    """All mutations are covered, and so are author and comment."""
    check_stored_unchanged(gateway, value)


@pytest.mark.parametrize("text", [".*", "^", "(a+)+$", "[", "\\", "$", "a|b", "x\0y", "\\E.*"])
def test_a_search_text_is_not_a_pattern(
    gateway: RunningGateway, client: Client, database: str, text: str
) -> None:
    """It matches itself, and nothing that it would match as a regular expression."""
    mine = uuid4().hex
    for number, name in enumerate((f"{text}{mine}", f"aaaa{mine}", f"b{mine}{text}")):
        client[database].products.insert_one(
            {**_product(f"{mine}{number}", ObjectId()), "sku": f"{mine}{number}", "name": name}
        )
    query = "query($w: ProductWhere) { products(where: $w, orderBy: [{id: ASC}]) { nodes { id } } }"
    for operator, expected in (("startsWith", ["0"]), ("contains", ["0", "2"])):
        where = {"name": {operator: text}, "id": {"in": [f"{mine}{n}" for n in range(3)]}}
        nodes = gateway.query(query, w=where)["products"]["nodes"]
        assert nodes == [{"id": f"{mine}{each}"} for each in expected]


def test_commands_with_values_of_a_client_contain_no_operator_of_his(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Commands of recorders are included. The fixture checks those of the other tests."""
    for value in VALUES:
        check_stored_unchanged(gateway, value)
    assert check_commands(client[database]) > 20


def check_commands(database: Database[dict[str, Any]]) -> int:
    """Check all commands that the server has logged; return the number of those with a value of a
    client.
    """
    seen = 0
    for entry in database["system.profile"].find():
        command = entry.get("command", {})
        assert "$truncated" not in command, "draw shorter values, or this looks at nothing"
        seen += CANARY in str(command)
        smuggled = list(_operators(command))
        assert not smuggled, (smuggled, command)
    return seen


def test_the_check_for_operators_finds_them() -> None:
    """They are keys of a filter, and paths and operators of an expression."""
    bad: list[dict[str, Any]] = [
        {"find": "x", "filter": {"name": {CANARY: 1}}},
        {"find": "x", "filter": {"$or": [{"$expr": {"$eq": ["$a", CANARY]}}]}},
        {"aggregate": "x", "pipeline": [{"$match": {CANARY: 1}}]},
        {"aggregate": "x", "pipeline": [{"$set": {"a": CANARY}}]},
        {"update": "x", "updates": [{"q": {}, "u": [{"$set": {"a": {CANARY: 1}}}]}]},
        {"update": "x", "updates": [{"q": {}, "u": {"$set": {CANARY: 1}}}]},
        {"findAndModify": "x", "query": {"a": {CANARY: 1}}},
        {"q": {"_id": {CANARY: 1}}, "u": {}},
    ]
    assert all(list(_operators(each)) for each in bad)
    good: list[dict[str, Any]] = [
        {"find": "x", "filter": {"name": {"$gt": {CANARY: CANARY}}, "a": CANARY}},
        {"insert": "x", "documents": [{CANARY: CANARY}]},
        {"aggregate": "x", "pipeline": [{"$set": {"a": {"$literal": {CANARY: CANARY}}}}]},
        {"update": "x", "updates": [{"q": {}, "u": {"$set": {"a": {CANARY: CANARY}}}}]},
    ]
    assert not [found for each in good for found in _operators(each)]


def _operators(command: dict[str, Any]) -> Iterator[str]:
    """Yield the places where MongoDB would interpret a canary text."""
    for update in (command, *command.get("updates", ())):
        change = update.get("u", update.get("update"))
        if isinstance(change, list):
            yield from _obeyed(change, "u", expression=True)
        elif isinstance(change, dict) and any(each.startswith("$") for each in change):
            for operator, fields in change.items():
                yield from (f"u.{operator}.{each}" for each in fields if each.startswith(CANARY))
                yield from (f"u.{each}" for each in [operator] if each.startswith(CANARY))
        yield from _obeyed(update.get("q", {}), "q", expression=False)
    for delete in command.get("deletes", ()):
        yield from _obeyed(delete.get("q", {}), "q", expression=False)
    for name in ("filter", "query"):
        yield from _obeyed(command.get(name, {}), name, expression=False)
    for name in ("projection", "fields", "sort", "pipeline"):
        yield from _obeyed(command.get(name, {}), name, expression=True)


def _obeyed(value: Any, path: str, *, expression: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key.startswith(CANARY):
                yield f"{path}.{key}"
            elif key == "$literal" or (not expression and key in COMPARES):
                continue
            else:
                inner = {"$match": False, "$expr": True}.get(key, expression)
                yield from _obeyed(each, f"{path}.{key}", expression=inner)
    elif isinstance(value, list):
        for each in value:
            yield from _obeyed(each, path, expression=expression)
    elif expression and isinstance(value, str) and value.startswith(CANARY):
        yield path
