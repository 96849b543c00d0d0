"""Generated parts of docs/reference equal the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from revstream.gql.observability.error_codes import CODES
from revstream.gql.observability.error_table import TABLE
from revstream.streams.core import resume_tokens
from tools.reference.log_calls import log_calls
from tools.reference.log_events import EVENTS
from tools.reference.pages import FOLDER, PARTS, generate, part_names

ROOT = FOLDER.parents[1]
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_generated_parts_of_a_page_equal_the_code(page: Path) -> None:
    """A change of the code needs its page made anew."""
    text = page.read_text(encoding="utf-8")
    # Lists: pytest shows their first difference in full.
    assert text.splitlines() == generate(text).splitlines(), f"{page.name}: run `make reference`"


def test_each_part_is_on_one_page() -> None:
    """A new command, error code or group of settings needs a place on its page."""
    places = [name for page in PAGES for name in part_names(page.read_text(encoding="utf-8"))]
    assert sorted(places) == sorted(PARTS)


def test_every_error_code_of_the_table_is_described() -> None:
    """A code without a meaning would be on no page."""
    assert set(CODES) == {rule.code for rule in TABLE.values()}


def test_the_facts_of_error_codes_are_those_that_errors_are_raised_with() -> None:
    """A new fact in `extensions` needs its meaning, and a described one must exist."""
    codes = {kind.__name__: rule.code for kind, rule in TABLE.items()}
    raised: set[tuple[str, str]] = set()
    words: set[str] = set()
    for package in ("gql", "resolvers", "streams"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name == "error_codes.py":
                continue
            text = path.read_text(encoding="utf-8")
            words |= set(re.findall(r"\w+", text))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    code = codes.get(node.func.id)
                    names = {each.arg for each in node.keywords} - _NO_FACTS
                    raised |= {(code, name) for name in names if code and name}
    described = {(code, name) for code, each in CODES.items() for name in each.facts}
    assert ("HISTORY_LOST", "oldestTime") in raised
    assert raised - described == set()
    assert {name for _, name in described} - words == set()


def test_each_log_event_of_the_source_has_a_meaning() -> None:
    """A new event needs a place on the page, and a removed one leaves it."""
    described = [event for group in EVENTS.values() for event in group]
    assert sorted(described) == sorted({each.text for each in log_calls()})


def test_each_attribute_of_the_python_interface_has_a_meaning() -> None:
    """It is in the docstring of its class."""
    page = (FOLDER / "python.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `\w+` \|.*\|  \|$", page, re.M) == []
    assert "| `document` |" in page


def test_the_examples_of_resume_tokens_are_valid_and_in_order() -> None:
    """The page shows tokens as clients get them."""
    page = (FOLDER / "resume-tokens.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| `([0-9A-F]{16}[^`]*)` \|", page, re.M)
    assert len(examples) == 3
    decoded = [resume_tokens.decode(each, each.rpartition(".")[2]) for each in examples]
    assert decoded == sorted(decoded)
    for each, token in zip(examples, decoded, strict=True):
        assert resume_tokens.encode(token, each.rpartition(".")[2]) == each


# Arguments of constructors that become no facts, or facts by another name.
_NO_FACTS = {"document_id", "expected", "found", "headers", "number", "past"}
