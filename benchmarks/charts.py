"""Charts that Markdown viewers draw (Mermaid's `xychart`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["bars", "curve"]

_POINTS = 60
"""Of a curve: more are not told apart at the width that charts have."""

# Dark enough for a line.
_COLOUR = '%%{init: {"themeVariables": {"xyChart": {"plotColorPalette": "#4a6fa5"}}}}%%'


def bars(title: str, figures: Mapping[str, float]) -> str:
    """A bar for each name."""
    names = ", ".join(f'"{name}"' for name in figures)
    return _chart(title, f"[{names}]", "", "bar", list(figures.values()))


def curve(title: str, across: str, end: float, up: str, heights: Sequence[float]) -> str:
    """A line through heights that were measured evenly between 0 and `end`.

    Args:
        across, up: what the axes tell, with its unit.
    """
    step = max(1, -(-len(heights) // _POINTS))
    return _chart(title, f'"{across}" 0 --> {end:.4g}', f'"{up}" ', "line", heights[::step])


def _chart(title: str, x_axis: str, y_title: str, kind: str, heights: Sequence[float]) -> str:
    values = ", ".join(f"{each:.4g}" for each in heights)
    return "\n".join(
        [
            "```mermaid",
            _COLOUR,
            "xychart-beta",
            f'    title "{title}"',
            f"    x-axis {x_axis}",
            f"    y-axis {y_title}0 --> {max(heights) * 1.1:.4g}",
            f"    {kind} [{values}]",
            "```",
        ]
    )
