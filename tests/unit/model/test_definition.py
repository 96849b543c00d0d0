"""Lookup of types and fields in a model."""

from __future__ import annotations

import pytest

from revstream.model.compiler.loader import read_model

MODEL = read_model(
    """
    type Product @collection(name: "things") { id: ID! title: String @stored(as: "t") size: Size }
    type Size { width: Int }
    """
)


def test_types_are_looked_up_by_name() -> None:
    """Entities and embedded types are looked up separately."""
    assert MODEL.entity("Product") is MODEL.entities[0]
    assert MODEL.embedded("Size") is MODEL.embeddeds[0]


@pytest.mark.parametrize("name", ["Size", "Supplier"])
def test_an_unknown_entity_is_a_key_error(name: str) -> None:
    """The name of an embedded type is no entity's name."""
    with pytest.raises(KeyError, match=name):
        MODEL.entity(name)


def test_an_unknown_embedded_type_is_a_key_error() -> None:
    """The name of an entity is no embedded type's name."""
    with pytest.raises(KeyError, match="Product"):
        MODEL.embedded("Product")


def test_an_entity_is_looked_up_by_its_collection() -> None:
    """The result is None for an unknown collection."""
    assert MODEL.entity_of_collection("things") is MODEL.entities[0]
    assert MODEL.entity_of_collection("products") is None


def test_fields_are_looked_up_by_both_of_their_names() -> None:
    """`field` takes the name in the API, and `stored_field` the name in MongoDB."""
    product = MODEL.entities[0]
    assert product.field("title") is product.stored_field("t") is product.fields[1]
    assert product.field("t") is None
    assert product.stored_field("title") is None
    assert product.fence is None
