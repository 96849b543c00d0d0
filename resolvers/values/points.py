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

__all__ = ["LATITUDE", "LONGITUDE", "point_from_api", "point_to_api", "stored_coordinates"]

LONGITUDE, LATITUDE = 180, 90
"""Largest values, in degrees."""

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


def stored_coordinates(value: Any) -> tuple[float, float] | None:
    """Return the longitude and latitude that MongoDB sees in a stored value; None for no point."""
    found = _coordinates(value)
    if found is None or not (_NUMBERS | {Decimal128}).issuperset(map(type, found[:2])):
        return None
    longitude, latitude = map(_double, found[:2])
    return (longitude, latitude) if _on_earth(longitude, latitude) else None


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
