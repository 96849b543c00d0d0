"""gql.schema.common.descriptions: what the API says of fields whose model says nothing."""

from __future__ import annotations

import pytest

from revstream.gql.engine.definitions.object_type import shapes_of
from revstream.gql.schema.common.descriptions import enum_description, field_description
from revstream.model.definition import EnumType, Model
from revstream.model.naming import with_article


@pytest.mark.parametrize(
    ("type_name", "field", "said"),
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
def test_a_field_is_described_by_the_model_or_by_what_follows_from_it(
    model: Model, type_name: str, field: str, said: str
) -> None:
    """Its own words come first."""
    shape = shapes_of(model)[type_name]
    assert field_description(shape, shape.fields[field]) == said


def test_an_enum_is_described(model: Model) -> None:
    """By itself, or by its name."""
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
def test_types_are_named_with_the_article_that_is_spoken(text: str) -> None:
    """By how a name begins when it is said."""
    assert with_article(text.partition(" ")[2]) == text
