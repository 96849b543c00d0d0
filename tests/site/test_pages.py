"""Tutorials and how-tos, run as a reader would do it: docs/contributing/documentation.md.

One page: `pytest tests/site/test_pages.py -k quickstart`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.page import Page, read_page
from tests.site.page_run import followed_page
from tests.site.visits import VISITS

ROOT = Path(__file__).parents[2]

PAGES = [
    read_page(path, path.relative_to(ROOT).as_posix())
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs" / "tutorials").glob("**/*.md")),
        *sorted((ROOT / "docs" / "how-to").glob("**/*.md")),
    )
]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.exhaustive if each.exhaustive else ())
        for each in PAGES
        if each.steps
    ],
)
def test_a_page_does_what_it_says(page: Page) -> None:
    """Its commands succeed, outputs, answers and events are those on the page, and what it builds
    works in a browser."""
    with followed_page(page) as ports:
        if page.name in VISITS:
            VISITS[page.name](ports)
