"""Progress of initial snapshots: bars on a terminal, otherwise throttled log lines."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from rich.console import Console

from revstream.gql.observability.logging_setup import configure_logging
from revstream.gql.runtime import progress_display
from revstream.gql.runtime.progress_display import shown_readings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Provide a clock whose time is the only element of the list."""
    now = [1000.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now[0])
    return now


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int | None, int | None]]:
    return [
        (each.getMessage(), getattr(each, "documents", None), getattr(each, "per_second", None))
        for each in caplog.records
    ]


async def test_a_snapshot_logs_its_progress_every_ten_seconds(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    """Start and end are logged, too; single chunks are not."""
    caplog.set_level(logging.INFO)
    async with shown_readings() as report:
        report("things", 0, 300)
        for read in range(1, 299):
            clock[0] += 0.1
            report("things", read, 300)
        report("things", 299, 299)
    assert logged(caplog) == [
        ("first reading", 0, None),
        ("first reading", 100, 10),
        ("first reading", 200, 10),
        ("first reading done", 299, 10),
    ]


async def test_snapshots_of_several_collections_are_logged_separately(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    """An interrupted one is logged, and has a rate of its own when it continues.

    An empty one is not logged.
    """
    caplog.set_level(logging.INFO)
    async with shown_readings() as report:
        report("things", 0, 100)
        report("others", 0, 100)
        clock[0] += 1
        report("things", 0, 0)
        report("empty", 0, 0)
        clock[0] += 100
        report("things", 40, 100)
        clock[0] += 2
        report("others", 100, 100)
        report("things", 100, 100)
    assert logged(caplog) == [
        ("first reading", 0, None),
        ("first reading", 0, None),
        ("first reading interrupted", None, None),
        ("first reading", 40, None),
        ("first reading done", 100, 1),
        ("first reading done", 100, 30),
    ]


async def test_a_terminal_has_a_bar_below_the_log_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Standard error is replaced while the bar is visible, and restored after."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(
        progress_display,
        "Console",
        lambda **_: Console(file=terminal, force_terminal=True, width=80, color_system=None),
    )
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    try:
        configure_logging("info", json=False)
        async with shown_readings() as report:
            report("things", 10, 100)
            assert sys.stderr is not terminal
            logging.getLogger("test").info("something happened")
            report("things", 20, 100)
            report("things", 100, 100)
            assert sys.stderr is terminal
            report("things", 0, 0)
    finally:
        root.handlers[:], root.level = before
    output = terminal.getvalue()
    assert "reading things" in output
    assert "/100" in output
    assert "something happened\n" in output
