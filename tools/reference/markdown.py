"""Markdown of generated parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["code", "linked", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar within a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines
    )


def code(text: object) -> str:
    """Return a text as code; an empty one stays empty."""
    return f"`{text}`" if str(text) else ""


def linked(text: str) -> str:
    """Return a text of the code with links in place of the paths of pages.

    Asterisks and angle brackets are escaped, since they are not meant as Markdown or HTML there.
    """
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([*<])", r"\\\1", each) for each in pieces[::2]]
    text = re.sub(r"\bdocs/([\w/-]+/)?([\w-]+)\.md", r"[\2](../\1\2.md)", "`".join(pieces))
    return text.replace("](../reference/", "](")
