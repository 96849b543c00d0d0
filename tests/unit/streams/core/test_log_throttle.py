"""Throttled log lines: the first, then a count."""

from __future__ import annotations

import logging

import pytest

from revstream.streams.core.log_throttle import LogThrottle
from tests.support.eventually import eventually

log = logging.getLogger("tests.storms")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int | None, int]]:
    """Return event, count of further ones, and last key of each log line."""
    return [
        (each.getMessage(), getattr(each, "more", None), each.key)  # type: ignore[attr-defined]
        for each in caplog.records
        if each.name == log.name
    ]


async def test_the_first_is_logged_at_once_and_the_others_as_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand events are two lines, and each event is counted."""
    storm = LogThrottle(log, "torn", every_s=0.05)
    for key in range(1000):
        storm.note(key=key)
    assert logged(caplog) == [("torn", None, 0)]
    await eventually(lambda: logged(caplog) == [("torn", None, 0), ("torn", 999, 999)])


async def test_an_event_after_a_pause_is_logged_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An interval without events makes the next one a first one."""
    storm = LogThrottle(log, "torn", every_s=0.01)
    storm.note(key=1)
    await eventually(lambda: storm._timer is None)
    storm.note(key=2)
    assert logged(caplog) == [("torn", None, 1), ("torn", None, 2)]
