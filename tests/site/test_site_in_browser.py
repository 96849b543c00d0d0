"""The documentation site as files in Chromium, which reaches no network: wide and small screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.support.chromium import chromium_options
from tests.support.exhaustive import representatives

PATIENCE_MS = 60_000
FOLDERS = ("", "tutorials", "how-to", "reference", "explanation", "contributing")
SMALL = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Open a small page; an error in it, or a request over the network, fails."""
    wrong: list[str] = []

    def asked(address: str) -> None:
        if not address.startswith(("file:", "data:", "blob:")):
            wrong.append(f"asked for {address}")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_options())
        page = browser.new_page(viewport=SMALL)
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked(request.url))
        yield page
        browser.close()
    assert wrong == []


@pytest.mark.parametrize("folder", representatives(FOLDERS, "reference", "explanation"))
def test_no_page_is_wider_than_a_small_screen(site: Path, page: Page, folder: str) -> None:
    """Tables, blocks and diagrams are scrolled, each by itself."""
    wide = {}
    for path in sorted((site / folder).glob("*.html")):
        page.goto(path.as_uri())
        width = page.evaluate("document.scrollingElement.scrollWidth")
        if width > SMALL["width"]:
            wide[path.name] = width
    assert wide == {}


def test_diagrams_are_drawn(site: Path, page: Page) -> None:
    """Each is right for Mermaid, which is a file of the site."""
    drawn = 0
    for path in sorted(site.rglob("*.html")):
        if '<pre class="mermaid">' in path.read_text(encoding="utf-8"):
            page.goto(path.as_uri())
            expect(page.locator("pre.mermaid")).to_have_count(0, timeout=PATIENCE_MS)
            diagrams = page.locator("div.mermaid")
            heights = diagrams.evaluate_all("all => all.map((each) => each.offsetHeight)")
            assert min(heights) > 40, path.name
            drawn += len(heights)
    assert drawn > 20


def test_the_search_finds_pages_without_a_server(site: Path, page: Page) -> None:
    """A browser reads no index from a file; the site brings it as a script."""
    page.goto((site / "index.html").as_uri())
    page.locator("label[for=__search].md-header__button").click()
    page.locator(".md-search__input").press_sequentially("fencing token")
    results = page.locator(".md-search-result__item")
    expect(results.first).to_contain_text("encing", timeout=PATIENCE_MS)
