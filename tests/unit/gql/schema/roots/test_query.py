"""Tests of `gql.schema.roots.query`."""

from __future__ import annotations

import pytest
from bson import ObjectId

from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask
from tests.unit.gql.engine.request.test_plan import GOOD


@pytest.fixture(autouse=True)
def readings(memory: Memory) -> None:
    """Insert three readings, change the first and delete the second."""
    for n in range(3):
        memory.write("readings", {"_id": f"r{n}", "sequence": n, "value": float(n)})
    memory.write("readings", {"_id": "r0", "sequence": 9, "value": 9.0})
    memory.write("readings", None, id_="r1")


async def test_one_document_is_read_by_its_id(ask: Ask) -> None:
    """The field is null if the document does not exist."""
    result = await ask('{ reading(id: "r0") { id sequence } none: reading(id: "r1") { id } }')
    assert result.errors is None
    assert result.data == {"reading": {"id": "r0", "sequence": 9}, "none": None}


async def test_one_document_is_read_by_a_unique_field(ask: Ask, memory: Memory) -> None:
    """graphql-core and the compiled query give the same."""
    memory.write("suppliers", {"_id": ObjectId("a" * 24), "name": "Ames"})
    for n in range(3):
        made = {"_id": f"p{n}", **GOOD, "sku": f"S{n}", "supplierId": "a" * 24}
        memory.write("products", made)
    text = """query($by: ProductBy) {
      product(by: $by) { id version } none: product(by: {sku: "x"}) { id }
    }"""
    for _ in range(4):
        result = await ask(text, by={"sku": "S1"})
        assert result.errors is None
        assert result.data == {"product": {"id": "p1", "version": 1}, "none": None}
    one = "query($id: ID!) { product(id: $id) { sku } }"
    for _ in range(4):
        assert (await ask(one, id="p2")).data == {"product": {"sku": "S2"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('(id: "p1", by: {sku: "S1"})', "product: id and by, expected one of id and by"),
        ("", "product: no argument, expected one of id and by"),
        ("(id: null)", "product: no argument, expected one of id and by"),
        ("(by: {})", "exactly one"),
        ("(by: {sku: null})", "non-null"),
        ('(by: {name: "x"})', "name"),
    ],
)
async def test_exactly_one_identification_is_passed(ask: Ask, arguments: str, message: str) -> None:
    """Two could disagree, and none identifies no document."""
    for _ in range(3):
        result = await ask(f"{{ product{arguments} {{ id }} }}")
        assert result.errors is not None
        assert message in result.errors[0].message
        assert result.errors[0].extensions is not None
        assert result.errors[0].extensions["code"] in (
            "BAD_USER_INPUT",
            "GRAPHQL_VALIDATION_FAILED",
        )


async def test_types_without_a_unique_field_are_read_by_id_only(ask: Ask) -> None:
    """The argument stays required."""
    result = await ask("{ reading { id } }")
    assert result.errors is not None
    assert "reading(id:)" in result.errors[0].message


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('supplier(id: "x") { id }', "expected an ObjectID: 24 hexadecimal digits"),
        ('city(id: "x") { id }', "expected an Int: a whole number of 32 bits"),
        ('cityVersion(id: "07", version: 1) { id }', "expected an Int"),
        ('towns(where: {id: {eq: "x"}}) { totalCount }', "expected an Int"),
    ],
)
async def test_an_id_of_the_wrong_kind_is_bad_user_input(
    ask: Ask, query: str, message: str
) -> None:
    """No document can have it; the error has the expected form."""
    result = await ask(f"{{ {query} }}")
    assert result.errors is not None
    assert message in result.errors[0].message
    assert result.errors[0].extensions == {"code": "BAD_USER_INPUT"}


async def test_an_id_may_be_written_as_a_number(ask: Ask, memory: Memory) -> None:
    """GraphQL's `ID` accepts numbers."""
    memory.write("cities", {"_id": 7, "name": "Lyon"})
    result = await ask('{ city(id: 7) { id name } same: city(id: "7") { name } }')
    assert result.data == {"city": {"id": "7", "name": "Lyon"}, "same": {"name": "Lyon"}}


async def test_a_collection_is_read_at_a_time_point(ask: Ask) -> None:
    """It is filtered like current documents; each item is the version at that time."""
    result = await ask(
        '{ readingsAsOf(asOf: {time: "2024-05-01T12:00:02.9Z"}, where: {value: {gt: 0}}) {'
        " nodes { id document { value } } totalCount } }"
    )
    assert result.errors is None
    assert result.data is not None
    assert result.data["readingsAsOf"] == {
        "nodes": [
            {"id": "r2@1", "document": {"value": 2.0}},
            {"id": "r1@1", "document": {"value": 1.0}},
        ],
        "totalCount": 2,
    }


async def test_the_audit_trail_has_all_documents(ask: Ask) -> None:
    """It is newest first and includes deletions."""
    result = await ask("{ readingVersions(first: 3) { nodes { id operation } totalCount } }")
    assert result.data == {
        "readingVersions": {
            "nodes": [
                {"id": "r1@2", "operation": "DELETE"},
                {"id": "r0@2", "operation": "UPDATE"},
                {"id": "r2@1", "operation": "INSERT"},
            ],
            "totalCount": 5,
        }
    }


async def test_the_current_position_is_a_resume_token(ask: Ask) -> None:
    """It has the deployment's tag, so that a subscription can resume after it."""
    result = await ask("{ resumeToken }")
    assert result.data == {"resumeToken": "66322EC500000001~.tests"}


async def test_the_status_of_leased_tasks(ask: Ask) -> None:
    """Each has its position in the change stream."""
    result = await ask(
        "{ streams { name collection state owner fence resumeToken at lagSeconds } }"
    )
    assert result.errors is None
    assert result.data == {
        "streams": [
            {
                "name": "recorder:products",
                "collection": "products",
                "state": "recording",
                "owner": "me",
                "fence": 3,
                "resumeToken": "66322EC000000001~.tests",
                "at": "2024-05-01T12:00:00.000Z",
                "lagSeconds": 0.5,
            }
        ]
    }


async def test_several_root_fields_are_answered_together(ask: Ask, memory: Memory) -> None:
    """An error of one leaves the others' results."""
    result = await ask(
        '{ good: reading(id: "r0") { id } bad: supplier(id: "x") { id } resumeToken }'
    )
    assert result.data == {
        "good": {"id": "r0"},
        "bad": None,
        "resumeToken": "66322EC500000001~.tests",
    }


async def test_a_supplier_is_found_by_its_hexadecimal_id(ask: Ask, memory: Memory) -> None:
    """It is stored as an ObjectId and is text in the API."""
    memory.write("suppliers", {"_id": ObjectId("a" * 24), "name": "Ames"})
    result = await ask("query($id: ID!) { supplier(id: $id) { id name } }", id="a" * 24)
    assert result.data == {"supplier": {"id": "a" * 24, "name": "Ames"}}
