"""The documentation site: its build, its navigation, and what its pages load."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from tests.site.page import read_blocks

ROOT = Path(__file__).parents[2]
EXECUTED = ("tutorials", "how-to")

# Attributes whose address a browser loads by itself; `href` of these elements only.
_LOADED = ("src", "srcset", "poster", "data")
_LINKED = "link"


class _Content(HTMLParser):
    """Parts of a page: addresses that a browser loads with it, code blocks, navigation."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.blocks = 0
        self.navigation: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.addresses += [given[name] for name in _LOADED if name in given]
        if tag == _LINKED and given.get("rel") != "canonical":
            self.addresses.append(given["href"])
        if tag == "a" and "md-nav__link" in given.get("class", "") and "#" not in given["href"]:
            self.navigation.add(given["href"])
        if tag == "pre":
            self.blocks += 1


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    """The site works offline: scripts, styles, fonts and pictures are files of it."""
    pages = [*site.rglob("*.html")]
    assert len(pages) > 60
    for page in pages:
        for address in _Content(page.read_text(encoding="utf-8")).addresses:
            assert not re.match(r"\w+:(?!image/)|//", address), f"{page.name}: {address}"
            path = re.split("[?#]", address)[0]
            # The page for missing addresses is shown at any of them.
            file = site / path[1:] if page.name == "404.html" else page.parent / path
            assert address.startswith("data:") or file.exists(), f"{page.name}: {address}"
    for style in site.rglob("*.css"):
        loaded = re.findall(r"url\(\s*[\"']?(\w+:|//)", style.read_text(encoding="utf-8"))
        assert set(loaded) <= {"data:"}, style.name


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """A page that is left out would be found by nobody."""
    listed = _Content((site / "index.html").read_text(encoding="utf-8")).navigation
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    expected = {each.with_suffix(".html").as_posix().replace("README", "index") for each in pages}
    assert listed == expected


def test_the_site_shows_each_block_that_the_tests_run(site: Path) -> None:
    """A block that only one of them recognizes would be a block that is not run, or not shown."""
    for folder in EXECUTED:
        for path in sorted((ROOT / "docs" / folder).rglob("*.md")):
            blocks = [each for each in read_blocks(path) if each.run != "stop"]
            html = site / path.relative_to(ROOT / "docs").with_suffix(".html")
            assert _Content(html.read_text(encoding="utf-8")).blocks == len(blocks), path.name


def test_pictures_are_small() -> None:
    """A page on a slow line is there in a moment."""
    for picture in (ROOT / "docs").rglob("*.png"):
        assert picture.stat().st_size <= 150_000, picture.name
