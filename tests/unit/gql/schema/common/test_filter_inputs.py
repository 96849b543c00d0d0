"""Tests of `gql.schema.common.filter_inputs`."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry
from graphql import build_schema as from_sdl

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.gql.schema import print_sdl
from revstream.gql.schema.common.order_inputs import orderable_fields
from revstream.model.definition import Entity, Model, Scalar
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.filters.expression import EVERYTHING
from revstream.resolvers.filters.parser import operators, parse_where
from revstream.resolvers.history.version_filter import parse_version_where
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask


@pytest.fixture(scope="module")
def types(schema: strawberry.Schema) -> dict[str, Any]:
    return dict(from_sdl(print_sdl(schema)).type_map)


def inputs(type_: Any) -> dict[str, str]:
    return {name: str(field.type) for name, field in type_.fields.items()}


def test_a_where_type_has_a_filter_for_each_field_that_can_be_filtered(
    types: dict[str, Any],
) -> None:
    """The filter's type depends on the field's type."""
    assert inputs(types["ProductWhere"]) == {
        "and": "[ProductWhere!]",
        "or": "[ProductWhere!]",
        "not": "ProductWhere",
        "id": "IDFilter",
        "version": "IntFilter",
        "sku": "StringFilter",
        "name": "StringFilter",
        "price": "DecimalFilter",
        "stock": "IntFilter",
        "sold": "LongFilter",
        "rating": "FloatFilter",
        "listed": "BooleanFilter",
        "code": "UUIDFilter",
        "colour": "ColourFilter",
        "tags": "StringListFilter",
        "sizes": "IntListFilter",
        "colours": "ColourListFilter",
        "attributes": "JSONFilter",
        "dimensions": "DimensionsWhere",
        "packages": "PackageListFilter",
        "parcel": "PackageWhere",
        "origin": "OriginWhere",
        "supplierId": "IDFilter",
        "makerId": "IDFilter",
        "addedAt": "DateTimeFilter",
        "supplier": "SupplierWhere",
        "maker": "SupplierWhere",
    }


def test_entities_without_a_version_field_have_no_version_filter(types: dict[str, Any]) -> None:
    """Their version numbers are only in the archive."""
    assert "version" not in inputs(types["CityWhere"])
    assert "version" not in inputs(types["CityOrder"])
    assert "version" in inputs(types["ReadingOrder"])


def test_filters_have_the_operators_of_the_filter_language(
    types: dict[str, Any], model: Model
) -> None:
    """Each field of the model has the operators of `resolvers.filters.parser`."""
    seen = 0
    for entity in (*model.entities, *model.embeddeds):
        for field in entity.fields:
            known = operators(field)
            if known and not (isinstance(field.type, str) and not field.is_list):
                name = inputs(types[f"{entity.name}Where"])[field.name]
                assert tuple(inputs(types[name])) == known, name
                seen += 1
    assert seen > 20


def test_the_filters_of_lists_and_embedded_documents(types: dict[str, Any]) -> None:
    """Operators have the types of the values with which they compare."""
    assert inputs(types["PackageListFilter"]) == {
        "some": "PackageWhere",
        "every": "PackageWhere",
        "none": "PackageWhere",
        "size": "Int",
        "isEmpty": "Boolean",
        "exists": "Boolean",
    }
    assert inputs(types["ColourListFilter"]) == {
        "has": "Colour",
        "hasEvery": "[Colour!]",
        "hasSome": "[Colour!]",
        "size": "Int",
        "isEmpty": "Boolean",
        "exists": "Boolean",
    }
    assert inputs(types["UnitWhere"])["exists"] == "Boolean"


@pytest.mark.parametrize("name", ["Product", "City"])
def test_documents_are_ordered_by_single_comparable_values(
    types: dict[str, Any], model: Model, name: str
) -> None:
    """Id and version are first; lists and JSON are missing, and embedded documents have fields."""
    entity = model.entity(name)
    single = [
        each.name for each in entity.fields if not each.is_list and each.type is not Scalar.JSON
    ]
    expected = ["id", *(["version"] if entity.version else []), *single[1:]]
    related = [*entity.references, *entity.back_references]
    expected_related = [each.name for each in related if not getattr(each, "is_list", False)]
    assert list(inputs(types[f"{name}Order"])) == [*expected, *expected_related]
    assert orderable_fields(build_object_types(model)[name]) == expected


def test_the_order_inside_of_an_embedded_document(types: dict[str, Any]) -> None:
    """It goes on to the documents inside."""
    assert inputs(types["ProductOrder"])["dimensions"] == "DimensionsOrderBy"
    assert inputs(types["DimensionsOrderBy"]) == {
        "width": "SortDirection",
        "height": "SortDirection",
        "unit": "UnitOrderBy",
    }


async def test_every_operator_of_every_field_is_parsed(
    ask: Ask, types: dict[str, Any], model: Model
) -> None:
    """`parse_where` accepts each operator of the API."""
    entity = model.entity("Product")
    for name, operator, value in _samples(types, "ProductWhere"):
        where = {name: {operator: value}}
        if operator == "path":
            where[name]["eq"] = 1
        assert parse_where(model, entity, where) is not EVERYTHING
        if operator == "matches":
            # Only MongoDB evaluates it.
            continue
        result = await ask(
            "query($w: ProductWhere) { products(where: $w) { totalCount } }", w=where
        )
        assert result.errors is None, (where, result.errors)


async def test_every_filter_of_versions_is_parsed(
    ask: Ask, types: dict[str, Any], model: Model
) -> None:
    """`parse_version_where` accepts each field of `VersionWhere`."""
    entity: Entity = model.entity("Product")
    for name, operator, value in _samples(types, "VersionWhere"):
        where = {name: {operator: value}}
        assert parse_version_where(model, entity, where, OPEN) is not None
        result = await ask(
            "query($w: VersionWhere) { productVersions(where: $w) { totalCount } }", w=where
        )
        assert result.errors is None, (where, result.errors)
    result = await ask(
        '{ productVersions(where: {changedField: "origin.country"}) { totalCount } }'
    )
    assert result.errors is None


async def test_an_invalid_filter_is_bad_user_input(ask: Ask, memory: Memory) -> None:
    """The error has the type and the field, and nothing is read."""
    result = await ask("{ products(where: {price: null}) { totalCount } }")
    assert result.errors is not None
    assert result.errors[0].extensions == {"code": "BAD_USER_INPUT"}
    assert "Product.price" in result.errors[0].message
    assert memory.calls == []


SAMPLES = {
    "ID": "0" * 24, "String": "x", "Int": 1, "Long": "2", "Float": 1.5, "Decimal": "1.5",
    "Boolean": True, "UUID": "01234567-89ab-cdef-0123-456789abcdef", "Colour": "RED",
    "DateTime": "2024-05-01T12:00:00Z", "Operation": "INSERT", "JSON": "x",
}  # fmt: skip


def _samples(types: dict[str, Any], where: str) -> list[tuple[str, str, Any]]:
    found = []
    for name, filter_name in inputs(types[where]).items():
        if name in ("and", "or", "not") or filter_name == "String":
            continue
        for operator, text in inputs(types[filter_name]).items():
            bare = text.strip("[]!")
            value = SAMPLES.get(bare, {})
            if bare in SAMPLES:
                found.append((name, operator, [value] if text.startswith("[") else value))
    return found
