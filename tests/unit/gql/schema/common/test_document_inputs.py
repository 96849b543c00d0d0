"""Tests of `gql.schema.common.document_inputs`."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry
from graphql import build_schema as from_sdl

from revstream.gql.schema import build_schema, print_sdl
from revstream.model.compiler.loader import read_model

Types = dict[str, Any]


@pytest.fixture(scope="module")
def types(schema: strawberry.Schema) -> Types:
    return dict(from_sdl(print_sdl(schema)).type_map)


def api_types(model: str) -> Types:
    """Return the types of the API for this model."""
    return dict(from_sdl(print_sdl(build_schema(read_model(model)))).type_map)


def fields(type_: Any) -> dict[str, str]:
    return {name: str(field.type) for name, field in type_.fields.items()}


def arguments(types: Types, mutation: str) -> dict[str, str]:
    given = types["Mutation"].fields[mutation].args
    return {name: str(each.type) for name, each in given.items()}


def test_an_input_is_a_complete_document(types: Types) -> None:
    """Required fields of the model are required; it has no id, no references and no version."""
    assert fields(types["ProductInput"]) == {
        "sku": "String!",
        "name": "String!",
        "price": "Decimal!",
        "stock": "Int!",
        "sold": "Long",
        "rating": "Float",
        "listed": "Boolean",
        "code": "UUID",
        "colour": "Colour",
        "tags": "[String!]!",
        "sizes": "[Int]",
        "colours": "[Colour!]",
        "dimensions": "DimensionsInput",
        "packages": "[PackageInput!]",
        "parcel": "PackageInput",
        "origin": "OriginInput!",
        "supplierId": "ID",
        "makerId": "ID!",
        "attributes": "JSON",
        "addedAt": "DateTime!",
    }


def test_a_patch_requires_nothing(types: Types) -> None:
    """Its embedded documents are patches, too; items of its lists are complete."""
    whole, patch = fields(types["ProductInput"]), fields(types["ProductPatch"])
    assert patch.keys() == whole.keys()
    assert not [each for each in patch.values() if each.endswith("!")]
    assert patch["origin"] == "OriginPatch"
    assert patch["dimensions"] == "DimensionsPatch"
    assert patch["packages"] == "[PackageInput!]"
    assert patch["tags"] == "[String!]"


def test_embedded_types_have_inputs_and_patches(types: Types) -> None:
    """Nested and recursive types have them, too; embedded numbers have no increment."""
    assert fields(types["DimensionsInput"]) == {
        "width": "Float!",
        "height": "Float!",
        "unit": "UnitInput",
    }
    assert fields(types["DimensionsPatch"]) == {
        "width": "Float",
        "height": "Float",
        "unit": "UnitPatch",
    }
    assert fields(types["PackageInput"])["inner"] == "[PackageInput!]"
    assert fields(types["PackagePatch"])["inner"] == "[PackageInput!]"
    assert fields(types["OriginInput"]) == {"country": "String!", "cityId": "ID"}
    assert "DimensionsIncrement" not in types


def test_an_increment_has_the_numbers_of_an_entity(types: Types) -> None:
    """Lists of numbers cannot be incremented."""
    assert fields(types["ProductIncrement"]) == {
        "price": "Decimal",
        "stock": "Int",
        "sold": "Long",
        "rating": "Float",
    }


def test_an_entity_without_numbers_has_no_increment(types: Types) -> None:
    """Its update mutation has no argument for it either."""
    assert "SupplierIncrement" not in types
    assert arguments(types, "updateSupplier") == {
        "id": "ID!",
        "expectedVersion": "Int",
        "patch": "SupplierPatch",
        "comment": "String",
    }


def test_a_fence_value_is_written_and_not_incremented(types: Types) -> None:
    """It orders events; each event is an id and a complete document."""
    assert fields(types["ReadingInput"]) == {"sequence": "Long!", "value": "Float!"}
    assert fields(types["ReadingIncrement"]) == {"value": "Float"}
    assert fields(types["ReadingEvent"]) == {"id": "ID!", "document": "ReadingInput!"}
    assert "ProductEvent" not in types


def test_copied_fields_are_not_in_inputs() -> None:
    """revstream writes them."""
    types = api_types(
        """
        type Book @collection(name: "books") {
          id: ID! title: String writerId: ID writer: Writer @reference(by: "writerId")
          writerName: String @copy(of: "writer.name") writerAge: Int @copy(of: "writer.age")
        }
        type Writer @collection(name: "writers") { id: ID! name: String age: Int }
        """
    )
    assert fields(types["BookInput"]) == {"title": "String", "writerId": "ID"}
    assert fields(types["BookPatch"]) == fields(types["BookInput"])
    assert "BookIncrement" not in types
    assert fields(types["WriterIncrement"]) == {"age": "Int"}


def test_an_entity_without_writable_fields_is_created_and_deleted() -> None:
    """GraphQL forbids input types without fields, so mutations that need one are missing."""
    types = api_types(
        """
        type Mark @collection(name: "marks") {
          id: ID! user: User @reference(by: "id") userName: String @copy(of: "user.name")
        }
        type User @collection(name: "users") { id: ID! name: String }
        """
    )
    assert not {"MarkInput", "MarkPatch", "MarkIncrement"} & types.keys()
    assert {each for each in types["Mutation"].fields if "User" not in each} == {
        "createMark",
        "deleteMark",
        "restoreMark",
        "publishMark",
        "rejectMark",
        "commentOnMark",
        "saveCursor",
        "removeCursor",
    }
    assert arguments(types, "createMark") == {"id": "ID", "comment": "String"}


def test_input_fields_have_the_models_descriptions(types: Types) -> None:
    """Inputs and patches have them."""
    for name in ("ProductInput", "ProductPatch"):
        assert types[name].fields["sku"].description == "What it is ordered by."
        assert types[name].description
