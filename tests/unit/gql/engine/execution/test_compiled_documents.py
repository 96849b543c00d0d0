"""Compiled documents: valid ones are rendered without objects, others as by graphql-core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson.int64 import Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from revstream.gql.engine.execution import compiled_documents
from tests.support.exhaustive import examples
from tests.support.reads import Memory
from tests.unit.gql.engine.execution.test_compiled_query import (
    by_graphql_core,
    by_the_schema,
    response_json,
)
from tests.unit.gql.engine.request.test_plan import BAD, GOOD, SUPPLIERS, memories

FIELDS = """
  id version name sku price stock sold rating listed colour tags addedAt __typename
  supplier { id name country } again: supplier { name }
"""
PAGE = f"{{ products {{ nodes {{ {FIELDS} }} pageInfo {{ hasNextPage }} totalCount }} }}"
EDGES = f"{{ products(first: 2) {{ edges {{ cursor node {{ {FIELDS} }} }} }} }}"
ONE = f'{{ product(id: "p1") {{ {FIELDS} }} none: product(id: "none") {{ name }} }}'
PLAIN = """{
  products { nodes { id version name tags addedAt } }
  product(id: "p1") { id version name tags addedAt } named: product(id: "p2") { name: sku }
}"""
BOTH = "{ products { nodes { name } edges { node { sku } } more: nodes { price } } }"


def usual() -> Memory:
    memory = Memory()
    memory.knowing = True
    memory.write("suppliers", {"_id": SUPPLIERS[0], "name": "Nord", "country": None})
    for number in range(3):
        memory.write("products", {"_id": f"p{number + 1}", **GOOD, "rating": 4, "sold": 7})
    # Missing, like fields that were never written.
    del memory.documents["products"][0]["colour"]
    return memory


@pytest.mark.parametrize("text", [PAGE, EDGES, ONE, PLAIN])
async def test_valid_documents_are_rendered_without_objects(
    schema: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """No source object is created for a document."""
    memory = usual()
    expected = None
    for _ in range(2):
        expected = await schema.execute(text, None, memory.context())
    assert expected is not None
    assert expected.errors is None

    def fail_if_created(*_: object) -> None:
        raise AssertionError("an object was made of a document")

    monkeypatch.setattr(compiled_documents, "CurrentDocument", fail_if_created)
    for _ in range(2):
        found = await schema.execute(text, None, memory.context())
        assert response_json(found.data, found.errors) == response_json(expected.data, None)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=memories(),
    texts=st.lists(st.sampled_from([PAGE, EDGES, ONE, BOTH, PLAIN]), min_size=1, max_size=3),
    knowing=st.booleans(),
)
def test_documents_are_rendered_as_by_graphql_core(
    schema: Any, make: Callable[[], Memory], texts: list[str], knowing: bool
) -> None:
    """The valid documents of a page are equal, too, and each error occurs once."""
    expected = {text: by_graphql_core(schema, make(), text, {}) for text in texts}
    for text in 3 * texts:
        memory = make()
        memory.knowing = knowing
        assert by_the_schema(schema, memory, text, {}) == expected[text]


@settings(max_examples=examples(100), deadline=None)
@given(
    changed=st.dictionaries(
        st.sampled_from(["_id", *sorted(GOOD)]), st.sampled_from([*BAD, Int64(3), "p1"]), max_size=3
    )
)
def test_a_compiled_query_renders_any_document_as_graphql_core(
    schema: Any, changed: dict[str, Any]
) -> None:
    """The plan was created with valid documents."""
    by_the_schema(schema, usual(), PAGE, {})

    def make() -> Memory:
        memory = usual()
        memory.documents["products"][1].update(changed)
        return memory

    assert by_the_schema(schema, make(), PAGE, {}) == by_graphql_core(schema, make(), PAGE, {})
