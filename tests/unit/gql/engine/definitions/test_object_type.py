"""gql.engine.definitions.object_type: a model's types with their links followed."""

from __future__ import annotations

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.model.definition import Model


def test_links_lead_to_the_shapes_of_their_targets(model: Model) -> None:
    """References, back references and embedded types, also those that hold themselves."""
    shapes = build_object_types(model)
    product, supplier = shapes["Product"], shapes["Supplier"]
    assert product.links["supplier"].target is supplier
    assert product.links["supplier"].by.name == "supplierId"
    assert supplier.back_links["products"].target is product
    assert supplier.back_links["products"].by is product.fields["supplierId"]
    assert shapes["Package"].embedded["inner"] is shapes["Package"]
    assert shapes["Origin"].links["city"].target is shapes["City"]


def test_everything_is_the_stored_names(model: Model) -> None:
    """What a comparison of two states reads."""
    assert build_object_types(model)["Dimensions"].everything == {"width", "height", "unit"}
    assert "added_at" in build_object_types(model)["Product"].everything


def test_only_entities_have_an_entity(model: Model) -> None:
    """Embedded types have none."""
    shapes = build_object_types(model)
    assert shapes["City"].is_entity
    assert shapes["City"].entity.collection == "cities"
    assert not shapes["Unit"].is_entity
