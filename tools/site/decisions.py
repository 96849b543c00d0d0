"""Put each decision page into the navigation, which a new page then needs no line for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

INDEX = "decisions/README.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages after their index."""
    pages = sorted(Path(config.docs_dir, "decisions").glob("[0-9]*.md"))
    _lists(config.nav)[INDEX].extend(f"decisions/{each.name}" for each in pages)
    return config


def _lists(nav: list[object]) -> dict[object, list[object]]:
    """Return the list of the navigation that each page stands in."""
    found: dict[object, list[object]] = {}
    for each in nav:
        if isinstance(each, dict):
            [below] = each.values()
            if isinstance(below, list):
                found |= _lists(below)
        else:
            found[each] = nav
    return found
