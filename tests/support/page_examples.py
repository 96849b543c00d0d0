"""Examples of a page: requests in ```graphql blocks, and the answers in the ```json blocks after
them. A ```json block with the title "request" is a whole body, one with "variables" a part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.site.matching import json_difference, missing_line
from tests.site.page import Block, read_blocks

__all__ = ["PageExample", "assert_answer", "assert_lines", "headed_blocks", "page_examples"]


@dataclass
class PageExample:
    """A request's body and its answers: one, or the events of a subscription."""

    heading: str
    line: int
    body: dict[str, Any]
    answers: list[Any] = field(default_factory=list)


def page_examples(page: Path) -> list[PageExample]:
    """Return the examples of a page in order; a block without a request before it is none."""
    found: list[PageExample] = []
    for heading, block in headed_blocks(page):
        if block.language == "graphql" and not block.title:
            found.append(PageExample(heading, block.line, {"query": block.text}))
        elif block.language == "json" and block.title == "request":
            found.append(PageExample(heading, block.line, json.loads(block.text)))
        elif block.language == "json" and found and found[-1].heading == heading:
            if block.title == "variables":
                found[-1].body["variables"] = json.loads(block.text)
            else:
                found[-1].answers.append(json.loads(block.text))
    return found


def headed_blocks(page: Path) -> Iterator[tuple[str, Block]]:
    """Yield each fenced block with the heading above it."""
    blocks = read_blocks(page)
    fenced = {
        line
        for block in blocks
        for line in range(block.line, block.line + block.text.count("\n") + 2)
    }
    headings = [
        (number, found[1])
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := re.match(r"#+ (.+)", line)) and number not in fenced
    ]
    for block in blocks:
        above = [text for number, text in headings if number < block.line]
        yield above[-1] if above else "", block


def assert_answer(actual: Any, expected: Any) -> None:
    """Compare an answer with that of a page.

    Raises:
        AssertionError: names the first difference.
    """
    difference = json_difference(expected, actual)
    assert difference is None, difference


def assert_lines(actual: str, expected: str) -> None:
    """Compare an output with that of a page: its lines come in this order, others between them.

    Raises:
        AssertionError: names the first line that does not come.
    """
    missing = missing_line(expected, actual)
    assert missing is None, f"{missing}\nin:\n{actual}"
