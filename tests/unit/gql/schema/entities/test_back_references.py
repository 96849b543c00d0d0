"""Tests of `gql.schema.entities.back_references`."""

from __future__ import annotations

import pytest
from bson import ObjectId

from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

SUPPLIERS = [ObjectId(f"{n:024d}") for n in range(20)]


@pytest.fixture(autouse=True)
def written(memory: Memory) -> None:
    """Insert twenty suppliers; the first ten have three products each."""
    for id_ in SUPPLIERS:
        memory.write("suppliers", {"_id": id_, "name": "s"})
    for n in range(30):
        memory.write(
            "products",
            {"_id": f"p{n:02}", "supplierId": SUPPLIERS[n % 10], "name": f"n{n}", "stock": n},
        )


async def test_the_back_references_of_all_documents_are_one_read(ask: Ask, memory: Memory) -> None:
    """They are filtered, ordered and counted per document; parents are read by id only."""
    result = await ask(
        "{ suppliers(first: 20) { nodes { products(first: 2, orderBy: [{stock: DESC}],"
        " where: {stock: {gte: 10}}) { nodes { name } totalCount resumeToken } } } }"
    )
    assert result.errors is None
    assert result.data is not None
    suppliers = result.data["suppliers"]["nodes"]
    assert suppliers[3]["products"]["nodes"] == [{"name": "n23"}, {"name": "n13"}]
    assert suppliers[3]["products"]["totalCount"] == 2
    assert suppliers[3]["products"]["resumeToken"].endswith(".tests")
    assert suppliers[15]["products"]["nodes"] == []
    assert [(name, count, fields) for name, _, count, fields in memory.calls] == [
        ("page", 1, frozenset()),
        ("pages_by_parent", 20, frozenset({"name"})),
    ]


async def test_an_invalid_document_is_left_out_of_a_back_reference(
    ask: Ask, memory: Memory
) -> None:
    """The response has an error at the field, at the document's index."""
    memory.write("products", {"_id": "p03", "supplierId": SUPPLIERS[3], "name": None, "stock": 3})
    result = await ask(
        '{ supplier(id: "000000000000000000000003") { products { nodes { name } } } }'
    )
    assert result.data is not None
    names = [each["name"] for each in result.data["supplier"]["products"]["nodes"]]
    assert names == ["n13", "n23"]
    assert result.errors is not None
    assert result.errors[0].path == ["supplier", "products", "nodes", 2, "name"]


async def test_bad_input_is_an_error_of_each_document(ask: Ask, memory: Memory) -> None:
    """It is refused before any read."""
    memory.calls.clear()
    result = await ask(
        "{ suppliers(first: 2) { nodes { id products(first: -1) { totalCount } } } }"
    )
    assert result.errors is not None
    assert "first: -1" in result.errors[0].message
    assert [name for name, *_ in memory.calls] == ["page"]
