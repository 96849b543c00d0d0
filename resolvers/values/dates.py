"""Conversion between BSON dates and RFC 3339 text: UTC, milliseconds, any year that BSON holds.

BSON dates are 64 bits of milliseconds, more than Python's years 1 to 9999. Dates outside are
`DatetimeMS`, written in ECMAScript's form: `+010000-01-01T00:00:00.000Z`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from bson.datetime_ms import DatetimeMS
from bson.tz_util import utc

__all__ = [
    "DAY_MS",
    "date_from_text",
    "date_text",
    "date_texts",
    "day_from_text",
    "day_text",
    "from_milliseconds",
    "in_utc",
    "milliseconds",
    "utc_text",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
DAY_MS = 86_400_000
FIRST_MS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MILLISECOND
LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MILLISECOND

_POINT = ord(".")
_DATETIME = frozenset({datetime})
_UTC = orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z
_MIDNIGHT = "T00:00:00.000Z"
_DAY = re.compile(r"(\d{4}|[+-]\d{6,9})-\d\d-\d\d", re.ASCII)
_LENGTH = len("2024-05-01T12:00:00.123Z")

RFC_3339 = re.compile(
    r"(?P<year>\d{4}|[+-]\d{6,9})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"[Tt](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))?"
    r"(?:[Zz]|(?P<offset>[+-](?P<offset_hour>\d\d):(?P<offset_minute>\d\d)))",
    re.ASCII,
)


def milliseconds(date: datetime | DatetimeMS) -> int:
    """Return the milliseconds since 1970, as BSON stores them; a naive datetime counts as UTC."""
    if isinstance(date, DatetimeMS):
        return int(date)
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - EPOCH) // MILLISECOND


def from_milliseconds(count: int) -> datetime | DatetimeMS:
    """Return the date as the driver decodes it: a datetime if Python supports the year."""
    if FIRST_MS <= count <= LAST_MS:
        return EPOCH + timedelta(milliseconds=count)
    return DatetimeMS(count)


def date_text(date: datetime | DatetimeMS) -> str:
    """Format a date, for example `2024-05-01T12:00:00.000Z`."""
    if isinstance(date, DatetimeMS):
        return _far_text(int(date))
    if date.tzinfo is not None and date.tzinfo is not utc:
        # Dates of the driver are in UTC. Other zones come from input, and may exceed Python's last
        # year when converted to UTC.
        moved = from_milliseconds(milliseconds(date))
        if isinstance(moved, DatetimeMS):
            return _far_text(int(moved))
        date = moved
    return utc_text(date)


def utc_text(date: datetime) -> str:
    """Format a date in UTC, naive or aware; orjson takes a third of `isoformat`'s time."""
    text = orjson.dumps(date)
    # In quotes; then microseconds, if not zero, and "+00:00", if aware.
    return text[1:24].decode() + "Z" if text[20] == _POINT else text[1:20].decode() + ".000Z"


def date_texts(values: Sequence[Any]) -> Sequence[str | None]:
    """Format many dates, in half the time of single calls; None for values that are no datetime."""
    if {*map(type, values)} != _DATETIME:
        return [date_text(each) if each.__class__ is datetime else None for each in values]
    text = orjson.dumps(values, option=_UTC).decode()
    # orjson writes microseconds, whose last three digits are zero in stored dates, or no fraction.
    text = text.replace('000Z"', 'Z"') if "." in text else text.replace('Z"', '.000Z"')
    texts = text[2:-2].split('","')
    if {_LENGTH}.issuperset(map(len, texts)):
        return texts
    # Whole seconds are shorter by their fraction; other zones are longer.
    return [
        text
        if len(text) == _LENGTH
        else text[:-1] + ".000Z"
        if len(text) == _LENGTH - len(".000")
        else date_text(date)
        for text, date in zip(texts, values, strict=True)
    ]


def in_utc(value: Any) -> Any:
    """Return a stored value with the time zone UTC added to naive dates, as comparisons need it."""
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=utc)
        case dict():
            return {name: in_utc(each) for name, each in value.items()}
        case list():
            return [in_utc(each) for each in value]
    return value


def date_from_text(text: str) -> datetime | DatetimeMS | None:
    """Parse an RFC 3339 date and time; digits beyond milliseconds are dropped.

    Returns:
        None if the text is not a valid date and time.
    """
    match = RFC_3339.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    year, month, day = int(part["year"]), int(part["month"]), int(part["day"])
    hour, minute, second = int(part["hour"]), int(part["minute"]), int(part["second"])
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    count = _days_from_civil(year, month, day) * DAY_MS
    count += ((hour * 60 + minute) * 60 + second) * 1000
    count += int((part["fraction"] or "0")[:3].ljust(3, "0"))
    if part["offset"]:
        offset_hour, offset_minute = int(part["offset_hour"]), int(part["offset_minute"])
        if offset_hour > 23 or offset_minute > 59:
            return None
        offset = (offset_hour * 60 + offset_minute) * 60_000
        count -= offset if part["offset"][0] == "+" else -offset
    return from_milliseconds(count) if -(2**63) <= count < 2**63 else None


def day_text(date: datetime | DatetimeMS) -> str | None:
    """Format a day, for example `2024-05-01`; None for another time than midnight in UTC."""
    text = date_text(date)
    return text.removesuffix(_MIDNIGHT) if text.endswith(_MIDNIGHT) else None


def day_from_text(text: str) -> datetime | DatetimeMS | None:
    """Parse a day, as midnight in UTC; None if the text is not a valid day."""
    return date_from_text(text + _MIDNIGHT) if _DAY.fullmatch(text) else None


def _far_text(count: int) -> str:
    days, rest = divmod(count, DAY_MS)
    year, month, day = _civil_from_days(days)
    seconds, ms = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    years = f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"
    return f"{years}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"


def _days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


# The two below are days_from_civil and civil_from_days of Howard Hinnant's "chrono-Compatible
# Low-Level Date Algorithms": the Gregorian calendar in both directions without end, in eras of 400
# years that begin on 1 March.


def _days_from_civil(year: int, month: int, day: int) -> int:
    era, of_era = divmod(year - (month <= 2), 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil_from_days(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day
