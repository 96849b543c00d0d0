"""Invalid documents: one is left out, and the rest of the page is served."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from bson.datetime_ms import DatetimeMS

from revstream.gql.engine.request.invalid_documents import VALID_CLASSES
from revstream.model.definition import Field, Scalar
from revstream.resolvers.values.output import ValueLocation, converter
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

MAKER = ObjectId("b" * 24)
GOOD: dict[str, Any] = {
    "sku": "s",
    "name": "n",
    "price": Decimal128("1"),
    "stock": 1,
    "tags": [],
    "origin": {"country": "FR"},
    "makerId": MAKER,
    "added_at": datetime(2024, 5, 1, tzinfo=UTC),
}


def fill(memory: Memory, **bad: Any) -> None:
    """Insert a valid document, one with these values, and another valid one."""
    memory.write("suppliers", {"_id": MAKER, "name": "Brown"})
    memory.write("products", {"_id": "a", **GOOD})
    changed = {**GOOD, **bad}
    memory.write("products", {"_id": "b", **{k: v for k, v in changed.items() if v is not None}})
    memory.write("products", {"_id": "c", **GOOD})


@pytest.mark.parametrize(
    ("bad", "selection", "field", "path"),
    [
        ({"price": "1.00"}, "price", "price", ["price"]),
        ({"name": None}, "name", "name", ["name"]),
        ({"stock": 1.5}, "a: stock", "stock", ["a"]),
        ({"tags": ["a", 1]}, "tags", "tags.1", ["tags"]),
        ({"added_at": "2024"}, "addedAt", "addedAt", ["addedAt"]),
        ({"origin": None}, "origin { cityId }", "origin", ["origin"]),
        ({"origin": {}}, "from: origin { c: country }", "origin.country", ["from", "c"]),
        ({"origin": "x"}, "...F", "origin", ["origin"]),
        ({"makerId": "x"}, "maker { name }", "makerId", ["maker"]),
        ({"makerId": ObjectId("c" * 24)}, "by: maker { name }", "makerId", ["by"]),
        ({"makerId": None}, "maker { __typename }", "makerId", ["maker"]),
    ],
)
async def test_valid_documents_of_a_page_are_served(
    ask: Ask, memory: Memory, bad: dict[str, Any], selection: str, field: str, path: list[str]
) -> None:
    """This holds for nodes and edges; an error at the field's path names document and field."""
    fill(memory, **bad)
    fragment = "fragment F on Product { origin { country } }" if selection == "...F" else ""
    result = await ask(
        f"{{ products {{ nodes {{ id {selection} }} edges {{ node {{ id }} }} totalCount"
        f" pageInfo {{ startCursor endCursor }} }} }} {fragment}"
    )
    assert result.data is not None
    products = result.data["products"]
    assert [each["id"] for each in products["nodes"]] == ["a", "c"]
    assert [each["node"]["id"] for each in products["edges"]] == ["a", "c"]
    assert products["totalCount"] == 3
    # The cursors are those of the rows read: otherwise paging would reach the same document again.
    assert products["pageInfo"] == {"startCursor": "c0", "endCursor": "c2"}
    assert result.errors is not None
    (error,) = result.errors
    assert error.path == ["products", "nodes", 1, *path]
    assert error.extensions is not None
    assert error.extensions.pop("mend")
    assert error.extensions == {
        "code": "DOCUMENT_MISFIT",
        "collection": "products",
        "documentId": "b",
        "field": field,
        "leftOut": True,
    }
    assert error.message.startswith(f"products/b: {field}: ")


async def test_the_error_has_the_path_of_the_document(ask: Ask, memory: Memory) -> None:
    """The path has the response's aliases, and the index on the page as read."""
    fill(memory, price="1.00")
    result = await ask("{ all: products { of: edges { one: node { cost: price } } } }")
    assert result.errors is not None
    assert [each.path for each in result.errors] == [["all", "of", 1, "one", "cost"]]


@pytest.mark.parametrize("selection", ["id", "sku", "price @skip(if: true)", "rating"])
async def test_only_selected_fields_are_checked(ask: Ask, memory: Memory, selection: str) -> None:
    """A document with an invalid value is served if that field is not selected."""
    fill(memory, price="1.00")
    result = await ask(f"{{ products {{ nodes {{ id {selection} }} }} }}")
    assert result.errors is None
    assert result.data is not None
    assert len(result.data["products"]["nodes"]) == 3


async def test_an_optional_value_that_does_not_fit_is_null(ask: Ask, memory: Memory) -> None:
    """Its document is served, and the error is at the field."""
    fill(memory, rating="high", sizes=[1, "x"])
    result = await ask("{ products { nodes { id rating sizes } } }")
    assert result.data is not None
    assert result.data["products"]["nodes"][1] == {"id": "b", "rating": None, "sizes": None}
    assert result.errors is not None
    paths = [error.path for error in result.errors]
    assert paths == [["products", "nodes", 1, "rating"], ["products", "nodes", 1, "sizes"]]


async def test_an_invalid_target_of_a_required_reference_removes_the_document(
    ask: Ask, memory: Memory
) -> None:
    """A required reference is like a required field; the target is read once."""
    fill(memory)
    memory.write("suppliers", {"_id": ObjectId("d" * 24), "name": 5})
    memory.write("products", {"_id": "d", **GOOD, "makerId": ObjectId("d" * 24)})
    memory.calls.clear()
    result = await ask("{ products { nodes { id maker { name } } } }")
    assert result.data is not None
    assert [each["id"] for each in result.data["products"]["nodes"]] == ["a", "b", "c"]
    assert result.errors is not None
    assert result.errors[0].message.startswith("suppliers/dddddddddddddddddddddddd: name: ")
    assert [name for name, *_ in memory.calls] == ["page", "by_ids"]


async def test_an_id_that_does_not_fit(ask: Ask, memory: Memory) -> None:
    """The document is left out: neither the id nor a node id can be rendered."""
    for selection in ("id", "nodeId"):
        memory.documents["towns"] = []
        memory.documents["cities"] = [{"_id": 1, "name": "a"}, {"_id": "x", "name": "b"}]
        result = await ask(f"{{ towns {{ nodes {{ {selection} }} }} }}")
        assert result.data is not None
        assert len(result.data["towns"]["nodes"]) == 1
        assert result.errors is not None
        assert result.errors[0].extensions is not None
        assert result.errors[0].extensions["field"] == "id"


async def test_an_invalid_single_document_is_null(ask: Ask, memory: Memory) -> None:
    """Other fields are not affected."""
    fill(memory, price="1.00")
    result = await ask('{ product(id: "b") { id price } other: product(id: "a") { price } }')
    assert result.data == {"product": None, "other": {"price": "1"}}
    assert result.errors is not None
    assert result.errors[0].path == ["product", "price"]


SAMPLES: dict[Scalar, Any] = {
    Scalar.ID: ["", "x"],
    Scalar.STRING: ["", "x\n"],
    Scalar.BOOLEAN: [True, False],
    Scalar.DECIMAL: [Decimal128("1.50"), Decimal128("NaN"), Decimal128("-1E+6000")],
    Scalar.DATETIME: [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    Scalar.OBJECTID: [ObjectId()],
}


@pytest.mark.parametrize("scalar", list(VALID_CLASSES))
def test_valid_classes_always_fit(scalar: Scalar) -> None:
    """Every value of such a class can be rendered."""
    field = Field(name="x", stored="x", type=scalar, stored_scalar=scalar, required=True)
    for value in SAMPLES[scalar]:
        assert type(value) is VALID_CLASSES[scalar]
        assert converter(field)(value, ValueLocation("c", 1)) is not None
    far = Field(name="x", stored="x", type=Scalar.DATETIME, required=True)
    assert converter(far)(DatetimeMS(2**62), ValueLocation("c", 1)) is not None
