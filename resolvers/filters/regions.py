"""Regions on earth, as MongoDB queries and as tests of a point, which agree.

The earth is a sphere, as it is to MongoDB's index 2dsphere. Edges of a polygon are parts of great
circles; edges of a box follow longitudes and latitudes.
Does not guarantee: the same result for points that lie on an edge, to about a centimetre.
Source: docs/decisions/0056-points.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from revstream.resolvers.values.points import EARTH_RADIUS, Coordinates, unit_vector

__all__ = [
    "Box",
    "Circle",
    "Polygon",
    "Region",
    "polygon_problem",
]

_Plane = tuple[float, float]

_HALF_TURN = 180
# A polygon must be seen from its middle: its points are less than 89 degrees away.
_LEAST_COSINE = math.cos(math.radians(89))
# Edges that come closer, relative to their lengths, count as touching.
_TOUCHING = 1e-12


@dataclass(frozen=True, slots=True)
class Circle:
    """Points at most `radius` metres away from a center."""

    center: Coordinates
    radius: float

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return operands of `$geoWithin`, all of which must hold."""
        return [{"$centerSphere": [list(self.center), self.radius / EARTH_RADIUS]}]

    def test(self) -> Callable[[float, float], bool]:
        """Return the test of a longitude and a latitude."""
        center = unit_vector(self.center)
        most = (2 * math.sin(min(self.radius / EARTH_RADIUS, math.pi) / 2)) ** 2
        return lambda *point: math.dist(center, unit_vector(point)) ** 2 <= most


@dataclass(frozen=True, slots=True)
class Box:
    """Points between two longitudes and two latitudes; it does not cross the date line."""

    west: float
    south: float
    east: float
    north: float

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return operands of `$geoWithin`, all of which must hold."""
        box = {"$box": [[self.west, self.south], [self.east, self.north]]}
        if self.east - self.west > _HALF_TURN:
            return [box]
        # An index 2dsphere finds circles only. The corners are the points that are farthest away.
        middle = ((self.west + self.east) / 2, (self.south + self.north) / 2)
        corners = [unit_vector((self.west, each)) for each in (self.south, self.north)]
        chord = max(math.dist(unit_vector(middle), each) for each in corners)
        radius = 2 * math.asin(min(chord / 2, 1)) + 1e-6
        return [box, {"$centerSphere": [list(middle), radius]}]

    def test(self) -> Callable[[float, float], bool]:
        """Return the test of a longitude and a latitude."""
        west, south, east, north = self.west, self.south, self.east, self.north
        return lambda longitude, latitude: west <= longitude <= east and south <= latitude <= north


@dataclass(frozen=True, slots=True)
class Polygon:
    """Points inside of a polygon without a problem (`polygon_problem`)."""

    points: tuple[Coordinates, ...]

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return operands of `$geoWithin`, all of which must hold."""
        ring = [list(each) for each in (*self.points, self.points[0])]
        return [{"$geometry": {"type": "Polygon", "coordinates": [ring]}}]

    def test(self) -> Callable[[float, float], bool]:
        """Return the test of a longitude and a latitude."""
        project = _projection(self.points)
        assert project is not None  # checked when it was parsed
        ring = [place for each in self.points if (place := project(each)) is not None]
        edges = list(zip(ring, ring[1:] + ring[:1], strict=True))

        def contains(*point: float) -> bool:
            place = project((point[0], point[1]))
            return place is not None and _is_inside(place, edges)

        return contains


Region = Circle | Box | Polygon


def polygon_problem(points: Sequence[Coordinates]) -> str | None:
    """Return why points, at least three, are not the corners of a polygon; None if they are."""
    for one, other in combinations(points, 2):
        if one == other:
            return f"the point {_shown(one)} twice, expected each corner once"
    project = _projection(points)
    if project is None:
        return "more than half of the earth, expected a smaller one; use a box, or several polygons"
    ring = [place for each in points if (place := project(each)) is not None]
    edges = list(zip(ring, ring[1:] + ring[:1], strict=True))
    for first, second in combinations(range(len(edges)), 2):
        beside = second - first in (1, len(edges) - 1)
        if not beside and _meet(edges[first], edges[second]):
            return (
                f"edges that meet, from {_shown(points[first])} and from "
                f"{_shown(points[second])}, expected the corners in their order around it"
            )
    around = sum(math.dist(*edge) for edge in edges)
    if abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in edges)) <= _TOUCHING * around**2:
        return "points on one line, expected an area"
    return None


def _shown(point: Coordinates) -> str:
    return f"{point[0]:g} {point[1]:g}"


def _projection(points: Sequence[Coordinates]) -> Callable[[Coordinates], _Plane | None] | None:
    """Return the gnomonic projection around the middle of points; None if one is too far away.

    It makes great circles straight lines. The projection of a point on the other half is None.
    """
    vectors = [unit_vector(each) for each in points]
    sums = [math.fsum(each) for each in zip(*vectors, strict=True)]
    length = math.hypot(*sums)
    if not length or any(_dot(sums, each) < _LEAST_COSINE * length for each in vectors):
        return None
    middle = [each / length for each in sums]
    longitude = math.atan2(middle[1], middle[0])
    latitude = math.asin(max(-1.0, min(1.0, middle[2])))
    east = (-math.sin(longitude), math.cos(longitude), 0.0)
    north = (
        -math.sin(latitude) * math.cos(longitude),
        -math.sin(latitude) * math.sin(longitude),
        math.cos(latitude),
    )

    def project(point: Coordinates) -> _Plane | None:
        vector = unit_vector(point)
        ahead = _dot(middle, vector)
        if ahead <= 0:
            return None
        return _dot(east, vector) / ahead, _dot(north, vector) / ahead

    return project


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return one[0] * other[0] + one[1] * other[1] + one[2] * other[2]


def _is_inside(place: _Plane, edges: Sequence[tuple[_Plane, _Plane]]) -> bool:
    """Return whether a ray to the right crosses the edges an odd number of times."""
    x, y = place
    inside = False
    for (ax, ay), (bx, by) in edges:
        if (ay > y) != (by > y) and x < ax + (y - ay) / (by - ay) * (bx - ax):
            inside = not inside
    return inside


def _meet(one: tuple[_Plane, _Plane], other: tuple[_Plane, _Plane]) -> bool:
    for axis in (0, 1):
        a, b = sorted((one[0][axis], one[1][axis])), sorted((other[0][axis], other[1][axis]))
        if a[1] < b[0] or b[1] < a[0]:
            return False
    return (
        _side(*one, other[0]) * _side(*one, other[1]) <= 0
        and _side(*other, one[0]) * _side(*other, one[1]) <= 0
    )


def _side(start: _Plane, end: _Plane, place: _Plane) -> int:
    """Return on which side of a line a place is: 1, -1, or 0 on it."""
    (ax, ay), (bx, by), (x, y) = start, end, place
    cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    if abs(cross) <= _TOUCHING * math.dist(start, end) * math.dist(start, place):
        return 0
    return 1 if cross > 0 else -1
