"""The front page: links, the state of the change streams, and a document's timeline."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.lamp import Lamp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_front_page_links_to_the_other_pages(page: Page) -> None:
    """Every link in the heading can be opened."""
    await page.goto("/")
    links = page.get_by_role("navigation").get_by_role("link")
    await expect(links).to_have_count(4)
    for link in await links.all():
        path = await link.get_attribute("href")
        assert path is not None
        response = await page.request.get(path, headers={"accept": "text/html"})
        assert response.status == 200, path


async def test_the_front_page_shows_the_streams_with_their_lag(page: Page) -> None:
    """Each listener has a card with its collection and its lag."""
    await page.goto("/")
    cards = page.get_by_role("region", name="Streams").get_by_role("listitem")
    await expect(cards.filter(has_text="ms").first).to_be_visible()


async def test_the_timeline_shows_each_version_with_its_changes(page: Page, lamp: Lamp) -> None:
    """A document's link shows its versions, newest first, with the changes of each."""
    lamp.write(10)
    lamp.write(20)
    await page.goto(f"/#/product/{lamp.id}")
    versions = page.locator(".versions > li")
    await expect(versions).to_have_count(2)
    await expect(versions.first.locator("dt")).to_have_text(["price"])
    await expect(versions.first.locator("del")).to_have_text("10.50")
    await expect(versions.first.locator("ins")).to_have_text("20.50")


async def test_the_timeline_follows_new_versions(page: Page, lamp: Lamp) -> None:
    """A write appears on an open page without a reload."""
    lamp.write(10)
    async with page.expect_websocket():
        await page.goto(f"/#/product/{lamp.id}")
    await expect(page.get_by_role("heading", name=lamp.name)).to_be_visible()
    await lamp.write_until_seen(page.locator(".versions > li").nth(1))


async def test_a_document_is_chosen_from_the_list(page: Page, lamp: Lamp) -> None:
    """A click in the list of documents shows that document."""
    lamp.write(10)
    await page.goto("/")
    await page.get_by_role("link", name=lamp.id).click()
    await expect(page.get_by_role("heading", name=lamp.name)).to_be_visible()
    await page.get_by_role("tab", name="Supplier").click()
    await expect(page.get_by_role("tab", name="Supplier")).to_have_attribute(
        "aria-selected", "true"
    )


async def test_the_timeline_opens_in_graphiql(page: Page, lamp: Lamp) -> None:
    """A link opens the query of a timeline in GraphiQL, ready to run."""
    lamp.write(10)
    await page.goto(f"/#/product/{lamp.id}")
    await page.get_by_role("link", name="Open in GraphiQL").click()
    await expect(page.locator(".graphiql-query-editor .view-lines")).to_contain_text("History")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_uses_the_color_scheme_of_the_system(page: Page, scheme: str) -> None:
    """The page's background is light or dark like the system's color scheme."""
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.goto("/")
    colour = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    brightness = sum(int(part) for part in colour.removeprefix("rgb(").rstrip(")").split(","))
    assert (brightness > 3 * 128) == (scheme == "light")


@pytest.mark.parametrize("expected_error", ["status of 404"])
async def test_the_front_page_has_no_links_to_a_management_port(page: Page) -> None:
    """Metrics and readiness are on another port then, and their addresses answer 404 here."""
    await page.route("**/readyz", lambda route: route.fulfill(status=404))
    await page.goto("/")
    links = page.get_by_role("navigation").get_by_role("link")
    await expect(links).to_have_text(["GraphiQL", "Schema"])
