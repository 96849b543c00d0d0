"""Conversion of stored values to the API.

A value is accepted if nothing of it is lost: any integer type for Int, Long and Float, a double
without a fraction for Int and Long too (JavaScript stores all numbers as doubles), and every number
for Decimal. Text is never read as a number, nor a number as text or boolean. Anything else is a
`DocumentMisfit`, which affects only its field.

The opposite direction is `resolvers.values.input`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from revstream.model.definition import Discriminator, EnumType, Field, Scalar
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.dates import date_text, day_text
from revstream.resolvers.values.json_value import REFUSED, json_value, safe_integer, uuid_text
from revstream.resolvers.values.points import point_to_api

__all__ = [
    "ID_CLASSES",
    "ID_TO_API",
    "INT_LIMIT",
    "LONG_LIMIT",
    "TEXT_IDS",
    "TO_API",
    "Convert",
    "ValueLocation",
    "any_id",
    "converter",
    "describe_value",
    "id_to_api",
    "whole_number",
]

INT_LIMIT = 2**31
LONG_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class ValueLocation:
    """Document and path of a value, for error messages; created once per document, not per field.

    Attributes:
        past: True for a state of the past, which cannot be changed.
    """

    collection: str
    document_id: object
    path: str = ""
    past: bool = False

    def inside(self, name: str) -> ValueLocation:
        """Return the location of the embedded document in field `name`."""
        return ValueLocation(self.collection, self.document_id, f"{self.path}{name}.", self.past)

    def misfit(
        self,
        name: str,
        value: object,
        expected: str,
        discriminator: Discriminator | None = None,
    ) -> DocumentMisfit:
        """Create the error for a value of field `name` that does not match the model.

        Args:
            discriminator: of the union that the field holds.
        """
        found = describe_value(value)
        if discriminator is not None and isinstance(value, Mapping):
            found += (
                f" with {discriminator.stored} {describe_value(value.get(discriminator.stored))}"
            )
        return DocumentMisfit(
            collection=self.collection,
            document_id=any_id(self.document_id),
            field=self.path + name,
            found=found,
            expected=expected,
            mend=_mend(name, value, expected),
            past=self.past,
        )


Convert = Callable[[object, ValueLocation], Any]


@lru_cache(maxsize=4096)
def converter(field: Field, *, nullable: bool = False) -> Convert:
    """Return the conversion of a field's values; missing values are passed as None.

    Embedded documents are returned unconverted; their fields are converted at
    `ValueLocation.inside`. The conversion raises `DocumentMisfit` for a value that does not match
    the model, or is missing although required.

    Args:
        nullable: True to accept null in any field: for snapshots, since history outlives the model.
    """
    name, required = field.name, field.required and not nullable
    one, expected = _one(field)
    if field.is_list:
        return _list_converter(field, one, expected, required)
    if _identifies(field) and field.stored_scalar in TEXT_IDS:
        # Null is a valid id, too.
        return lambda value, place: one(value)

    def convert(value: object, place: ValueLocation) -> Any:
        if value is None:
            if required:
                raise place.misfit(name, None, expected)
            return None
        shown = one(value)
        if shown is REFUSED:
            raise place.misfit(name, value, expected, field.discriminator)
        return shown

    return convert


def _list_converter(
    field: Field, one: Callable[[Any], Any], expected: str, required: bool
) -> Convert:
    name, item_required = field.name, field.item_required

    def convert(values: object, place: ValueLocation) -> Any:
        if values is None and not required:
            return None
        if not isinstance(values, list):
            raise place.misfit(name, values, f"a list of {expected}")
        shown = [None if value is None else one(value) for value in values]
        for index, item in enumerate(shown):
            if item is REFUSED or (item is None and item_required):
                raise place.misfit(f"{name}.{index}", values[index], expected, field.discriminator)
        return shown

    return convert


def _one(field: Field) -> tuple[Callable[[Any], Any], str]:
    """Return the conversion of one value of the field, and a description of what it accepts."""
    if isinstance(field.type, EnumType):
        by_stored = field.type.by_stored
        return (
            lambda value: by_stored.get(value, REFUSED) if value.__class__ is str else REFUSED,
            f"one of {', '.join(by_stored)}",
        )
    if field.discriminator is not None:
        discriminator = field.discriminator
        values = ", ".join(each.value for each in discriminator.members)
        return (
            lambda value: (
                value if isinstance(value, Mapping) and discriminator.member(value) else REFUSED
            ),
            f"{field.type_name} with {discriminator.stored} one of {values}",
        )
    if isinstance(field.type, str):
        return lambda value: value if isinstance(value, Mapping) else REFUSED, field.type
    if field.type is not Scalar.ID:
        return TO_API[field.type], field.type.value
    # The reference itself checks to which document it leads.
    scalar = field.stored_scalar if _identifies(field) else None
    return ID_TO_API[scalar or Scalar.ID], (scalar or Scalar.ID).value


def _identifies(field: Field) -> bool:
    """Return whether the field is an entity's id; subdocuments may have an `_id` under another
    name.
    """
    return field.stored == "_id" and field.name == "id"


def id_to_api(scalar: Scalar, value: object, place: ValueLocation) -> str:
    """Return the ID of a document with this `_id`, whose declared type is `scalar`."""
    shown: Any = ID_TO_API[scalar](value)
    if shown is REFUSED:
        raise place.misfit("id", value, scalar.value)
    text: str = shown
    return text


# One function per scalar, for any value but None: returns the API's value, or REFUSED.


def _string(value: Any) -> Any:
    # Compares the class itself: bson.Code is a subclass of str.
    return value if value.__class__ is str else REFUSED


def whole_number(value: Any) -> int | None:
    """Return the number if it is an integer of any numeric type; booleans are not numbers."""
    if value.__class__ is int or value.__class__ is Int64:
        return int(value)
    return int(value) if value.__class__ is float and value.is_integer() else None


def _int(value: Any) -> Any:
    number = whole_number(value)
    return REFUSED if number is None or not -INT_LIMIT <= number < INT_LIMIT else number


def _long(value: Any) -> Any:
    number = whole_number(value)
    if number is None or not -LONG_LIMIT <= number < LONG_LIMIT:
        return REFUSED
    return safe_integer(number)


def _float(value: Any) -> Any:
    if value.__class__ is float:
        # JSON has no NaN and no infinity.
        return value if math.isfinite(value) else REFUSED
    # GraphQL's Float refuses integers that it would round.
    whole = value.__class__ is int or value.__class__ is Int64
    return int(value) if whole and int(float(value)) == value else REFUSED


def _boolean(value: Any) -> Any:
    return value if value.__class__ is bool else REFUSED


def _decimal(value: Any) -> Any:
    if value.__class__ is Decimal128:
        return str(value)
    if value.__class__ is float:
        # repr is the shortest text that is unique to this double.
        return str(Decimal128(repr(value)))
    return str(int(value)) if value.__class__ is int or value.__class__ is Int64 else REFUSED


def _datetime(value: Any) -> Any:
    return date_text(value) if isinstance(value, datetime | DatetimeMS) else REFUSED


def _date(value: Any) -> Any:
    text = day_text(value) if isinstance(value, datetime | DatetimeMS) else None
    return REFUSED if text is None else text


def _timestamp(value: Any) -> Any:
    return f"{value.time}:{value.inc}" if value.__class__ is Timestamp else REFUSED


def _binary(value: Any) -> Any:
    # The driver decodes subtype 0 to bytes; the text of others would lose their subtype.
    return base64.b64encode(value).decode() if value.__class__ is bytes else REFUSED


def _objectid(value: Any) -> Any:
    return str(value) if value.__class__ is ObjectId else REFUSED


def any_id(value: Any) -> str:
    """Return the text of an id of any type; other programs may have stored any type."""
    if value.__class__ is str:
        text: str = value
        return text
    number = whole_number(value)
    shown = json_value(value) if number is None else number
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _whole_id(value: Any) -> Any:
    number = whole_number(value)
    return REFUSED if number is None else str(number)


TO_API: Mapping[Scalar, Callable[[Any], Any]] = {
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
    Scalar.UUID: uuid_text,
    Scalar.BINARY: _binary,
    Scalar.POINT: point_to_api,
    Scalar.JSON: json_value,
}

ID_TO_API: Mapping[Scalar, Callable[[Any], Any]] = {
    Scalar.ID: any_id,
    Scalar.STRING: any_id,
    Scalar.INT: _whole_id,
    Scalar.LONG: _whole_id,
    Scalar.OBJECTID: _objectid,
    Scalar.UUID: uuid_text,
}
TEXT_IDS = frozenset({None, Scalar.ID, Scalar.STRING})
"""Scalars of ids that are declared as text; ids of every type may be stored there."""

ID_CLASSES: Mapping[Scalar, type] = {
    Scalar.ID: str,
    Scalar.STRING: str,
    Scalar.INT: int,
    Scalar.OBJECTID: ObjectId,
}
"""Usual Python classes of stored ids, which are never refused."""


def describe_value(value: object) -> str:
    """Return the type in MongoDB's terms and the value if it is short, as `string 'cheap'`."""
    if value is None:
        return "null or missing"
    if isinstance(value, Mapping):
        return "a document"
    if isinstance(value, list):
        return "an array"
    kind = BSON_NAMES.get(value.__class__, value.__class__.__name__)
    return f"{kind} {shorten_repr(json_value(value))}"


def _mend(name: str, value: object, expected: str) -> str:
    """Return how to make the document and the model match each other."""
    if value is None:
        return f"store a value in {name}, or remove its ! in the model"
    declared = DECLARED.get(value.__class__)
    otherwise = "change the field's type in the model"
    if declared is not None and declared.value != expected:
        otherwise = f"declare the field as {declared.value} in the model"
    return f"store {expected} there, or {otherwise}"


_CONSTANTS: Mapping[bool | None, str] = {None: "null", True: "true", False: "false"}


def shorten_repr(value: object, length: int = 80) -> str:
    """Return the value's repr, or null, true or false as in JSON, shortened to `length`."""
    if value is None or isinstance(value, bool):
        return _CONSTANTS[value]
    if isinstance(value, int) and value.bit_length() > 10_000:
        # Python refuses to convert it to text.
        return "a number of thousands of digits"
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 1]}…"


BSON_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "int",
    Int64: "long",
    float: "double",
    Decimal128: "decimal",
    datetime: "date",
    DatetimeMS: "date",
    ObjectId: "objectId",
    Binary: "binData",
    bytes: "binData",
    UUID: "UUID",
    Timestamp: "timestamp",
    Regex: "regex",
    Code: "javascript",
    MinKey: "minKey",
    MaxKey: "maxKey",
}

DECLARED: Mapping[type, Scalar] = {
    str: Scalar.STRING,
    bool: Scalar.BOOLEAN,
    int: Scalar.INT,
    Int64: Scalar.LONG,
    float: Scalar.FLOAT,
    Decimal128: Scalar.DECIMAL,
    datetime: Scalar.DATETIME,
    DatetimeMS: Scalar.DATETIME,
    ObjectId: Scalar.OBJECTID,
    UUID: Scalar.UUID,
    bytes: Scalar.BINARY,
    Timestamp: Scalar.TIMESTAMP,
    dict: Scalar.JSON,
}
"""Scalar with which the model declares values of each class."""
