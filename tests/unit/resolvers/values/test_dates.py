"""Conversion of dates between BSON and RFC 3339 text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from hypothesis import example, given
from hypothesis import strategies as st

from revstream.resolvers.values.dates import (
    date_from_text,
    date_text,
    date_texts,
    from_milliseconds,
    milliseconds,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_date_of_bson_survives_its_text(count: int) -> None:
    """Any 64-bit number of milliseconds is written, and parsed to the same number."""
    date = from_milliseconds(count)
    assert milliseconds(date) == count
    again = date_from_text(date_text(date))
    assert again is not None
    assert milliseconds(again) == count


@given(st.datetimes(timezones=st.just(UTC)))
def test_dates_in_pythons_range_are_written_as_by_python(date: datetime) -> None:
    """The calendar is Python's for the years that Python supports."""
    whole = date.replace(microsecond=date.microsecond // 1000 * 1000)
    assert date_from_text(whole.isoformat()) == whole
    assert date_text(whole) == whole.isoformat(timespec="milliseconds")[:-6] + "Z"


DATES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(from_milliseconds),
    st.integers(-(10**14), 10**14).map(lambda count: from_milliseconds(count // 1000 * 1000)),
    st.integers(-(10**14), 10**14).map(lambda count: from_milliseconds(count // 10 * 10)),
    st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5))])),
)


@example([datetime(9999, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5)))])
@given(st.lists(st.one_of(DATES, st.sampled_from([None, "2024-05-01T12:00:00.000Z", 5]))))
def test_the_texts_of_many_are_those_of_each(values: list[Any]) -> None:
    """A value that is no datetime has no text."""
    expected = [date_text(each) if isinstance(each, datetime) else None for each in values]
    assert list(date_texts(values)) == expected


WHOLE = st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5))])).map(
    lambda each: each.replace(microsecond=0)
)


@given(
    st.one_of(
        st.lists(DATES.filter(lambda each: isinstance(each, datetime)), min_size=1),
        st.lists(WHOLE, min_size=1),
    )
)
def test_the_texts_of_dates_alone_are_those_of_each(dates: list[datetime]) -> None:
    """Dates have whole seconds, tenths or microseconds, with and without a zone."""
    assert list(date_texts(dates)) == [date_text(each) for each in dates]


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("2024-02-29T12:30:45Z", "2024-02-29T12:30:45.000Z"),
        ("2024-05-01t14:00:00.1239999+02:00", "2024-05-01T12:00:00.123Z"),
        ("1969-12-31T23:59:59.999-00:00", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00+01:00", "0000-12-31T23:00:00.000Z"),
        ("9999-12-31T23:59:59.999-01:00", "+010000-01-01T00:59:59.999Z"),
        ("-000001-12-31T00:00:00Z", "-000001-12-31T00:00:00.000Z"),
        ("+123456-01-01T00:00:00Z", "+123456-01-01T00:00:00.000Z"),
    ],
)
def test_offsets_fractions_and_far_years_are_parsed(text: str, rendered: str) -> None:
    """Any offset becomes UTC, digits beyond milliseconds are cut off, years may be far."""
    date = date_from_text(text)
    assert date is not None
    assert date_text(date) == rendered


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-05-01",
        "2024-05-01T12:00:00",
        "2024-05-01 12:00:00Z",
        "2024-5-1T12:00:00Z",
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2024-04-31T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00.Z",
        "+999999999-01-01T00:00:00Z",
        "٢٠٢٤-01-01T00:00:00Z",
    ],
)
def test_an_invalid_time_is_refused(text: str) -> None:
    """It has no offset, no such day, or more than 64 bits."""
    assert date_from_text(text) is None


def test_zones_do_not_matter_and_none_is_utc() -> None:
    """The same time has the same text in any zone."""
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for date in (
        moment,
        moment.replace(tzinfo=None),
        moment.astimezone(timezone(timedelta(hours=-5))),
        DatetimeMS(moment),
    ):
        assert date_text(date) == "2024-05-01T12:00:00.000Z"
        assert milliseconds(date) == 1_714_564_800_000
