"""A page of a real Chromium that reaches the gateway and nothing else.

The fixture `gateway` is that of all tests: the real server with the example shop, with `url` (such
as http://127.0.0.1:8000) and `database` (the shop's own, as PyMongo's driver sees it).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.async_api import (
    ConsoleMessage,
    Error,
    Page,
    Route,
    async_playwright,
    expect,
)

from tests.browser.lamp import Lamp

# Of a busy machine: the editor alone may take it ten seconds.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)

SCREENSHOTS = Path(".build/screenshots")
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    # The pages are our own, and a container has no user namespaces.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # Chromium's own calls home, which would fail one by one where there is no network.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Cut off from the network: no name resolves.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Gateway(Protocol):
    """What these tests need of the fixture `gateway`."""

    url: str
    database: Any


@pytest.fixture
def expected_error() -> str | None:
    """What the browser may report as an error all the same, as a pattern; a module says so."""
    return None


@pytest.fixture
async def page(
    gateway: Gateway, request: pytest.FixtureRequest, expected_error: str | None
) -> AsyncIterator[Page]:
    """A page whose addresses are the gateway's; the test fails on any other address and error.

    The errors are those that the browser reports: exceptions, what the content security policy
    refused, what could not be loaded. A screenshot of the end is kept in `.build/screenshots`.
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

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            # Where the system has none, Playwright's own.
            executable_path=next(filter(None, map(shutil.which, CHROMIUMS)), None),
            args=ARGUMENTS,
        )
        page = await browser.new_page(base_url=gateway.url, viewport={"width": 1360, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", heard)
        page.on("pageerror", raised)
        await page.route("**/*", only_the_gateway)
        yield page
        name = re.sub(r"\W+", "-", request.node.name)
        await page.screenshot(path=SCREENSHOTS / f"{name}.png")
        await browser.close()
    assert wrong == []


@pytest.fixture
def lamp(gateway: Gateway) -> Lamp:
    """A product that no other test knows, not yet written."""
    return Lamp(gateway.database)
