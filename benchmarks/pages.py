"""Pages of `docs/` that contain benchmark results between marks with the benchmarks' names.

Everything else on a page is written by hand and stays: explanations, and where the time is spent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Part

__all__ = ["BENCHMARKS", "LAYOUTS", "fill", "markdown", "names"]

_DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS = _DOCS / "contributing" / "benchmarks.md"
LAYOUTS = _DOCS / "explanation" / "layouts.md"


def names(text: str) -> list[str]:
    """Return the names of the benchmarks on a page, in its order."""
    return re.findall(r"^<!-- benchmark ([\w-]+) -->$", text, re.M)


def fill(text: str, name: str, made: str) -> str:
    """Return the page with other content between the marks of this benchmark.

    Raises:
        ValueError: the page has no such marks, or several.
    """
    begin, end = f"<!-- benchmark {name} -->\n", f"<!-- /benchmark {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page needs {begin.strip()} and {end} once each")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{made}\n{end}{after}"


def markdown(origin: str, parts: Sequence[Part]) -> str:
    """Return the Markdown of results.

    Args:
        origin: date and machine of the measurement.
    """
    shown = [each.markdown() for each in parts]
    told = f"<details><summary>Measured on</summary>\n\n{origin}\n\n</details>"
    return "\n\n".join([*shown, told])
