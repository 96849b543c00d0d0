"""Operators of points: `within` a region, and `near` a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from revstream.model.definition import Field, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import (
    Compare,
    Comparison,
    Condition,
    IsList,
    Not,
    Within,
    all_of,
    any_of,
)
from revstream.resolvers.filters.regions import (
    Box,
    Circle,
    Polygon,
    Region,
    polygon_problem,
)
from revstream.resolvers.values.input import from_api
from revstream.resolvers.values.output import shorten_repr
from revstream.resolvers.values.points import EARTH_RADIUS, LONGITUDE, Coordinates

__all__ = ["near", "within"]

MOST_CORNERS = 200
"""Corners of a polygon. Each edge is compared with each other one."""

_LEAST_CORNERS = 3
_FARTHEST = math.pi * EARTH_RADIUS


def within(field: Field, path: str, owner: str, operand: object) -> Condition:
    """Parse `{box: …}`, `{circle: …}` or `{polygon: …}`: exactly one of them."""
    given = _object(owner, operand, ("box", "circle", "polygon"))
    if len(given) != 1:
        raise BadUserInput(
            f"{owner}: {', '.join(given) or 'no region'}, expected one of box, circle, polygon"
        )
    ((kind, value),) = given.items()
    owner = f"{owner}.{kind}"
    match kind:
        case "box":
            return any_of([_in(path, each) for each in _boxes(owner, value)])
        case "circle":
            circle = _object(owner, value, ("center", "radius"))
            center = _point(f"{owner}.center", circle.get("center"))
            return _in(path, Circle(center, _distance(f"{owner}.radius", circle.get("radius"))))
        case _:
            return _in(path, _polygon(owner, value))


def near(field: Field, path: str, owner: str, operand: object) -> Condition:
    """Parse `{point: …, maxDistance: …, minDistance: …}`, with distances in metres."""
    given = _object(owner, operand, ("point", "maxDistance", "minDistance"))
    point = _point(f"{owner}.point", given.get("point"))
    most = _distance(f"{owner}.maxDistance", given.get("maxDistance"))
    found = _in(path, Circle(point, most))
    if given.get("minDistance") is None:
        return found
    least = _distance(f"{owner}.minDistance", given["minDistance"])
    if least >= most:
        raise BadUserInput(
            f"{owner}.minDistance: {least:g}, expected less than maxDistance, {most:g}"
        )
    return all_of([found, Not(Within(path, Circle(point, least)))])


def _in(path: str, region: Region) -> Condition:
    # Without the first three, MongoDB also finds other geometries, and points in older forms.
    return all_of(
        [
            Compare(f"{path}.type", Comparison.EQ, "Point"),
            Compare(f"{path}.crs", Comparison.EQ, None),
            Not(IsList(path)),
            Within(path, region),
        ]
    )


def _boxes(owner: str, value: object) -> Sequence[Box]:
    """Return one box, or two if it crosses the date line."""
    given = _object(owner, value, ("southWest", "northEast"))
    west, south = _point(f"{owner}.southWest", given.get("southWest"))
    east, north = _point(f"{owner}.northEast", given.get("northEast"))
    if south > north:
        raise BadUserInput(
            f"{owner}: {south:g} and {north:g}, expected the latitude of southWest below that of "
            "northEast; swap them"
        )
    if west <= east:
        return [Box(west, south, east, north)]
    return [Box(west, south, LONGITUDE, north), Box(-LONGITUDE, south, east, north)]


def _polygon(owner: str, value: object) -> Polygon:
    if not isinstance(value, list | tuple):
        raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected a list of points")
    # GeoJSON repeats the first point at the end.
    count = len(value) - (len(value) > 1 and value[0] == value[-1])
    if not _LEAST_CORNERS <= count <= MOST_CORNERS:
        raise BadUserInput(
            f"{owner}: {count:,} corners, expected {_LEAST_CORNERS} to {MOST_CORNERS}"
        )
    points = tuple(_point(f"{owner}.{n}", each) for n, each in enumerate(value[:count]))
    problem = polygon_problem(points)
    if problem is not None:
        raise BadUserInput(f"{owner}: {problem}")
    return Polygon(points)


def _object(owner: str, value: object, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value.keys() <= set(names):
        raise BadUserInput(
            f"{owner}: {shorten_repr(value)}, expected an object with {', '.join(names)}"
        )
    return value


def _point(owner: str, value: object) -> Coordinates:
    longitude, latitude = from_api(Scalar.POINT, value, owner)["coordinates"]
    return longitude, latitude


def _distance(owner: str, value: object) -> float:
    distance = from_api(Scalar.FLOAT, value, owner)
    if not 0 < distance <= _FARTHEST:
        raise BadUserInput(
            f"{owner}: {distance:,g}, expected metres above 0, at most {_FARTHEST:,.0f}"
        )
    return float(distance)
