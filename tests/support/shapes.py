"""A model with a field of every shape: each scalar, alone and in a list, enums, and documents."""

from __future__ import annotations

from revstream.model.definition import EmbeddedType, Entity, EnumType, Field, Model, Scalar

COLOUR = EnumType(
    name="Colour", values=("RED", "GREEN", "BLUE"), stored_as={"GREEN": "light-green"}
)

CORNER = EmbeddedType(
    name="Corner",
    fields=(
        Field(name="x", stored="x", type=Scalar.INT),
        Field(name="marks", stored="marks", type=Scalar.STRING, is_list=True),
    ),
)

SIZE = EmbeddedType(
    name="Size",
    fields=(
        Field(name="width", stored="w", type=Scalar.FLOAT),
        Field(name="label", stored="label", type=Scalar.STRING),
        Field(name="corner", stored="corner", type="Corner"),
        Field(name="corners", stored="corners", type="Corner", is_list=True),
    ),
)

LINE = EmbeddedType(
    name="Line",
    fields=(
        Field(name="sku", stored="sku", type=Scalar.STRING),
        Field(name="count", stored="n", type=Scalar.INT),
        Field(name="price", stored="price", type=Scalar.DECIMAL),
        Field(name="marks", stored="marks", type=Scalar.STRING, is_list=True),
        Field(name="size", stored="size", type="Size"),
        Field(name="lines", stored="lines", type="Line", is_list=True),
    ),
)

SINGLE = (
    Field(name="text", stored="t", type=Scalar.STRING),
    Field(name="whole", stored="whole", type=Scalar.INT),
    Field(name="long", stored="long", type=Scalar.LONG),
    Field(name="ratio", stored="ratio", type=Scalar.FLOAT),
    Field(name="flag", stored="flag", type=Scalar.BOOLEAN),
    Field(name="price", stored="price", type=Scalar.DECIMAL),
    Field(name="at", stored="at_time", type=Scalar.DATETIME),
    Field(name="day", stored="day", type=Scalar.DATE),
    Field(name="clock", stored="clock", type=Scalar.TIMESTAMP),
    Field(name="data", stored="data", type=Scalar.BINARY),
    Field(name="ownerId", stored="owner", type=Scalar.ID, stored_scalar=Scalar.OBJECTID),
    Field(name="object", stored="object", type=Scalar.OBJECTID, stored_scalar=Scalar.OBJECTID),
    Field(name="uuid", stored="uuid", type=Scalar.UUID, stored_scalar=Scalar.UUID),
    Field(name="colour", stored="colour", type=COLOUR),
)

LISTS = tuple(
    Field(
        name=f"{each.name}List",
        stored=f"{each.stored}s",
        type=each.type,
        stored_scalar=each.stored_scalar,
        is_list=True,
    )
    for each in SINGLE
)

THING = Entity(
    name="Thing",
    collection="things",
    singular="thing",
    plural="things",
    fields=(
        Field(name="id", stored="_id", type=Scalar.ID, stored_scalar=Scalar.INT, required=True),
        *SINGLE,
        *LISTS,
        Field(name="size", stored="size", type="Size"),
        Field(name="lines", stored="lines", type="Line", is_list=True),
        Field(name="attributes", stored="attributes", type=Scalar.JSON),
    ),
)

SHAPES = Model(entities=(THING,), embeddeds=(CORNER, SIZE, LINE), enums=(COLOUR,))
