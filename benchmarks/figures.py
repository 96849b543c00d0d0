"""Medians, percentiles, and tables for the terminal and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, Self

from benchmarks.charts import Chart

__all__ = ["Part", "Table", "medians", "over_rounds", "percentile"]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of them do not exceed; NaN of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [median(column) for column in zip(*rows, strict=True)]


class Table:
    """Rows with a name and figures, printed as Markdown."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title = title
        self._columns = columns
        self._rows: list[tuple[str, tuple[float | str, ...]]] = []
        self._notes: list[str] = []

    def add(self, name: str, *cells: float | str) -> None:
        self._rows.append((name, cells))

    def note(self, text: str) -> None:
        """Add a sentence below the table."""
        self._notes.append(text)

    def over(self, rounds: Sequence[Self]) -> Self:
        """Return the median of each figure of several tables; words and notes are this one's.

        Raises:
            ValueError: the tables have different rows.
        """
        made = type(self)(self.title, *self._columns)
        made._notes = self._notes
        for row in zip(*(each._rows for each in rounds), strict=True):
            names = {name for name, _ in row}
            if len(names) > 1:
                raise ValueError(f"{self.title}: rows in some rounds only: {sorted(names)}")
            made.add(row[-1][0], *map(_median, zip(*(cells for _, cells in row), strict=True)))
        return made

    def markdown(self) -> str:
        shown = [(name, *map(_text, cells)) for name, cells in self._rows]
        rows = [self._columns, *shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rule = [f"{'-' * (width - 1)}{':' if n else '-'}" for n, width in enumerate(widths)]
        lines = [f"### {self.title}", ""]
        for row in (self._columns, rule, *shown):
            cells = (
                cell.rjust(width) if n else cell.ljust(width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append(f"| {' | '.join(cells)} |")
        for note in self._notes:
            lines += ["", note]
        return "\n".join(lines)


def _text(cell: float | str) -> str:
    """Return the number with three significant digits, without an exponent."""
    if isinstance(cell, str):
        return cell
    if not math.isfinite(cell):
        return "-"
    if abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


def _median(cells: Sequence[float | str]) -> float | str:
    figures = [each for each in cells if not isinstance(each, str)]
    return median(figures) if len(figures) == len(cells) else cells[-1]


Part = Table | Chart
"""A part of a benchmark's results."""


def over_rounds(rounds: Sequence[Sequence[Part]]) -> list[Part]:
    """Return the medians of a benchmark's results in several rounds."""
    parts: list[Part] = []
    for each in zip(*rounds, strict=True):
        last: Any = each[-1]
        parts.append(last.over(each))
    return parts
