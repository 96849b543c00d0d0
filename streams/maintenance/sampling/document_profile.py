"""Kinds of BSON values, added to the profile of a collection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from revstream.model.inference.profile import FieldProfile, Kind, ObjectProfile
from revstream.model.inference.union_type import may_discriminate

__all__ = ["add_document"]

_EXACT = 2**53
_UUID_BYTES = 16
_DAY_MS = 86_400_000
# Documents that are embedded more deeply are of no type: queries have a limit of depth, too.
_DEEPEST = 10
# Of longitudes and latitudes.
_MOST_DEGREES = (180, 90)
_KINDS: dict[type, Kind] = {
    type(None): Kind.NULL,
    bool: Kind.BOOLEAN,
    int: Kind.INT,
    Decimal128: Kind.DECIMAL,
    ObjectId: Kind.OBJECTID,
    Timestamp: Kind.TIMESTAMP,
    # Decoded from binary data of subtype 0.
    bytes: Kind.BINARY,
}


def add_document(
    profile: ObjectProfile,
    document: Mapping[str, Any],
    *,
    rare: bool = False,
    depth: int = 0,
    listed: bool = False,
    variants: bool = True,
) -> None:
    """Add a document, or an embedded one.

    Args:
        rare: The document was looked for, and does not count in the shares.
        depth: Number of documents and lists around it.
        listed: Whether there is a list around it.
        variants: Whether documents are also added by the text that may tell their types apart.
            Inside of embedded ones they are not, which would double the work at each level.
    """
    _add_fields(profile, document, rare, depth, listed, variants)
    for name, value in document.items() if variants else ():
        if value.__class__ is str and _discriminates(profile, name, depth):
            one = profile.variant(name, value)
            # A type may be seen in rare documents only: the first of them counts.
            _add_fields(one, document, rare and one.count > 0, depth, listed, not depth)


def _discriminates(profile: ObjectProfile, name: str, depth: int) -> bool:
    return may_discriminate(name) if depth else name in profile.discriminators


def _add_fields(
    profile: ObjectProfile,
    document: Mapping[str, Any],
    rare: bool,
    depth: int,
    listed: bool,
    variants: bool,
) -> None:
    profile.count += not rare
    for name, value in document.items():
        _add(profile.field_profile(name), value, rare, depth + 1, listed, variants)
    if rare:
        for name in profile.fields.keys() - document.keys():
            profile.fields[name].rarely_missing = True


def _add(
    profile: FieldProfile, value: Any, rare: bool, depth: int, listed: bool, variants: bool
) -> None:
    if value.__class__ is str:
        profile.add_text(value, rare=rare)
        return
    if isinstance(value, datetime | DatetimeMS):
        # The search for misfits cannot see the times of dates in lists.
        profile.add_date(None if listed else _day(value), rare=rare)
        return
    kind = _kind(value)
    if kind in (Kind.OBJECT, Kind.POINT, Kind.LIST) and depth > _DEEPEST:
        kind = Kind.OTHER
    if kind in (Kind.INT, Kind.LONG, Kind.HUGE):
        profile.add_number(kind, value, rare=rare)
        return
    profile.add(kind, rare=rare)
    if kind in (Kind.OBJECT, Kind.POINT):
        # A point is described as an object too, in case other values of the field are none.
        inner = profile.object_fields()
        add_document(inner, value, rare=rare, depth=depth, listed=listed, variants=variants)
    elif kind is Kind.LIST:
        items = profile.list_items()
        for each in value:
            _add(items, each, rare, depth + 1, True, variants)


def _day(value: datetime | DatetimeMS) -> int | None:
    """Return the number of the day; None if the date has a time."""
    if isinstance(value, DatetimeMS):
        days, rest = divmod(int(value), _DAY_MS)
        return None if rest else days
    midnight = not (value.hour or value.minute or value.second or value.microsecond)
    return value.toordinal() if midnight else None


def _is_point(value: Mapping[str, Any]) -> bool:
    place = value.get("coordinates")
    return (
        value.get("type") == "Point"
        and "crs" not in value
        and isinstance(place, list)
        and len(place) == len(_MOST_DEGREES)
        and all(
            each.__class__ in (int, float, Int64) and -most <= each <= most
            for each, most in zip(place, _MOST_DEGREES, strict=True)
        )
    )


def _kind(value: Any) -> Kind:
    known = _KINDS.get(value.__class__)
    if known is not None:
        return known
    if isinstance(value, Mapping):
        return Kind.POINT if _is_point(value) else Kind.OBJECT
    if isinstance(value, list):
        return Kind.LIST
    if value.__class__ is float:
        return Kind.FLOAT if math.isfinite(value) else Kind.NOT_FINITE
    if value.__class__ is Int64:
        return Kind.LONG if abs(value) <= _EXACT else Kind.HUGE
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
        return Kind.UUID
    return Kind.OTHER
