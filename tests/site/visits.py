"""Visits of a browser to the web pages that pages of the documentation build.

Each does what the reader is told to do, and keeps the screenshot that the documentation shows in
`.build/screenshots`. `tools/site/screenshots.py` brings it to `docs/images`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright
from pymongo import MongoClient

from tests.site.page_run import Ports
from tests.support.chromium import chromium_options

__all__ = ["SCREENSHOTS", "VISITS"]

SCREENSHOTS = Path(".build/screenshots")
WIDTH, HEIGHT = 900, 230
PATIENCE_MS = 60_000


@contextmanager
def _opened(address: str) -> Iterator[Page]:
    """Open an address in Chromium; an error of the page is an error here."""
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_options())
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-GB")
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        yield page
        browser.close()
    assert wrong == []


def _visit_live_page(ports: Ports) -> None:
    with (
        _opened(f"http://127.0.0.1:{ports[8080]}/live.html") as page,
        MongoClient[dict[str, Any]](f"mongodb://127.0.0.1:{ports[27017]}") as client,
    ):
        tickets = client["helpdesk"]["tickets"]
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(2, timeout=PATIENCE_MS)
        page.screenshot(path=SCREENSHOTS / "live-tickets.png")
        tickets.update_one({"_id": 1002}, {"$set": {"status": "open"}})
        expect(rows.first).to_contain_text("No sound", timeout=PATIENCE_MS)
        tickets.update_one({"_id": 1003}, {"$set": {"status": "closed"}})
        expect(page.get_by_text("Password forgotten")).to_have_count(0, timeout=PATIENCE_MS)
        expect(rows).to_have_count(2)


VISITS: dict[str, Callable[[Ports], None]] = {
    "docs/tutorials/your-own-database.md": _visit_live_page,
}
"""Visits by pages, once all blocks of the page have run."""
