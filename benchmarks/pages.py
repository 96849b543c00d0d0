"""Pages of `docs/` that hold what benchmarks have found, between marks that bear their names.

Everything else on a page is written by hand and stays: what the figures mean, where the time goes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Part

__all__ = ["BENCHMARKS", "LAYOUTS", "fill", "markdown", "names"]

_DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS = _DOCS / "benchmarks.md"
LAYOUTS = _DOCS / "layouts.md"


def names(text: str) -> list[str]:
    """Of the benchmarks that a page has a place for, in its order."""
    return re.findall(r"^<!-- benchmark ([\w-]+) -->$", text, re.M)


def fill(text: str, name: str, made: str) -> str:
    """The page with another content between the marks of this benchmark.

    Raises:
        ValueError: the page has no place for it, or more than one.
    """
    begin, end = f"<!-- benchmark {name} -->\n", f"<!-- /benchmark {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page needs {begin.strip()} and {end} once each")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{made}\n{end}{after}"


def markdown(origin: str, parts: Sequence[Part]) -> str:
    """Args:
    origin: when and on what they were measured.
    """
    shown = [each.markdown() for each in parts]
    told = f"<details><summary>Measured on</summary>\n\n{origin}\n\n</details>"
    return "\n\n".join([*shown, told])
