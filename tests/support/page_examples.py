"""Examples of a page: requests in ```graphql blocks, and the answers in the ```json blocks after
them. A ```json block with the title "request" is a whole body, one with "variables" a part of it.

`"…"` stands for any value; as the last item of a list, or as the name of a field, for any rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["PageExample", "assert_answer", "assert_lines", "blocks", "page_examples"]

_ANY = "…"
_BLOCK = re.compile(r"^(#+) (.+?)$|^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", re.M | re.S)


@dataclass
class PageExample:
    """A request's body and its answers: one, or the events of a subscription."""

    heading: str
    body: dict[str, Any]
    answers: list[Any] = field(default_factory=list)


def page_examples(page: Path) -> list[PageExample]:
    """Return the examples of a page in order; a block without a request before it is none."""
    found: list[PageExample] = []
    for heading, language, title, text in blocks(page):
        if language == "graphql" and not title:
            found.append(PageExample(heading, {"query": text}))
        elif language == "json" and title == "request":
            found.append(PageExample(heading, json.loads(text)))
        elif language == "json" and found and found[-1].heading == heading:
            if title == "variables":
                found[-1].body["variables"] = json.loads(text)
            else:
                found[-1].answers.append(json.loads(text))
    return found


def blocks(page: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield heading, language, title and text of each fenced block."""
    heading = ""
    for each in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if each[2]:
            heading = each[2]
        else:
            yield heading, each[3], each[4] or "", each[5]


def assert_answer(actual: Any, expected: Any, place: str = "answer") -> None:
    """Compare an answer with that of a page.

    Raises:
        AssertionError: with the place of the first difference.
    """
    if expected == _ANY:
        return
    if isinstance(expected, dict) and isinstance(actual, dict):
        names = expected.keys() - {_ANY}
        assert names == (actual.keys() & names if _ANY in expected else actual.keys()), place
        for name in names:
            assert_answer(actual[name], expected[name], f"{place}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list):
        is_open = bool(expected) and expected[-1] == _ANY
        known = expected[:-1] if is_open else expected
        assert len(actual) >= len(known) if is_open else len(actual) == len(known), place
        for index, (found, each) in enumerate(zip(actual, known, strict=False)):
            assert_answer(found, each, f"{place}[{index}]")
    elif isinstance(expected, str) and isinstance(actual, str) and _ANY in expected:
        pattern = ".*".join(map(re.escape, expected.split(_ANY)))
        assert re.fullmatch(pattern, actual, re.S), f"{place}: {actual!r}, expected {expected!r}"
    else:
        assert actual == expected, place


def assert_lines(actual: str, expected: str) -> None:
    """Compare an output with that of a page: its lines come in this order, others between them.

    Raises:
        AssertionError: names the first line that does not come.
    """
    rest = iter(actual.splitlines())
    for line in expected.splitlines():
        if line.strip() in ("", _ANY):
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split(_ANY))))
        assert any(pattern.fullmatch(each.rstrip()) for each in rest), f"{line}\nin:\n{actual}"
