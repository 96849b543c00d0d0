"""Visits of a browser to the web pages that pages of the documentation build.

Each does what the reader is told to do, and keeps the screenshot that the documentation shows in
`.build/screenshots`. `tools/site/screenshots.py` brings it to `docs/images`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, expect, sync_playwright
from pymongo import MongoClient

from tests.site.page_run import Ports
from tests.support import http
from tests.support.chromium import chromium_options

__all__ = ["SCREENSHOTS", "VISITS"]

SCREENSHOTS = Path(".build/screenshots")
PATIENCE_MS = 60_000


@contextmanager
def _opened(address: str, *, height: int, width: int = 900) -> Iterator[Page]:
    """Open an address in Chromium; an error of the page is an error here."""
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_options())
        page = browser.new_page(
            viewport={"width": width, "height": height}, locale="en-GB", reduced_motion="reduce"
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        yield page
        browser.close()
    assert wrong == []


def _visit_live_page(ports: Ports) -> None:
    with (
        _opened(f"http://127.0.0.1:{ports[8080]}/live.html", height=230) as page,
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


def _visit_dashboard(ports: Ports) -> None:
    def write(document_id: str, stock: int, comment: str) -> None:
        mutation = "mutation($id: ID!, $by: ProductIncrement, $comment: String) { updateProduct"
        mutation += "(id: $id, increment: $by, comment: $comment) { __typename } }"
        variables = {"id": document_id, "by": {"stock": stock}, "comment": comment}
        address = f"http://127.0.0.1:{ports[8000]}/graphql"
        answer = http.post(address, json={"query": mutation, "variables": variables})
        assert answer.json() == {"data": {"updateProduct": {"__typename": "ProductWritten"}}}

    with _opened(f"http://127.0.0.1:{ports[4173]}/", height=330) as page:
        mug, tea = (page.locator("tbody tr", has_text=each) for each in ("Mug", "Green tea"))
        changes, history = (
            page.locator("section", has_text=each) for each in ("Changes", "History")
        )
        expect(page.locator("tbody tr")).to_have_count(3, timeout=PATIENCE_MS)
        expect(mug).to_contain_text("18")
        mug.click()
        expect(history).to_contain_text("stock 20 → 18", timeout=PATIENCE_MS)
        write("mug", -3, "Sold three")
        for part, text in ((mug, "15"), (changes, "stock 18 → 15"), (history, "Sold three")):
            expect(part).to_contain_text(text, timeout=PATIENCE_MS)
        page.goto("about:blank")
        write("tea", 40, "New delivery")
        page.go_back()
        expect(changes).to_contain_text("stock 150 → 190", timeout=PATIENCE_MS)
        expect(changes).to_contain_text("while you were away")
        expect(tea).to_contain_text("190")
        expect(changes.locator("li")).to_have_count(1)
        write("mug", 60, "New delivery")
        expect(changes.locator("li")).to_have_count(2, timeout=PATIENCE_MS)
        tea.click()
        expect(history).to_contain_text("stock 150 → 190", timeout=PATIENCE_MS)
        page.screenshot(path=SCREENSHOTS / "react-dashboard.png")


def _visit_demo(ports: Ports) -> None:
    address = f"http://127.0.0.1:{ports[8000]}"
    with _opened(f"{address}/#/product/p020", height=600, width=1200) as page:
        expect(page.get_by_text("4 versions")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text("opening offer")).to_be_visible(timeout=PATIENCE_MS)
        page.locator("#timeline").evaluate("heading => scrollTo(0, heading.offsetTop - 24)")
        page.screenshot(path=SCREENSHOTS / "timeline.png")
        # The price that the lamp has when the reader opens GraphiQL.
        restored = http.post(f"{address}/graphql", json={"query": _RESTORE}, timeout=60).json()
        assert restored["data"]["restoreProduct"]["product"]["price"] == "64.40"
        _run_in_graphiql(page, address, _PRODUCT, "64.40")
        page.screenshot(path=SCREENSHOTS / "graphiql.png")
        _run_in_graphiql(page, address, _CHANGES, "changedFields")
        page.screenshot(path=SCREENSHOTS / "subscription.png")


def _run_in_graphiql(page: Page, address: str, operation: str, answer: str) -> None:
    """Run an operation in a tab of its own; returns once its answer has this text."""
    page.goto("about:blank")
    page.goto(f"{address}/graphql#query={quote(operation)}")
    editor = page.locator(".graphiql-query-editor .view-lines")
    expect(editor).to_contain_text(operation.split()[1], timeout=PATIENCE_MS)
    page.get_by_role("button", name=re.compile("^Execute")).click(timeout=PATIENCE_MS)
    response = page.locator(".graphiql-response .view-lines")
    expect(response).to_contain_text(answer, timeout=PATIENCE_MS)


_RESTORE = """mutation {
  restoreProduct(id: "p020", version: 2) { ... on ProductWritten { product { price } } }
}"""
_PRODUCT = """query Lamp {
  product(id: "p020") {
    name
    price
    supplierName
  }
  resumeToken
}"""
_CHANGES = """subscription Changes {
  productChanges {
    operation
    author
    changedFields
    product { name price stock }
  }
}"""


VISITS: dict[str, Callable[[Ports], None]] = {
    "docs/tutorials/quickstart.md": _visit_demo,
    "docs/tutorials/react-dashboard.md": _visit_dashboard,
    "docs/tutorials/your-own-database.md": _visit_live_page,
}
"""Visits by pages, once all blocks of the page have run."""
