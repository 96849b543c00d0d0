"""Resolution of to-one references, now and at the time point of their parent."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId

from revstream.streams.core import resume_tokens
from tests.support.reads import DEPLOYMENT, Memory, at
from tests.unit.gql.conftest import Ask

SUPPLIERS = [ObjectId(f"{n:024d}") for n in range(3)]


@pytest.fixture
def products(memory: Memory) -> None:
    """Insert fifty products of three suppliers.

    Then rename the first supplier and delete the last.
    """
    for n, id_ in enumerate(SUPPLIERS):
        memory.write("suppliers", {"_id": id_, "name": f"old {n}"})
    for n in range(50):
        memory.write("products", {"_id": f"p{n}", "supplierId": SUPPLIERS[n % 3], "origin": {}})
    memory.write("suppliers", {"_id": SUPPLIERS[0], "name": "new 0"})
    memory.write("suppliers", None, id_=SUPPLIERS[2])


def names(connection: dict[str, Any], *path: str) -> list[Any]:
    found = []
    for node in connection["nodes"]:
        for step in path:
            node = None if node is None else node[step]
        found.append(node)
    return found


@pytest.mark.usefixtures("products")
async def test_siblings_are_read_together(ask: Ask, memory: Memory) -> None:
    """Fifty references are one read, with each supplier once and the selected fields."""
    result = await ask("{ products(first: 50) { nodes { supplier { name } } } }")
    assert result.errors is None
    assert result.data is not None
    rendered = names(result.data["products"], "supplier", "name")
    assert rendered[:3] == ["new 0", "old 1", None]
    assert [(name, count, fields) for name, _, count, fields in memory.calls] == [
        ("page", 1, frozenset({"supplierId"})),
        ("by_ids", 3, frozenset({"name"})),
    ]


@pytest.mark.usefixtures("products")
async def test_references_below_an_as_of_root_are_at_its_time_point(
    ask: Ask, memory: Memory
) -> None:
    """The supplier was renamed after the products were written, but before that time point."""
    query = """
      query($token: ResumeToken!) {
        productsAsOf(asOf: {token: $token}, first: 50) {
          nodes { document { supplier { id name } } }
        }
      }
    """
    for second, first, last in (
        (52, "old 0", "old 2"),
        (53, "new 0", "old 2"),
        (54, "new 0", None),
    ):
        memory.calls.clear()
        token = resume_tokens.encode(resume_tokens.token_from_time(at(second)), DEPLOYMENT)
        result = await ask(query, token=token)
        assert result.errors is None
        assert result.data is not None
        rendered = names(result.data["productsAsOf"], "document", "supplier", "name")
        # Newest first: p49 has the second supplier, p48 the first, p47 the third.
        assert rendered[1:3] == [first, last]
        assert [name for name, *_ in memory.calls] == ["moment", "collection_as_of", "as_of"]


@pytest.mark.usefixtures("products")
async def test_references_below_a_version_are_at_its_own_time(ask: Ask, memory: Memory) -> None:
    """The supplier is as it was when the version was written."""
    result = await ask(
        '{ product(id: "p0") { history { nodes { document { supplier { id name } } } }'
        " supplier { name } } }"
    )
    assert result.errors is None
    assert result.data is not None
    product = result.data["product"]
    then = {"id": f"{SUPPLIERS[0]}@1", "name": "old 0"}
    assert names(product["history"], "document", "supplier") == [then]
    assert product["supplier"] == {"name": "new 0"}


async def test_an_invalid_id_is_an_error_of_the_reference(ask: Ask, memory: Memory) -> None:
    """Null would mean a deleted document."""
    memory.write("products", {"_id": "p", "supplierId": "not an ObjectId"})
    result = await ask('{ product(id: "p") { id supplier { name } } }')
    assert result.data == {"product": {"id": "p", "supplier": None}}
    assert result.errors is not None
    assert result.errors[0].path == ["product", "supplier"]
    assert result.errors[0].extensions is not None
    assert result.errors[0].extensions["field"] == "supplierId"


async def test_a_document_without_the_id_has_no_reference(ask: Ask, memory: Memory) -> None:
    """It causes no read."""
    memory.write("products", {"_id": "p"})
    result = await ask('{ product(id: "p") { supplier { name } } }')
    assert result.data == {"product": {"supplier": None}}
    assert [name for name, *_ in memory.calls] == ["by_ids"]
