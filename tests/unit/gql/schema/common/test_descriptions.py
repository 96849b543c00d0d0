"""Tests of `gql.schema.common.descriptions`."""

from __future__ import annotations

import pytest

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.gql.schema.common.descriptions import enum_description, field_description
from revstream.model.definition import EnumType, Model
from revstream.model.naming import with_article


@pytest.mark.parametrize(
    ("type_name", "field", "description"),
    [
        ("Product", "sku", "What it is ordered by."),
        ("Product", "supplierId", "The id of the Supplier in `supplier`."),
        ("Product", "addedAt", "Stored as `added_at`."),
        (
            "Reading",
            "sequence",
            "The fence value: an event whose value is not higher is stale and is ignored.",
        ),
    ],
)
def test_a_field_has_the_models_description_or_a_derived_one(
    model: Model, type_name: str, field: str, description: str
) -> None:
    """A description of the model has precedence."""
    shape = build_object_types(model)[type_name]
    assert field_description(shape, shape.fields[field]) == description


def test_an_enum_has_a_description(model: Model) -> None:
    """It comes from the model, or contains the enum's name."""
    assert enum_description(model.enums[0]) == "What can be seen from afar."
    assert "Size" in enum_description(EnumType(name="Size", values=("BIG",)))


@pytest.mark.parametrize(
    "text",
    [
        "an Address",
        "an Order",
        "an Item",
        "an Event",
        "an Update",
        "an Hour",
        "a User",
        "a Unit",
        "a Euro",
        "a OneTimeCode",
        "a Product",
    ],
)
def test_type_names_have_the_article_of_their_pronunciation(text: str) -> None:
    """The article depends on the sound with which the name begins."""
    assert with_article(text.partition(" ")[2]) == text
