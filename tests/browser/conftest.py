"""A page of a real Chromium that can only reach the gateway.

The fixture `gateway` is that of all tests: the real server with the example shop, with `url` (such
as http://127.0.0.1:8000) and `database` (the shop's database, through PyMongo).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Route,
    async_playwright,
    expect,
)

from tests.browser.lamp import Lamp
from tests.support.chromium import chromium_options

# For a busy machine: the editor alone may take ten seconds.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)

SCREENSHOTS = Path(".build/screenshots")


class Gateway(Protocol):
    """The members of the fixture `gateway` that these tests use."""

    url: str
    database: Any


@pytest.fixture
def expected_error() -> str | None:
    """Return a pattern of browser errors that a module expects."""
    return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Start the Chromium that the tests of a module share.

    They run on its loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
    """
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**chromium_options())
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(
    browser: Browser, gateway: Gateway, request: pytest.FixtureRequest, expected_error: str | None
) -> AsyncIterator[Page]:
    """Open a page for the gateway; the test fails on a request elsewhere and on any browser error.

    Errors are exceptions, violations of the content security policy, and resources that do not
    load. A screenshot of the end is kept in `.build/screenshots`.
    """
    wrong: list[str] = []

    async def only_the_gateway(route: Route) -> None:
        if route.request.url.startswith((gateway.url + "/", "blob:", "data:")):
            await route.continue_()
        else:
            wrong.append(f"asked for {route.request.url}")
            await route.abort()

    def heard(message: ConsoleMessage) -> None:
        expected = expected_error is not None and re.search(expected_error, message.text)
        if message.type == "error" and not expected:
            wrong.append(message.text)

    def raised(error: Error) -> None:
        wrong.append(str(error))

    # A context of its own: storage and sessions are not shared with other tests.
    page = await browser.new_page(base_url=gateway.url, viewport={"width": 1360, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", heard)
    page.on("pageerror", raised)
    await page.route("**/*", only_the_gateway)
    yield page
    name = re.sub(r"\W+", "-", request.node.name)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png")
    await page.context.close()
    assert wrong == []


@pytest.fixture
def lamp(gateway: Gateway) -> Lamp:
    """Return a product that is unique to the test and not written yet."""
    return Lamp(gateway.database)
