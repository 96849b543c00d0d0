"""gql.schema.common.document_inputs: what can be written of each type of a model."""

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


def made(model: str) -> Types:
    """The types of the API for this model."""
    return dict(from_sdl(print_sdl(build_schema(read_model(model)))).type_map)


def fields(type_: Any) -> dict[str, str]:
    return {name: str(field.type) for name, field in type_.fields.items()}


def arguments(types: Types, mutation: str) -> dict[str, str]:
    given = types["Mutation"].fields[mutation].args
    return {name: str(each.type) for name, each in given.items()}


def test_an_input_is_a_whole_document(types: Types) -> None:
    """What the model requires must be given; neither the id, nor references, nor a version."""
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
        "origin": "OriginInput!",
        "supplierId": "ID",
        "makerId": "ID!",
        "attributes": "JSON",
        "addedAt": "DateTime!",
    }


def test_a_patch_requires_nothing(types: Types) -> None:
    """Its embedded documents are patches, too; the items of its lists are whole."""
    whole, patch = fields(types["ProductInput"]), fields(types["ProductPatch"])
    assert patch.keys() == whole.keys()
    assert not [each for each in patch.values() if each.endswith("!")]
    assert patch["origin"] == "OriginPatch"
    assert patch["dimensions"] == "DimensionsPatch"
    assert patch["packages"] == "[PackageInput!]"
    assert patch["tags"] == "[String!]"


def test_embedded_types_have_inputs_and_patches(types: Types) -> None:
    """Those within them and within themselves included; nothing is added to embedded numbers."""
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
    """Lists of numbers have nothing to be added to."""
    assert fields(types["ProductIncrement"]) == {
        "price": "Decimal",
        "stock": "Int",
        "sold": "Long",
        "rating": "Float",
    }


def test_an_entity_without_numbers_has_no_increment(types: Types) -> None:
    """Nor has its update an argument for one."""
    assert "SupplierIncrement" not in types
    assert arguments(types, "updateSupplier") == {
        "id": "ID!",
        "expectedVersion": "Int",
        "patch": "SupplierPatch",
        "comment": "String",
    }


def test_a_fencing_token_is_written_and_not_added_to(types: Types) -> None:
    """It orders events; each event is an id and a whole document."""
    assert fields(types["ReadingInput"]) == {"sequence": "Long!", "value": "Float!"}
    assert fields(types["ReadingIncrement"]) == {"value": "Float"}
    assert fields(types["ReadingEvent"]) == {"id": "ID!", "document": "ReadingInput!"}
    assert "ProductEvent" not in types


def test_what_is_copied_from_elsewhere_is_not_written() -> None:
    """revstream keeps it."""
    types = made(
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


def test_an_entity_of_which_nothing_can_be_written_is_created_and_deleted() -> None:
    """An input type without fields is none, in GraphQL; what needs one is not there."""
    types = made(
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


def test_inputs_say_what_the_model_says_of_their_fields(types: Types) -> None:
    """In whole documents and in patches."""
    for name in ("ProductInput", "ProductPatch"):
        assert types[name].fields["sku"].description == "What it is ordered by."
        assert types[name].description
