"""Object types of a model with resolved relations."""

from __future__ import annotations

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.model.definition import Model


def test_relations_are_resolved_to_their_targets(model: Model) -> None:
    """References, back references and embedded types are resolved, also recursive ones."""
    shapes = build_object_types(model)
    product, supplier = shapes["Product"], shapes["Supplier"]
    assert product.links["supplier"].target is supplier
    assert product.links["supplier"].by.name == "supplierId"
    assert supplier.back_links["products"].target is product
    assert supplier.back_links["products"].by is product.fields["supplierId"]
    assert shapes["Package"].embedded["inner"] is shapes["Package"]
    assert shapes["Origin"].links["city"].target is shapes["City"]


def test_everything_is_the_stored_names(model: Model) -> None:
    """A comparison of two states reads them."""
    assert build_object_types(model)["Dimensions"].everything == {"width", "height", "unit"}
    assert "added_at" in build_object_types(model)["Product"].everything


def test_only_entities_have_an_entity(model: Model) -> None:
    """The entity of an embedded type is None."""
    shapes = build_object_types(model)
    assert shapes["City"].is_entity
    assert shapes["City"].entity.collection == "cities"
    assert not shapes["Unit"].is_entity
