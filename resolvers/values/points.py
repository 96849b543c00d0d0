"""Points on earth: GeoJSON as MongoDB stores it, and an object with two numbers in the API.

A stored point is `{type: "Point", coordinates: [longitude, latitude]}`. Other fields beside these
two are not shown. Source: https://www.rfc-editor.org/rfc/rfc7946#section-3.1.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bson.decimal128 import Decimal128
from bson.int64 import Int64

from revstream.resolvers.values.json_value import REFUSED

__all__ = [
    "EARTH_RADIUS",
    "LATITUDE",
    "LONGITUDE",
    "Coordinates",
    "distance",
    "point_from_api",
    "point_to_api",
    "stored_coordinates",
    "unit_vector",
]

LONGITUDE, LATITUDE = 180, 90
"""Largest values, in degrees."""

Coordinates = tuple[float, float]
"""Longitude and latitude in degrees."""

EARTH_RADIUS = 6_378_100.0
"""Metres, as MongoDB has it."""

_POINT = "Point"
_NUMBERS = frozenset({int, Int64, float})


def point_to_api(value: Any) -> Any:
    """Return the point of a stored value, or REFUSED: with an altitude, something would be lost."""
    found = _coordinates(value)
    if found is None or len(found) != 2 or not _NUMBERS.issuperset(map(type, found)):
        return REFUSED
    longitude, latitude = map(float, found)
    if not _on_earth(longitude, latitude):
        return REFUSED
    return {"longitude": longitude, "latitude": latitude}


def point_from_api(value: Any) -> Any:
    """Return the stored form of a point of a request, or of a stored point; otherwise REFUSED."""
    if not isinstance(value, Mapping):
        return REFUSED
    if value.keys() != {"longitude", "latitude"}:
        value = point_to_api(value)
        if value is REFUSED:
            return REFUSED
    longitude, latitude = value["longitude"], value["latitude"]
    if not (_is_number(longitude) and _is_number(latitude) and _on_earth(longitude, latitude)):
        return REFUSED
    return {"type": _POINT, "coordinates": [float(longitude), float(latitude)]}


def stored_coordinates(value: Any) -> Coordinates | None:
    """Return the longitude and latitude that MongoDB sees in a stored value; None for no point."""
    found = _coordinates(value)
    if found is None or not (_NUMBERS | {Decimal128}).issuperset(map(type, found[:2])):
        return None
    longitude, latitude = map(_double, found[:2])
    return (longitude, latitude) if _on_earth(longitude, latitude) else None


def distance(one: Coordinates, other: Coordinates) -> float:
    """Return the metres between two points, on a sphere."""
    chord = math.dist(unit_vector(one), unit_vector(other))
    return 2 * EARTH_RADIUS * math.asin(min(chord / 2, 1.0))


def unit_vector(point: Coordinates) -> tuple[float, float, float]:
    """Return the vector from the center of the earth to a point on it."""
    longitude, latitude = map(math.radians, point)
    flat = math.cos(latitude)
    return flat * math.cos(longitude), flat * math.sin(longitude), math.sin(latitude)


def _coordinates(value: Any) -> list[Any] | None:
    if not isinstance(value, Mapping) or value.get("type") != _POINT or "crs" in value:
        return None
    found = value.get("coordinates")
    return found if isinstance(found, list) and len(found) >= 2 else None


def _double(value: Any) -> float:
    return float(value.to_decimal() if value.__class__ is Decimal128 else value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _on_earth(longitude: float, latitude: float) -> bool:
    return -LONGITUDE <= longitude <= LONGITUDE and -LATITUDE <= latitude <= LATITUDE
