"""Conversion of BSON values to JSON, the same wherever a value is returned."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from revstream.resolvers.values.dates import date_text

__all__ = [
    "JSON",
    "REFUSED",
    "REGEX_FLAGS",
    "SAFE_INTEGER",
    "json_value",
    "safe_integer",
    "uuid_text",
]

SAFE_INTEGER = 2**53 - 1
"""Largest integer that JavaScript, and many JSON readers, represent exactly."""

REFUSED: Final = object()
"""Result of a conversion for a value that it does not accept; None is a valid result."""


def uuid_text(value: Any) -> Any:
    """Return the UUID's text, or REFUSED; the driver decodes UUIDs to either class."""
    if value.__class__ is Binary and value.subtype == UUID_SUBTYPE and len(value) == 16:
        return str(UUID(bytes=bytes(value)))
    return str(value) if value.__class__ is UUID else REFUSED


def json_value(value: object) -> Any:
    """Return any BSON value as JSON; types that JSON lacks become text or extended JSON.

    As in typed fields, integers beyond `SAFE_INTEGER`, decimals, dates, ids, UUIDs and other binary
    data are text; so are NaN and the infinities. Integers and doubles stay distinct: 1 and 1.0.
    """
    if value.__class__ in _AS_IT_IS or (value.__class__ is float and value - value == 0):
        return value
    convert = JSON.get(value.__class__)
    if convert is not None:
        return convert(value)
    if isinstance(value, Mapping):
        return {key: json_value(item) for key, item in value.items()}
    return str(value)


def safe_integer(value: Any) -> int | str:
    """Return the integer, or its text if it is beyond `SAFE_INTEGER`."""
    return int(value) if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(int(value))


def _json_regex(value: Any) -> dict[str, Any]:
    flags = "".join(letter for letter, bit in REGEX_FLAGS.items() if value.flags & bit)
    return {"$regularExpression": {"pattern": str(value.pattern), "options": flags}}


def _json_code(value: Any) -> dict[str, Any]:
    scope = {} if value.scope is None else {"$scope": json_value(value.scope)}
    return {"$code": str(value), **scope}


REGEX_FLAGS = {"i": re.I, "l": re.L, "m": re.M, "s": re.S, "u": re.U, "x": re.X}

_AS_IT_IS = frozenset({str, bool, type(None)})

JSON: Mapping[type, Callable[[Any], Any]] = {
    float: lambda value: value if math.isfinite(value) else str(Decimal128(repr(value))),
    int: safe_integer,
    Int64: safe_integer,
    dict: lambda value: {key: json_value(item) for key, item in value.items()},
    list: lambda value: [json_value(item) for item in value],
    Decimal128: str,
    datetime: date_text,
    DatetimeMS: date_text,
    ObjectId: str,
    UUID: str,
    bytes: lambda value: base64.b64encode(value).decode(),
    Binary: lambda value: (
        base64.b64encode(value).decode() if (text := uuid_text(value)) is REFUSED else text
    ),
    Timestamp: lambda value: {"$timestamp": {"t": value.time, "i": value.inc}},
    Regex: _json_regex,
    Code: _json_code,
    DBRef: lambda value: json_value(value.as_doc()),
    MinKey: lambda _: {"$minKey": 1},
    MaxKey: lambda _: {"$maxKey": 1},
}
