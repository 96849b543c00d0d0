"""Tests of `gql.schema.entities.documents`: current documents and snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import strawberry
from bson import Decimal128, Int64, ObjectId
from bson.binary import Binary, UuidRepresentation
from graphql import build_schema as from_sdl

from revstream.gql.schema import build_schema, print_sdl
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.principal import ANONYMOUS
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

SUPPLIER, MAKER = ObjectId("a" * 24), ObjectId("b" * 24)
CODE = UUID("01234567-89ab-cdef-0123-456789abcdef")

PRODUCT: dict[str, Any] = {
    "_id": "p",
    "version": 1,
    "sku": "s-1",
    "name": "Lamp",
    "price": Decimal128("12.50"),
    "stock": 3,
    "sold": Int64(2**60),
    "rating": 4.5,
    "listed": True,
    "code": Binary.from_uuid(CODE, UuidRepresentation.STANDARD),
    "colour": "RED",
    "tags": ["a", "b"],
    "sizes": [1, None],
    "colours": ["RED", "GREEN"],
    "dimensions": {"width": 1.5, "height": 2.0, "unit": {"name": "cm", "f": 0.01}},
    "packages": [{"weight": 1, "inner": [{"weight": 2}]}],
    "origin": {"country": "FR", "cityId": 7},
    "supplierId": SUPPLIER,
    "makerId": MAKER,
    "attributes": {"a": [1, 1.0, {"b.c": None}]},
    "added_at": datetime(2024, 5, 1, tzinfo=UTC),
    "_change": {"id": 1, "by": "ann"},
    "unmodelled": "x",
}

EVERYTHING = """
  sku name price stock sold rating listed code colour tags sizes colours
  dimensions { width height unit { name factor } }
  packages { weight dimensions { width } inner { weight } }
  origin { country cityId city { name } }
  supplierId supplier { name } makerId maker { name } attributes addedAt
"""

SHOWN = {
    "sku": "s-1",
    "name": "Lamp",
    "price": "12.50",
    "stock": 3,
    "sold": str(2**60),
    "rating": 4.5,
    "listed": True,
    "code": str(CODE),
    "colour": "RED",
    "tags": ["a", "b"],
    "sizes": [1, None],
    "colours": ["RED", "GREEN"],
    "dimensions": {"width": 1.5, "height": 2.0, "unit": {"name": "cm", "factor": 0.01}},
    "packages": [{"weight": 1, "dimensions": None, "inner": [{"weight": 2}]}],
    "origin": {"country": "FR", "cityId": "7", "city": {"name": "Lyon"}},
    "supplierId": "a" * 24,
    "supplier": {"name": "Ames"},
    "makerId": "b" * 24,
    "maker": {"name": "Brown"},
    "attributes": {"a": [1, 1.0, {"b.c": None}]},
    "addedAt": "2024-05-01T00:00:00.000Z",
}


def fill(memory: Memory) -> None:
    memory.write("suppliers", {"_id": SUPPLIER, "name": "Ames"})
    memory.write("suppliers", {"_id": MAKER, "name": "Brown"})
    memory.write("cities", {"_id": 7, "name": "Lyon"})
    memory.write("products", PRODUCT)


async def test_a_current_document_has_every_field_of_the_model(ask: Ask, memory: Memory) -> None:
    """The read has only the stored names of the selected fields."""
    fill(memory)
    result = await ask(f'{{ product(id: "p") {{ {EVERYTHING} }} }}')
    assert result.errors is None
    assert result.data == {"product": SHOWN}


async def test_a_snapshot_has_the_same_fields(ask: Ask, memory: Memory) -> None:
    """References are read at its time point."""
    fill(memory)
    result = await ask(
        f'{{ productVersion(id: "p", version: 1) {{ document {{ {EVERYTHING} }} }} }}'
    )
    assert result.errors is None
    # Suppliers and cities were written before here, so that all of them exist then.
    assert result.data == {"productVersion": {"document": SHOWN}}


async def test_missing_optional_values_are_null(ask: Ask, memory: Memory) -> None:
    """The stored value is missing or null."""
    fill(memory)
    small = {
        name: PRODUCT[name]
        for name in ("sku", "name", "price", "stock", "tags", "origin", "makerId", "added_at")
    }
    memory.write("products", {"_id": "q", **small, "origin": {"country": "FR"}, "rating": None})
    result = await ask(f'{{ product(id: "q") {{ {EVERYTHING} }} }}')
    assert result.errors is None
    assert result.data is not None
    null = [name for name, value in result.data["product"].items() if value is None]
    assert null == [
        "sold", "rating", "listed", "code", "colour", "sizes", "colours", "dimensions",
        "packages", "supplierId", "supplier", "attributes",
    ]  # fmt: skip
    assert result.data["product"]["origin"] == {"country": "FR", "cityId": None, "city": None}


async def test_a_snapshot_may_lack_required_fields(ask: Ask, memory: Memory) -> None:
    """A field that the model requires now may be missing in an old version."""
    memory.write("products", {"_id": "p", "origin": {}})
    result = await ask(
        f'{{ productVersion(id: "p", version: 1) {{ document {{ id {EVERYTHING} }} }} }}'
    )
    assert result.errors is None
    assert result.data is not None
    document = result.data["productVersion"]["document"]
    assert document.pop("id") == "p@1"
    assert document.pop("origin") == {"country": None, "cityId": None, "city": None}
    assert set(document.values()) == {None}


async def test_an_invalid_value_is_an_error_of_its_field(ask: Ask, memory: Memory) -> None:
    """The error has the document and the field; other fields are in the response."""
    fill(memory)
    memory.write(
        "products", {**PRODUCT, "rating": "high", "dimensions": {"width": "x", "height": 1}}
    )
    result = await ask('{ product(id: "p") { name rating dimensions { width height } } }')
    assert result.data == {"product": {"name": "Lamp", "rating": None, "dimensions": None}}
    assert result.errors is not None
    errors = {tuple(error.path or ()): error for error in result.errors}
    assert set(errors) == {("product", "rating"), ("product", "dimensions", "width")}
    assert errors["product", "rating"].extensions == {
        "code": "DOCUMENT_MISFIT",
        "collection": "products",
        "documentId": "p",
        "field": "rating",
        "mend": "store Float there, or declare the field as String in the model",
    }
    width = errors["product", "dimensions", "width"].extensions
    assert width is not None
    assert width["field"] == "dimensions.width"


async def test_fragments_on_the_interface_apply_to_documents_and_snapshots(
    ask: Ask, memory: Memory
) -> None:
    """The fragment is written once, on the interface."""
    fill(memory)
    result = await ask(
        '{ product(id: "p") { ...F history { nodes { document { ...F } } } } }'
        " fragment F on ProductState { name dimensions { ...D } }"
        " fragment D on DimensionsState { width }"
    )
    assert result.errors is None
    expected = {"name": "Lamp", "dimensions": {"width": 1.5}}
    assert result.data == {"product": {**expected, "history": {"nodes": [{"document": expected}]}}}


async def test_a_selected_version_is_read_from_the_archive(ask: Ask, memory: Memory) -> None:
    """Documents without a version field have it, too; it is not read if it is not selected."""
    fill(memory)
    result = await ask('{ city(id: "7") { id nodeId version } product(id: "p") { version } }')
    assert result.data == {
        "city": {"id": "7", "nodeId": "Q2l0eTo3", "version": 1},
        "product": {"version": 1},
    }
    memory.calls.clear()
    await ask('{ city(id: "7") { id } }')
    assert [name for name, *_ in memory.calls] == ["by_ids"]


def test_each_type_of_the_model_has_three_types_in_the_api(schema: strawberry.Schema) -> None:
    """Only current documents have required fields; references return the type of the same time."""
    types: Any = from_sdl(print_sdl(schema)).type_map

    def fields(name: str) -> dict[str, str]:
        return {n: str(f.type) for n, f in types[name].fields.items()}

    assert fields("Origin") == {"country": "String!", "cityId": "ID", "city": "City"}
    assert fields("OriginState") == {"country": "String", "cityId": "ID", "city": "CityState"}
    assert fields("OriginSnapshot") == {"country": "String", "cityId": "ID", "city": "CitySnapshot"}
    assert fields("Product")["maker"] == "Supplier!"
    assert fields("ProductSnapshot")["maker"] == "SupplierSnapshot"
    assert fields("Product")["packages"] == "[Package!]"
    assert fields("ProductSnapshot")["tags"] == "[String!]"
    assert [each.name for each in types["Product"].interfaces] == ["Node", "ProductState"]


async def test_pages_of_a_list_need_the_right_to_read_it() -> None:
    """They need it now and in the past; a field of the model with their name has precedence."""
    model = read_model(
        """
        type Post @collection(name: "posts") {
          id: ID! tagIds: [ID!] tags: [Tag!]! @reference(by: "tagIds") @access(read: ["staff"])
          namesConnection: String names: [Tag!]! @reference(by: "tagIds")
        }
        type Tag @collection(name: "tags") { id: ID! name: String }
        """
    )
    schema = build_schema(model)
    memory = Memory()
    memory.write("tags", {"_id": "t", "name": "T"})
    memory.write("posts", {"_id": "p", "tagIds": ["t", "gone", "t"], "namesConnection": "n"})
    context = memory.context()
    context.scope = Scope(model, ANONYMOUS)
    text = "{ posts { nodes { tagsConnection { totalCount } } } }"
    refused = await schema.execute(text, None, context)
    assert refused.errors is not None
    assert refused.errors[0].path == ["posts", "nodes", 0, "tagsConnection"]
    text = "{ posts { nodes { namesConnection tagsConnection { totalCount } } } }"
    allowed = await schema.execute(text, None, memory.context())
    node = {"namesConnection": "n", "tagsConnection": {"totalCount": 2}}
    assert (allowed.data, allowed.errors) == ({"posts": {"nodes": [node]}}, None)
