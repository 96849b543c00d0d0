"""Tests of `gql.schema.entities.version_pages` and of compiled versions."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.gql.engine.request.source import VersionRecord
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.principal import Principal
from revstream.streams.core import resume_tokens
from revstream.streams.versioning.version import Version
from tests.support.reads import DEPLOYMENT, Memory, at
from tests.unit.gql.engine.request.test_plan import GOOD

# The query is compiled from its second execution on.
TIMES = 3


@pytest.fixture
def memory() -> Memory:
    """Store three versions of a product."""
    memory = Memory()
    for stock in range(3):
        memory.write("products", {"_id": "p1", **GOOD, "stock": stock})
    return memory


async def test_versions_are_rendered_from_their_records(
    model: Model, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object is created for a record."""
    schema = build_schema(model)
    text = """query($token: ResumeToken!, $id: ID!) {
      product(id: $id) { history(first: 2) {
        nodes { id at until document { id stock } diff { path } } pageInfo { hasNextPage }
      } }
      productVersions { edges { node { documentId operation changedFields resumeToken } } }
      productsAsOf(asOf: {token: $token}) { nodes { version document { name addedAt } } }
      productStates(asOf: {token: $token}) { nodes { id documentId version name addedAt } }
    }"""
    variables = {
        "token": resume_tokens.encode(resume_tokens.token_from_time(at(1)), DEPLOYMENT),
        "id": "p1",
    }
    expected = await schema.execute(text, variables, memory.context())
    assert expected.errors is None
    for _ in range(TIMES):
        await schema.execute(text, variables, memory.context())
    monkeypatch.setattr(Version, "from_record", None)
    monkeypatch.setattr(VersionRecord, "__init__", None)
    result = await schema.execute(text, variables, memory.context())
    assert (result.data, result.errors) == (expected.data, None)
    assert result.data is not None
    assert len(result.data["productVersions"]["edges"]) == 3


async def test_references_of_a_time_point_are_one_read(model: Model) -> None:
    """One call reads the documents to which a page refers, and renders no record of them."""
    schema = build_schema(model)
    memory = Memory()
    memory.write("suppliers", {"_id": GOOD["supplierId"], "name": "Nord", "country": "DE"})
    for number in range(5):
        memory.write("products", {"_id": f"p{number}", **GOOD})
    text = """query($at: TimePoint!) {
      productStates(asOf: $at) { nodes { id supplier { id name } } }
      productsAsOf(asOf: $at) { nodes { document { supplier { id name } } } }
    }"""
    token = resume_tokens.encode(resume_tokens.token_from_time(at(9)), DEPLOYMENT)
    supplier = {"id": f"{GOOD['supplierId']}@1", "name": "Nord"}
    for _ in range(TIMES):
        memory.calls.clear()
        result = await schema.execute(text, {"at": {"token": token}}, memory.context())
        assert result.errors is None
        assert result.data is not None
        nodes = [{"id": f"p{n}@1", "supplier": supplier} for n in reversed(range(5))]
        assert result.data["productStates"]["nodes"] == nodes
        assert result.data["productsAsOf"]["nodes"] == [{"document": {"supplier": supplier}}] * 5
    assert [(name, count) for name, _, count, *_ in memory.calls if name == "as_of"] == [
        ("as_of", 1)
    ] * 2
    assert not [each for each in schema.operations.fallbacks.counts if each[0] == "query"]


async def test_each_selection_renders_its_own_fields_of_the_same_versions(
    model: Model, memory: Memory
) -> None:
    """Earlier selections have no effect."""
    schema = build_schema(model)
    texts = {
        "{ productVersions(first: 2) { nodes { n: version } } }": [{"n": 3}, {"n": 2}],
        "{ productVersions(first: 2) { nodes { m: version } } }": [{"m": 3}, {"m": 2}],
        "{ productVersions(first: 2) { nodes { diff { after } } } }": [
            {"diff": [{"after": 2}]},
            {"diff": [{"after": 1}]},
        ],
        "{ productVersions(first: 2) { nodes { diff { before } } } }": [
            {"diff": [{"before": 1}]},
            {"diff": [{"before": 0}]},
        ],
    }
    for _ in range(TIMES):
        for text, nodes in texts.items():
            result = await schema.execute(text, None, memory.context())
            assert (result.data, result.errors) == ({"productVersions": {"nodes": nodes}}, None)


async def test_a_replaced_version_has_an_end_in_the_next_response(
    model: Model, memory: Memory
) -> None:
    """Its record is unchanged."""
    schema = build_schema(model)
    text = "{ productVersions(first: 2) { nodes { version until } } }"

    async def ends() -> list[Any]:
        result = await schema.execute(text, None, memory.context())
        assert result.errors is None
        assert result.data is not None
        return [*map(tuple, map(dict.values, result.data["productVersions"]["nodes"]))]

    for _ in range(TIMES):
        assert await ends() == [(3, None), (2, "2024-05-01T12:00:02.000Z")]
    memory.write("products", {"_id": "p1", **GOOD, "stock": 7})
    assert await ends() == [(4, None), (3, "2024-05-01T12:00:03.000Z")]


GUARDED = read_model("""
type Product @collection(name: "products") {
  id: ID! name: String! stock: Int! @access(read: ["keeper"])
}
""")


async def test_each_caller_gets_the_changes_of_readable_fields(memory: Memory) -> None:
    """Requests of other callers for the same versions have no effect."""
    schema = build_schema(GUARDED)
    text = "{ productVersions(first: 2) { nodes { changedFields diff { path } } } }"
    seen = {"changedFields": ["stock"], "diff": [{"path": "stock"}]}
    hidden: dict[str, Any] = {"changedFields": [], "diff": []}
    callers = (
        (Scope(None), seen),
        (Scope(GUARDED, Principal(name="ann", roles=frozenset({"keeper"}))), seen),
        (Scope(GUARDED, Principal(name="eve")), hidden),
    )
    for _ in range(TIMES):
        for scope, node in callers:
            context = memory.context()
            context.scope = scope
            result = await schema.execute(text, None, context)
            expected = {"productVersions": {"nodes": [node, node]}}
            assert (result.data, result.errors) == (expected, None)
