"""Conversion of request values to BSON.

A value may be JSON (decimals, dates and ids as text) or a result of `from_api`, which can be
converted again. Only dates are rounded, to milliseconds, which is MongoDB's precision.

The opposite direction is `resolvers.values.output`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import DecimalException
from typing import Any, NoReturn
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from revstream.model.definition import EnumType, Field, Scalar
from revstream.model.naming import with_article
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.dates import (
    date_from_text,
    day_from_text,
    day_text,
    from_milliseconds,
    milliseconds,
)
from revstream.resolvers.values.json_value import REFUSED, json_value, uuid_text
from revstream.resolvers.values.output import (
    INT_LIMIT,
    LONG_LIMIT,
    any_id,
    shorten_repr,
    whole_number,
)
from revstream.resolvers.values.points import point_from_api
from revstream.streams.changefeed.event import possible_ids

__all__ = ["field_from_api", "from_api", "id_from_api", "ids_from_api", "ids_meant"]

JSON_DEPTH = 80
"""Maximum depth of a JSON value; MongoDB stores documents of up to 100 levels."""

DECIMAL_TEXT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,5})?|NaN|-?Infinity")
NUMBER_TEXT = re.compile(r"0|-?[1-9][0-9]{0,18}")
TIMESTAMP_TEXT = re.compile("(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9})")
UUID_TEXT = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def id_from_api(scalar: Scalar, value: object, name: str) -> Any:
    """Convert an ID to the stored `_id`; its text must be exactly the one that the API returns.

    Args:
        name: the field for the error message, such as "Supplier.id".

    Raises:
        BadUserInput: no document can have this id.
    """
    return ids_from_api(scalar, name)(value)


def ids_from_api(scalar: Scalar, name: str) -> Callable[[object], Any]:
    """Return `id_from_api` for many ids of one type."""
    convert, whole = FROM_API[scalar], scalar in (Scalar.INT, Scalar.LONG)

    def id_(value: object) -> Any:
        asked = value
        if whole and isinstance(value, str):
            # Not "007" or "+7": a document has one id, which client caches use as key.
            asked = int(value) if NUMBER_TEXT.fullmatch(value) else REFUSED
        found = convert(asked)
        return _refuse(scalar, value, name) if found is REFUSED else found

    return id_


def ids_meant(text: str) -> tuple[Any, ...]:
    """Return the stored ids that have this text as `ID`, of any type, the text itself first.

    Null, and binary data other than UUIDs, are excluded: nearly every other text would mean them
    too.
    """
    if text[:1] not in "-+0123456789abcdeft{NI":
        return (text,)
    if NUMBER_TEXT.fullmatch(text) and -LONG_LIMIT <= int(text) < LONG_LIMIT:
        # MongoDB compares it as equal to the same number of any other type.
        return text, Int64(int(text))
    meant: list[Any] = [text]
    for pattern, make in OTHER_IDS:
        other = make(text) if pattern.fullmatch(text) else REFUSED
        if other is not REFUSED and any_id(other) == text and other not in meant:
            meant.append(other)
    return tuple(possible_ids(meant))


def _double(text: str) -> Any:
    try:
        return float(text)
    except (ValueError, OverflowError):
        return REFUSED


def _document(text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return REFUSED
    return _json(found)


def _document_of_ids(text: str) -> Any:
    """Return the document with texts replaced by ids of other types, as composite ids often have
    them.
    """
    found = _document(text)
    return REFUSED if found is REFUSED else _with_other_ids(found)


def _with_other_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_other_ids(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_other_ids(each) for each in value]
    if not isinstance(value, str):
        return value
    return next((each for each in ids_meant(value)[1:] if json_value(each) == value), value)


def field_from_api(field: Field, value: object, name: str) -> Any:
    """Convert one item of a field to BSON: a scalar, an id or an enum value, other than null.

    Raises:
        BadUserInput: not a value of the field's type; the message begins with `name`.
    """
    if isinstance(field.type, EnumType):
        if not isinstance(value, str) or value not in field.type.values:
            raise BadUserInput(
                f"{name}: {shorten_repr(value)}, expected one of {', '.join(field.type.values)}"
            )
        return field.type.stored(value)
    if field.type is Scalar.ID:
        return id_from_api(field.stored_scalar or Scalar.ID, value, name)
    if isinstance(field.type, str):
        raise TypeError(f"{name} is an embedded {field.type}, not a single value")
    return from_api(field.type, value, name)


def from_api(scalar: Scalar, value: object, name: str) -> Any:
    """Convert a value of a scalar to BSON, other than null.

    Raises:
        BadUserInput: not a value of the scalar; the message begins with `name`.
    """
    found = FROM_API[scalar](value)
    return _refuse(scalar, value, name) if found is REFUSED else found


def _refuse(scalar: Scalar, value: object, name: str) -> NoReturn:
    raise BadUserInput(
        f"{name}: {shorten_repr(value)}, expected {with_article(scalar.value)}: {EXPECTED[scalar]}"
    )


def _string(value: Any) -> Any:
    if not isinstance(value, str):
        return REFUSED
    try:
        value.encode()
    except UnicodeEncodeError:
        # An unpaired surrogate is valid in Python and JSON text, but not in BSON.
        return REFUSED
    return value


def _int(value: Any) -> Any:
    number = whole_number(value)
    return REFUSED if number is None or not -INT_LIMIT <= number < INT_LIMIT else number


def _long(value: Any) -> Any:
    if isinstance(value, str):
        number = int(value) if re.fullmatch(r"-?[0-9]{1,19}", value) else None
    else:
        number = whole_number(value)
    return REFUSED if number is None or not -LONG_LIMIT <= number < LONG_LIMIT else Int64(number)


def _float(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return REFUSED
    try:
        number = float(value)
    except OverflowError:
        return REFUSED
    return number if math.isfinite(number) else REFUSED


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else REFUSED


def _decimal(value: Any) -> Any:
    if isinstance(value, Decimal128):
        return value
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 10**34:
        return REFUSED
    else:
        text = repr(value)
    if not DECIMAL_TEXT.fullmatch(text):
        return REFUSED
    try:
        # Raises for more than 34 digits; does not round.
        return Decimal128(text)
    except DecimalException:
        return REFUSED


def _datetime(value: Any) -> Any:
    if isinstance(value, str):
        return date_from_text(value) or REFUSED
    if not isinstance(value, datetime | DatetimeMS):
        return REFUSED
    # A filter must mean the same time in MongoDB, which has milliseconds, and in Python.
    return from_milliseconds(milliseconds(value))


def _date(value: Any) -> Any:
    if isinstance(value, str):
        return day_from_text(value) or REFUSED
    if not isinstance(value, datetime | DatetimeMS) or day_text(value) is None:
        return REFUSED
    return from_milliseconds(milliseconds(value))


def _timestamp(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return value
    if not isinstance(value, str) or not TIMESTAMP_TEXT.fullmatch(value):
        return REFUSED
    seconds, counter = map(int, value.split(":"))
    # MongoDB replaces an empty timestamp by its own time.
    if max(seconds, counter) >= 2**32 or not seconds + counter:
        return REFUSED
    return Timestamp(seconds, counter)


def _binary(value: Any) -> Any:
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            return REFUSED
        # One text for each value: the decoder ignores unused bits.
        return data if base64.b64encode(data).decode() == value else REFUSED
    return value if value.__class__ is bytes else REFUSED


def _objectid(value: Any) -> Any:
    if isinstance(value, str):
        return ObjectId(value) if re.fullmatch("[0-9a-fA-F]{24}", value) else REFUSED
    return value if isinstance(value, ObjectId) else REFUSED


def _uuid(value: Any) -> Any:
    if isinstance(value, str):
        return Binary(UUID(value).bytes, UUID_SUBTYPE) if UUID_TEXT.fullmatch(value) else REFUSED
    if isinstance(value, UUID):
        return Binary(value.bytes, UUID_SUBTYPE)
    return value if uuid_text(value) is not REFUSED else REFUSED


def _json(value: Any, depth: int = JSON_DEPTH) -> Any:
    """Return the value if BSON can hold it: numbers of 64 bits or less, no NUL in a key."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if isinstance(key, str) and ("\0" in key or _string(key) is REFUSED):
                return REFUSED
            if depth == 0 or _json(item, depth - 1) is REFUSED:
                return REFUSED
        return value
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else REFUSED
    if isinstance(value, int) and not -LONG_LIMIT <= value < LONG_LIMIT:
        return REFUSED
    return value if value is None or isinstance(value, int) else REFUSED


FROM_API: Mapping[Scalar, Callable[[object], Any]] = {
    Scalar.ID: _string,
    Scalar.STRING: _string,
    Scalar.INT: _int,
    Scalar.LONG: _long,
    Scalar.FLOAT: _float,
    Scalar.BOOLEAN: _boolean,
    Scalar.DECIMAL: _decimal,
    Scalar.DATETIME: _datetime,
    Scalar.DATE: _date,
    Scalar.TIMESTAMP: _timestamp,
    Scalar.OBJECTID: _objectid,
    Scalar.UUID: _uuid,
    Scalar.BINARY: _binary,
    Scalar.POINT: point_from_api,
    Scalar.JSON: _json,
}

_NUMBER = re.compile(r"-?[0-9]{1,310}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?|NaN|-?Infinity")
_DOCUMENT = re.compile(r"\{.{1,5000}\}", re.DOTALL)

OTHER_IDS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile("[0-9a-f]{24}"), ObjectId),
    (UUID_TEXT, _uuid),
    (_NUMBER, _decimal),
    (_NUMBER, _double),
    (re.compile("true|false"), lambda text: text == "true"),
    (re.compile(r"[+-]?[0-9]{4,9}-[0-9T:.-]{1,25}Z"), _datetime),
    (_DOCUMENT, _document),
    (_DOCUMENT, _document_of_ids),
)
"""Patterns of the texts of other id types, and the conversion to the stored id."""

EXPECTED: Mapping[Scalar, str] = {
    Scalar.ID: "text",
    Scalar.STRING: "text",
    Scalar.INT: "a whole number of 32 bits",
    Scalar.LONG: "a whole number of 64 bits",
    Scalar.FLOAT: "a finite number",
    Scalar.BOOLEAN: "true or false",
    Scalar.DECIMAL: "a decimal number of at most 34 digits",
    Scalar.DATETIME: "a date and time with offset, as in 2024-05-01T12:00:00.000Z",
    Scalar.DATE: "a day, as in 2024-05-01",
    Scalar.TIMESTAMP: "seconds and a counter, as in 1714550400:1",
    Scalar.OBJECTID: "24 hexadecimal digits",
    Scalar.UUID: "32 hexadecimal digits in groups of 8-4-4-4-12",
    Scalar.BINARY: "Base64 with padding",
    Scalar.POINT: "a longitude from -180 to 180 and a latitude from -90 to 90",
    Scalar.JSON: "JSON with numbers of at most 64 bits and at most 80 levels",
}
