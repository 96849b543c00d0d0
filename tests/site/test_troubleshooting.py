"""docs/how-to/troubleshoot.md against the messages of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/troubleshoot.md"
PRODUCT = ("gql", "resolvers", "streams")
# A piece of a message in the first column; a table's bar is escaped in Markdown.
MESSAGE = re.compile(r"`([^`]+)`")
# All that these modules expect of settings, credentials and the server is on the page.
COMPLETE = (
    "gql/auth",
    "gql/cli/command_setup.py",
    "gql/runtime",
    "streams/mongo/driver",
    "streams/mongo/server_check.py",
)
LITERAL_CHARACTERS = 6
"""Fewer would be found anywhere."""


def templates(path: Path) -> Iterator[str]:
    """Yield the texts of a module without its docstrings; a formatted value is `…`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
        elif isinstance(node, ast.Expr):
            left_out.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node.value


def modules(*places: str) -> list[Path]:
    found = [ROOT / each for each in places]
    return [path for each in found for path in ([each] if each.is_file() else each.rglob("*.py"))]


def messages() -> list[str]:
    """Return the messages in the first column of the page's tables."""
    rows = re.findall(r"^\| (`.*?) \| .*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [message for row in rows for message in MESSAGE.findall(row)]


def pattern(message: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [text for path in modules(*PRODUCT) for text in templates(path)]


def test_each_message_of_the_page_is_one_of_the_code(texts: list[str]) -> None:
    """A message that was changed or removed fails."""
    found = messages()
    assert len(found) > 100
    for message in found:
        assert len(message.replace("…", "")) >= LITERAL_CHARACTERS, message
        assert any(pattern(message).search(text) for text in texts), f"not in the code: {message}"


def test_the_page_has_what_the_start_and_signing_in_expect() -> None:
    """A new message of these modules is missing on the page until it is written there."""
    known = [pattern(message) for message in messages()]
    expecting = re.compile(r", expected \w")
    for path in modules(*COMPLETE):
        for text in templates(path):
            if expecting.search(text) and "\n" not in text:
                assert any(each.search(text) for each in known), f"{path.name}: {text}"
