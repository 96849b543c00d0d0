"""Generated parts of the pages, by name, and their places in a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import (
    api,
    commands,
    configuration,
    errors,
    filters,
    log_events,
    metrics,
    model_language,
    python_api,
    transcripts,
)

__all__ = ["FOLDER", "PARTS", "generate", "part_names"]

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PARTS: Mapping[str, Callable[[], str]] = {
    **api.PARTS,
    **commands.PARTS,
    **configuration.PARTS,
    **errors.PARTS,
    **filters.PARTS,
    **log_events.PARTS,
    **metrics.PARTS,
    **model_language.PARTS,
    **python_api.PARTS,
    **transcripts.PARTS,
}

_PART = re.compile(r"<!-- generated: (.+?) -->\n.*?<!-- /generated -->", re.S)


def generate(page: str) -> str:
    """Return a page with its generated parts made anew.

    Raises:
        KeyError: the page names a part that does not exist.
    """

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return f"<!-- generated: {name} -->\n\n{PARTS[name]().strip()}\n\n<!-- /generated -->"

    return _PART.sub(part, page)


def part_names(page: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return _PART.findall(page)
