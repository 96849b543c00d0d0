"""Charts that Markdown viewers draw (Mermaid's `xychart`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median
from typing import Self

__all__ = ["Chart", "bars", "curve"]

_POINTS = 60
"""Points of a curve; more cannot be distinguished at the width of a chart."""

# Dark enough for a line.
_COLOUR = '%%{init: {"themeVariables": {"xyChart": {"plotColorPalette": "#4a6fa5"}}}}%%'


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of one series.

    Args:
        x_axis, y_title: in Mermaid's syntax.
        kind: `bar` or `line`.
    """

    title: str
    x_axis: str
    y_title: str
    kind: str
    heights: Sequence[float]

    def over(self, rounds: Sequence[Self]) -> Self:
        """Return the medians of several charts; this chart if their numbers of heights differ."""
        if len({len(each.heights) for each in rounds}) != 1:
            return self
        heights = zip(*(each.heights for each in rounds), strict=True)
        return replace(self, heights=[median(each) for each in heights])

    def markdown(self) -> str:
        values = ", ".join(map(_rounded, self.heights))
        return "\n".join(
            [
                "```mermaid",
                _COLOUR,
                "xychart-beta",
                f'    title "{self.title}"',
                f"    x-axis {self.x_axis}",
                f"    y-axis {self.y_title}0 --> {_rounded(max(self.heights) * 1.1)}",
                f"    {self.kind} [{values}]",
                "```",
            ]
        )


def bars(title: str, figures: Mapping[str, float]) -> Chart:
    """Return a chart with a bar for each name."""
    names = ", ".join(f'"{name}"' for name in figures)
    return Chart(title, f"[{names}]", "", "bar", list(figures.values()))


def curve(title: str, across: str, end: float, up: str, heights: Sequence[float]) -> Chart:
    """Return a line through heights that were measured at equal distances between 0 and `end`.

    Args:
        across, up: titles of the axes, with units.
    """
    step = max(1, -(-len(heights) // _POINTS))
    return Chart(title, f'"{across}" 0 --> {_rounded(end)}', f'"{up}" ', "line", heights[::step])


def _rounded(value: float) -> str:
    """Return four digits, without the exponent, which Mermaid does not read."""
    return format(Decimal(f"{value:.4g}"), "f")
