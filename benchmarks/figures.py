"""Medians, percentiles, and tables that are read on a terminal and quoted in a README alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["Part", "Table", "medians", "percentile"]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed; NaN of none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of each column."""
    return [median(column) for column in zip(*rows, strict=True)]


class Table:
    """Rows of a name and figures, as Markdown."""

    def __init__(self, title: str, *columns: str) -> None:
        self.title = title
        self._columns = columns
        self._rows: list[tuple[str, ...]] = []
        self._notes: list[str] = []

    def add(self, name: str, *cells: float | str) -> None:
        self._rows.append((name, *map(_text, cells)))

    def note(self, text: str) -> None:
        """A sentence beneath the table."""
        self._notes.append(text)

    def markdown(self) -> str:
        rows = [self._columns, *self._rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rule = [f"{'-' * (width - 1)}{':' if n else '-'}" for n, width in enumerate(widths)]
        lines = [f"### {self.title}", ""]
        for row in (self._columns, rule, *self._rows):
            cells = (
                cell.rjust(width) if n else cell.ljust(width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append(f"| {' | '.join(cells)} |")
        for note in self._notes:
            lines += ["", note]
        return "\n".join(lines)


def _text(cell: float | str) -> str:
    """Three digits that matter, no exponent."""
    if isinstance(cell, str):
        return cell
    if not math.isfinite(cell):
        return "-"
    if abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


Part = Table | str
"""Of what a benchmark has found: a table, or a chart (`benchmarks.charts`)."""
