"""Tests of `gql.schema`: the whole schema of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import strawberry
from graphql import build_schema as from_sdl
from graphql import (
    is_enum_type,
    is_input_object_type,
    is_interface_type,
    is_introspection_type,
    is_object_type,
    is_specified_scalar_type,
)

from revstream.gql.schema import build_schema, print_sdl
from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelErrors

ONES = ("product", "supplier", "city", "reading")


def test_every_entity_has_all_root_fields(schema: strawberry.Schema) -> None:
    """They are current documents, versions, the as-of read, drafts, comments and changes."""
    built = from_sdl(print_sdl(schema))
    assert built.query_type is not None
    assert set(built.query_type.fields) == {
        "node", "resumeToken", "savedCursors", "streams", "allDrafts", "allComments",
        "product", "products", "productVersion", "productsAsOf", "productsAggregate",
        "productVersions", "productVersionsAggregate",
        "supplier", "suppliers", "supplierVersion", "suppliersAsOf", "suppliersAggregate",
        "supplierVersions", "supplierVersionsAggregate",
        "productDrafts", "supplierDrafts", "cityDrafts", "readingDrafts",
        "productComments", "supplierComments", "cityComments", "readingComments",
        "productState", "productStates", "supplierState", "supplierStates",
        "cityState", "cityStates", "readingState", "readingStates",
        "city", "towns", "cityVersion", "townsAsOf", "townsAggregate",
        "cityVersions", "cityVersionsAggregate",
        "reading", "readings", "readingVersion", "readingsAsOf", "readingsAggregate",
        "readingVersions", "readingVersionsAggregate",
    }  # fmt: skip
    assert built.subscription_type is not None
    assert set(built.subscription_type.fields) == {
        "productChanges",
        "supplierChanges",
        "cityChanges",
        "readingChanges",
        *(f"{one}{kind}Changes" for one in ONES for kind in ("Draft", "Comment")),
        "allDraftChanges",
        "allCommentChanges",
    }


def test_a_model_cannot_use_a_generated_name() -> None:
    """Otherwise one of two types or lists with that name would be missing."""
    text = (Path(__file__).parents[4] / "schema.graphql").read_text(encoding="utf-8")
    model = read_model(text)
    built = from_sdl(print_sdl(build_schema(model)))
    assert built.query_type is not None
    declared = {each.name for each in (*model.entities, *model.embeddeds, *model.enums)}
    generated = [each for each in built.type_map if each not in declared]
    assert {"ProductVersion", "Change"} <= set(generated)
    more = [
        *(f'type {each} @collection(name: "more") {{ id: ID! x: Int }}' for each in generated),
        *(
            f'type More @collection(name: "more", plural: "{each}") {{ id: ID! x: Int }}'
            for each in built.query_type.fields
        ),
    ]
    harmless = 'type More @collection(name: "more", plural: "manyMore") { id: ID! x: Int }'
    assert not _is_refused(f"{text}\n{harmless}\n")
    assert [each for each in more if not _is_refused(f"{text}\n{each}\n")] == []


def _is_refused(text: str) -> bool:
    try:
        read_model(text)
    except ModelErrors:
        return True
    return False


def test_each_type_and_field_has_a_description(schema: strawberry.Schema) -> None:
    """GraphiQL shows it for types, fields, arguments and input fields."""
    built: Any = from_sdl(print_sdl(schema))
    missing = []
    for type_ in built.type_map.values():
        if is_introspection_type(type_) or is_specified_scalar_type(type_):
            continue
        if not type_.description:
            missing.append(type_.name)
        if is_object_type(type_) or is_interface_type(type_) or is_input_object_type(type_):
            for name, field in type_.fields.items():
                if not field.description:
                    missing.append(f"{type_.name}.{name}")
                for argument, its in getattr(field, "args", {}).items():
                    if not its.description:
                        missing.append(f"{type_.name}.{name}({argument}:)")
        if is_enum_type(type_) and type_.name != "Colour":
            missing += [f"{type_.name}.{n}" for n, v in type_.values.items() if not v.description]
    assert missing == []


def test_the_models_descriptions_are_in_the_schema(schema: strawberry.Schema) -> None:
    """Types, fields, enums and their values have them."""
    sdl = print_sdl(schema)
    assert '"""A thing for sale."""\ntype Product implements Node & ProductState {' in sdl
    assert '"""What it is ordered by."""\n  sku: String!' in sdl
    assert (
        '"""What can be seen from afar."""\nenum Colour {\n  """Like a rose."""\n  RED\n  GREEN'
        in sdl
    )


def test_a_model_of_one_small_entity_is_enough() -> None:
    """It has no embedded types, enums, references or version field."""
    model = read_model('type Dot @collection(name: "dots", version: null) { id: UUID! x: Int }')
    built: Any = from_sdl(print_sdl(build_schema(model)))
    assert set(built.type_map["DotWhere"].fields) == {"and", "or", "not", "id", "x"}
    assert set(built.type_map["DotOrder"].fields) == {"id", "x"}
    assert str(built.type_map["Dot"].fields["version"].type) == "Int!"


def test_two_models_have_separate_schemas() -> None:
    """They share only the types that do not depend on the model."""
    for text in ("a: Int", "a: String!"):
        model = read_model(f'type Dot @collection(name: "dots") {{ id: ID! {text} }}')
        assert f"  {text}\n" in print_sdl(build_schema(model))
