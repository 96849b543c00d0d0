"""Tests of `gql.schema.entities.interfaces` and of enums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import strawberry
from graphql import build_schema as from_sdl

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.schema import build_schema, print_sdl
from revstream.gql.schema.common.id_naming import DEFAULT_NAMING
from revstream.gql.schema.entities.interfaces import version_fields
from revstream.model.compiler.loader import read_model


@pytest.fixture(scope="module")
def types(schema: strawberry.Schema) -> dict[str, Any]:
    return dict(from_sdl(print_sdl(schema)).type_map)


@pytest.mark.parametrize("interface", ["Node", "Version", "Change"])
def test_every_entity_implements_the_interfaces(types: dict[str, Any], interface: str) -> None:
    """A client can write one fragment for all entities."""
    suffixes = {"Node": ("", "Version", "Snapshot"), "Version": ("Version",), "Change": ("Change",)}
    for name in ("Product", "Supplier", "City", "Reading"):
        for suffix in suffixes[interface]:
            names = [each.name for each in types[f"{name}{suffix}"].interfaces]
            assert interface in names


def test_types_without_entities_are_the_same_for_every_model(types: dict[str, Any]) -> None:
    """A generated client stays valid when the model grows."""
    other = build_schema(read_model('type Dot @collection(name: "dots") { id: ID! a: Int }'))
    others: dict[str, Any] = dict(from_sdl(print_sdl(other)).type_map)
    for name in (
        "Operation", "SortDirection", "ChangeKind", "Transition", "FieldChangeKind", "Node",
        "Version", "Change", "FieldChange", "PageInfo", "StreamReading", "StreamStatus",
        "TimePoint", "VersionWhere",
    ):  # fmt: skip
        mine, theirs = types[name], others[name]
        assert mine.description == theirs.description
        own = getattr(mine, "fields", None) or mine.values
        assert list(own) == list(getattr(theirs, "fields", None) or theirs.values)


def test_an_interfaces_own_fields_are_never_resolved() -> None:
    """The implementing types resolve them."""
    for field in version_fields(DEFAULT_NAMING):
        function = field.read if isinstance(field, Read) else getattr(field, "resolve", None)
        assert function is not None
        given: tuple[Any, ...] = (None,)
        if isinstance(field, Resolve) and field.ready is not None:
            # Its function is called with the context.
            given = None, SimpleNamespace(context=None)
        with pytest.raises(AssertionError, match="the types that implement it"):
            function(*given)


def test_a_scalar_of_one_member_alone_has_its_types() -> None:
    """The fields of members count, where types are made for what the model uses."""
    schema = build_schema(
        read_model(
            """
            interface Place @collection(name: "places") @discriminator(field: "kind") { id: ID! }
            type Shop implements Place { id: ID! at: Point since: Date code: Binary any: JSON }
            """
        )
    )
    types = dict(from_sdl(print_sdl(schema)).type_map)
    assert {"Point", "PointInput", "PointWithin", "PointNear", "Date", "Binary"} <= set(types)


def test_a_name_that_one_member_has_is_taken_in_its_interface() -> None:
    """A field of the model has precedence over pages of a list of ids, and aggregates."""
    common = "id: ID! tagIds: [ID!] tags: [Tag!]! visits: [Visit!]!"
    schema = build_schema(
        read_model(
            f"""
            interface Place @collection(name: "places") @discriminator(field: "kind") {{
              id: ID! tagIds: [ID!] tags: [Tag!]! @reference(by: "tagIds")
              visits: [Visit!]! @referencedBy(field: "placeId") }}
            type Shop implements Place {{ {common} tagsConnection: Int visitsAggregate: Int }}
            type Park implements Place {{ {common} }}
            type Tag @collection(name: "tags") {{ id: ID! name: String }}
            type Visit @collection(name: "visits") {{ id: ID! placeId: ID }}
            """
        )
    )
    types: dict[str, Any] = dict(from_sdl(print_sdl(schema)).type_map)
    for name in ("tagsConnection", "visitsAggregate"):
        assert str(types["Shop"].fields[name].type) == "Int"
        assert name not in {**types["Place"].fields, **types["Park"].fields}
