"""A small shop, as a model: products and their suppliers."""

from __future__ import annotations

from revstream.model.definition import EmbeddedType, Entity, Field, Model, Scalar

__all__ = ["PRODUCT", "SHOP", "SUPPLIER"]


def _entity(name: str, id_scalar: Scalar, *fields: Field) -> Entity:
    id_field = Field(name="id", stored="_id", type=Scalar.ID, stored_scalar=id_scalar)
    return Entity(
        name=name,
        collection=f"{name.lower()}s",
        singular=name.lower(),
        plural=f"{name.lower()}s",
        fields=(id_field, *fields),
    )


_DIMENSIONS = EmbeddedType(
    name="Dimensions",
    fields=(
        Field(name="width", stored="w", type=Scalar.FLOAT),
        Field(name="height", stored="h", type=Scalar.FLOAT),
    ),
)

PRODUCT = _entity(
    "Product",
    Scalar.STRING,
    Field(name="name", stored="name", type=Scalar.STRING),
    Field(name="price", stored="price", type=Scalar.DECIMAL),
    Field(name="stock", stored="stock", type=Scalar.INT),
    Field(name="tags", stored="tags", type=Scalar.STRING, is_list=True),
    Field(name="dimensions", stored="dims", type="Dimensions"),
    Field(name="attributes", stored="attributes", type=Scalar.JSON),
    Field(name="addedAt", stored="added_at", type=Scalar.DATETIME),
    Field(name="supplierId", stored="supplier", type=Scalar.ID, stored_scalar=Scalar.OBJECTID),
)

SUPPLIER = _entity(
    "Supplier", Scalar.OBJECTID, Field(name="name", stored="name", type=Scalar.STRING)
)

SHOP = Model(entities=(PRODUCT, SUPPLIER), embeddeds=(_DIMENSIONS,))
