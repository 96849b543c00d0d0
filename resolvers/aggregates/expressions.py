"""Expressions of MongoDB for the values of fields that fit the model, and for time buckets.

A value that does not fit, or is missing, is null: `resolvers.values.output` refuses the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from bson.binary import Binary
from bson.int64 import Int64

from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.dates import DAY_MS
from revstream.resolvers.values.output import INT_LIMIT, LONG_LIMIT

__all__ = [
    "Bucket",
    "Expression",
    "any_id",
    "bucket_start",
    "fitting_value",
    "unknown_time_zone",
]

Expression: TypeAlias = Any
"""An expression of MongoDB's aggregation language."""

_INFINITY = float("inf")
_SHOWN_CHARACTERS = 80
# The years that every program can show. MongoDB refuses to truncate dates far outside of them.
_FIRST_DAY = datetime(1, 1, 2, tzinfo=UTC)
_LAST_DAY = datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Buckets of a unit of time in a time zone.

    Attributes:
        unit: MongoDB's name of the unit, as `day`.
        time_zone: an Olson name or an offset from UTC.
    """

    unit: str
    time_zone: str


def unknown_time_zone(time_zones: Iterable[str]) -> BadUserInput:
    """Return the error for time zones of which MongoDB does not know one."""
    given = " or ".join(sorted({repr(each[:_SHOWN_CHARACTERS]) for each in time_zones}))
    return BadUserInput(
        f"timeZone: {given}, expected an Olson name such as Europe/Berlin, or an offset such as "
        "+02:00; correct it",
        argument="groupBy",
    )


def fitting_value(field: Field, path: str) -> Expression:
    """Return the expression for a field's value if it fits, otherwise null.

    Numbers have the type by which they are measured: Int and Long are a long, Float a double,
    Decimal a decimal.

    Args:
        path: stored path of the field.
    """
    value = f"${path}"
    if isinstance(field.type, EnumType):
        fits: Expression = {"$in": [value, {"$literal": list(field.type.by_stored)}]}
        return _if(fits, value)
    assert isinstance(field.type, Scalar)
    return _FITTING[field.type](value)


def any_id(value: Expression) -> Expression:
    """Return the expression for an id of any type; null for a list, which is no id."""
    return _if({"$not": [{"$isArray": value}]}, {"$ifNull": [value, None]})


def bucket_start(bucket: Bucket, date: Expression) -> Expression:
    """Return the expression for the start of the bucket of a date; weeks begin on Monday.

    A date outside of the years 1 to 9999 has no bucket.
    """
    # literal: a time zone such as "$name" is no field path
    zone = {"$literal": bucket.time_zone}
    truncated: dict[str, Any] = {"date": date, "unit": bucket.unit, "timezone": zone}
    if bucket.unit == "week":
        truncated["startOfWeek"] = "monday"
    shown = {"$and": [{"$gte": [date, _FIRST_DAY]}, {"$lte": [date, _LAST_DAY]}]}
    return _if(shown, {"$dateTrunc": truncated})


def _if(condition: Expression, value: Expression) -> Expression:
    return {"$cond": [condition, value, None]}


def _whole(limit: int) -> Callable[[str], Expression]:
    """Return the expression of integers below a limit; a double without a fraction is one."""

    def fitting(value: str) -> Expression:
        # Values of other types are below or above all numbers, and NaN is below them.
        is_whole = {
            "$and": [
                {"$gte": [value, Int64(-limit)]},
                {"$lte": [value, Int64(limit - 1)]},
                {"$ne": [{"$type": value}, "decimal"]},
                {"$eq": [value, {"$trunc": value}]},
            ]
        }
        return _if(is_whole, {"$toLong": value})

    return fitting


def _is_finite(value: str) -> list[Expression]:
    return [{"$gt": [value, -_INFINITY]}, {"$lt": [value, _INFINITY]}]


def _float(value: str) -> Expression:
    double = {"$toDouble": value}
    exact = [{"$ne": [{"$type": value}, "decimal"]}, {"$eq": [value, double]}]
    return _if({"$and": [*_is_finite(value), *exact]}, double)


def _decimal(value: str) -> Expression:
    return _if({"$and": _is_finite(value)}, {"$toDecimal": value})


def _of_type(name: str) -> Callable[[str], Expression]:
    return lambda value: _if({"$eq": [{"$type": value}, name]}, value)


def _day(value: str) -> Expression:
    midnight = {"$eq": [{"$mod": [{"$toLong": value}, DAY_MS]}, 0]}
    return _if({"$eq": [{"$type": value}, "date"]}, _if(midnight, value))


def _uuid(value: str) -> Expression:
    # Binary data is ordered by length, then subtype, then content.
    least, most = Binary(b"\x00" * 16, 4), Binary(b"\xff" * 16, 4)
    return _if({"$and": [{"$gte": [value, least]}, {"$lte": [value, most]}]}, value)


_FITTING: Mapping[Scalar, Callable[[str], Expression]] = {
    Scalar.ID: any_id,
    Scalar.STRING: _of_type("string"),
    Scalar.INT: _whole(INT_LIMIT),
    Scalar.LONG: _whole(LONG_LIMIT),
    Scalar.FLOAT: _float,
    Scalar.DECIMAL: _decimal,
    Scalar.BOOLEAN: _of_type("bool"),
    Scalar.DATETIME: _of_type("date"),
    Scalar.DATE: _day,
    Scalar.TIMESTAMP: _of_type("timestamp"),
    Scalar.OBJECTID: _of_type("objectId"),
    Scalar.UUID: _uuid,
}
