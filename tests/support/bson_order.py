"""Second implementation of MongoDB's order of BSON values, for tests to compare with."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

__all__ = ["sort_key"]

_RANKS: tuple[tuple[int, type | tuple[type, ...]], ...] = (
    (0, MinKey),
    (1, type(None)),
    (8, bool),
    (2, (int, float, Decimal128)),
    (13, Code),
    (3, str),
    (4, dict),
    (6, (Binary, bytes)),
    (7, ObjectId),
    (9, (datetime, DatetimeMS)),
    (10, Timestamp),
    (11, Regex),
    (14, MaxKey),
)


def _rank(value: Any) -> int:
    return next(rank for rank, kinds in _RANKS if isinstance(value, kinds))


def _number(value: Any) -> tuple[bool, Decimal]:
    number = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)
    # NaN comes before all other numbers.
    return (False, Decimal(0)) if number.is_nan() else (True, number)


def _within(value: Any) -> Any:
    match _rank(value):
        case 0 | 1 | 14:
            return 0
        case 2:
            return _number(value)
        case 3 | 13:
            return str(value).encode()
        case 4:
            return [(_rank(each), name.encode(), sort_key(each)) for name, each in value.items()]
        case 6:
            subtype = value.subtype if isinstance(value, Binary) else 0
            return (len(value), subtype, bytes(value))
        case 9:
            return int(value if isinstance(value, DatetimeMS) else DatetimeMS(value))
        case 11:
            return (value.pattern.encode(), value.flags)
        case _:
            return value


def _compared(one: Any, other: Any) -> int:
    ranks = _rank(one), _rank(other)
    if ranks[0] != ranks[1]:
        return ranks[0] - ranks[1]
    mine, theirs = _within(one), _within(other)
    return (mine > theirs) - (mine < theirs)


sort_key = cmp_to_key(_compared)
"""Key for `sorted`: null and missing values are None."""
