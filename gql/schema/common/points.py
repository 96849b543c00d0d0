"""Types of points: `Point`, its input, and the operands of its filters."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from revstream.gql.engine.definitions.field import InputField, Read
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo, with_members
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import Scalar

__all__ = ["define_points"]

_LONGITUDE = "Degrees east, from -180 to 180."
_LATITUDE = "Degrees north, from -90 to 90."


def define_points(types: Types, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the types, if a field of the model has the type Point."""
    if not any(
        field.type is Scalar.POINT for each in with_members(shapes) for field in each.type.fields
    ):
        return
    types.add_object(
        "Point",
        [
            Read("longitude", "Float!", _LONGITUDE, itemgetter("longitude")),
            Read("latitude", "Float!", _LATITUDE, itemgetter("latitude")),
        ],
        "A point on earth (WGS 84).",
    )
    types.add_input(
        "PointInput",
        [
            InputField("longitude", "Float!", _LONGITUDE),
            InputField("latitude", "Float!", _LATITUDE),
        ],
        "A point on earth (WGS 84).",
    )
    types.add_input(
        "PointWithin",
        [
            InputField("box", "PointBox", "A box between two longitudes and two latitudes."),
            InputField("circle", "PointCircle", "A circle."),
            InputField(
                "polygon",
                "[PointInput!]",
                "The corners of a polygon, in their order around it, in either direction. Its "
                "edges are the shortest lines between them, and do not meet. It is smaller than "
                "half of the earth.",
            ),
        ],
        "A region on earth; pass exactly one of the fields.",
        one_of=True,
    )
    types.add_input(
        "PointBox",
        [
            InputField("southWest", "PointInput!", "The corner in the south and west."),
            InputField(
                "northEast",
                "PointInput!",
                "The corner in the north and east. If its longitude is less than that of "
                "`southWest`, the box crosses the date line.",
            ),
        ],
        "A box between two longitudes and two latitudes.",
    )
    types.add_input(
        "PointCircle",
        [
            InputField("center", "PointInput!", "The center."),
            InputField("radius", "Float!", "The radius in metres."),
        ],
        "A circle on earth, which is a sphere with a radius of 6,378.1 km.",
    )
    types.add_input(
        "PointNear",
        [
            InputField("point", "PointInput!", "The point to which distances are measured."),
            InputField("maxDistance", "Float!", "The largest distance in metres."),
            InputField("minDistance", "Float", "The distance in metres that is exceeded."),
        ],
        "Points at a distance.",
    )
    types.add_input(
        "PointOrder",
        [
            InputField("distanceTo", "PointInput!", "The point to which distances are measured."),
            InputField("direction", "SortDirection", "Default: the nearest first, `ASC`."),
        ],
        "An order by distance. Documents without a point come before all others with `ASC`.",
    )
