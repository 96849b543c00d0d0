"""GraphiQL in a browser that can reach nothing but the gateway."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from tests.browser.lamp import Lamp

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDITOR = ".graphiql-query-editor .view-lines"
RUN = ".graphiql-execute-button"
RESPONSE = ".graphiql-response .view-lines"


async def open_query(page: Page, query: str) -> None:
    """Open GraphiQL with this query, ready to run."""
    await page.goto("/graphql#query=" + quote(query))
    await expect(page.locator(EDITOR)).to_contain_text(query[:5])


async def open_example(page: Page, name: str) -> None:
    """Open GraphiQL and choose one of the example tabs, ready to run."""
    await page.goto("/graphql")
    await expect(page.locator(EDITOR)).to_contain_text("query History")
    await page.get_by_role("button", name=name, exact=True).click()
    kind = "subscription" if name == "Live" else "query"
    await expect(page.locator(EDITOR)).to_contain_text(f"{kind} {name}")


async def test_graphiql_runs_a_history_query(page: Page, lamp: Lamp) -> None:
    """A typed query shows a document's versions."""
    lamp.write(10)
    lamp.write(20)
    await open_query(page, f'{{ product(id: "{lamp.id}") {{ history {{ totalCount }} }} }}')
    response = page.locator(RESPONSE)

    async def asked() -> str:
        await page.click(RUN)
        await expect(response).to_contain_text("totalCount")
        return "".join((await response.inner_text()).split())

    # The recorder may not have recorded the write yet.
    for _ in range(50):
        if '"totalCount":2' in await asked():
            break
    assert '"totalCount":2' in await asked()


async def test_graphiql_shows_live_events(page: Page, lamp: Lamp) -> None:
    """A subscription's events appear as the writes happen, without a reload."""
    await open_query(page, "subscription { productChanges { documentId diff { after } } }")
    async with page.expect_websocket():
        await page.click(RUN)
    await lamp.write_until_seen(page.locator(RESPONSE, has_text=lamp.id))


@pytest.mark.parametrize("name", ["History", "ThenAndNow", "Now"])
async def test_each_example_answers_without_errors(page: Page, name: str) -> None:
    """The example tabs are queries that work on this model."""
    await open_example(page, name)
    await page.click(RUN)
    response = page.locator(RESPONSE)
    await expect(response).to_contain_text('"data"')
    await expect(response).not_to_contain_text('"errors"')


async def test_the_live_example_shows_events(page: Page, lamp: Lamp) -> None:
    """The example subscription works unchanged."""
    await open_example(page, "Live")
    async with page.expect_websocket():
        await page.click(RUN)
    await lamp.write_until_seen(page.locator(RESPONSE, has_text="CHANGE"))


async def test_the_editor_completes_fields_of_the_schema(page: Page) -> None:
    """Monaco's language service runs in its worker, from the gateway's own files."""
    await open_query(page, "query { }")
    await page.locator(EDITOR).click()
    await page.keyboard.press("End")
    await page.keyboard.press("ArrowLeft")
    await page.keyboard.type("resumeTo")
    await expect(page.locator(".suggest-widget")).to_contain_text("resumeToken")


async def test_the_documentation_shows_the_model(page: Page) -> None:
    """The documentation pane shows the schema, read by introspection."""
    await page.goto("/graphql")
    await page.get_by_role("button", name="Show Documentation Explorer").click()
    await page.get_by_role("link", name="Query").click()
    await expect(page.locator(".graphiql-doc-explorer")).to_contain_text("productsAsOf")
