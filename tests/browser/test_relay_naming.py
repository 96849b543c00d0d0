"""The front page of a gateway with `--relay`, where `id` is a global id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect
from pymongo import MongoClient

from tests.browser.lamp import Lamp
from tests.conftest import ServedShop
from tests.support.gateway import ROOT, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def gateway(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> Iterator[ServedShop]:
    """Start the example shop without documents."""
    name = f"relay_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, ROOT / "schema.graphql", "--relay") as running:
        yield ServedShop(running.address, client[name])
    client.drop_database(name)


async def test_documents_are_listed_by_their_document_ids(page: Page, lamp: Lamp) -> None:
    """A document is listed once, whether it comes from the list or from the audit trail."""
    lamp.write(1)
    await page.goto("/")
    await page.locator("aside a").filter(has_text=lamp.id).click()
    await expect(page.get_by_role("heading", name=lamp.name)).to_be_visible()
    await expect(page.locator("aside li")).to_have_count(1)
    await lamp.write_until_seen(page.locator(".versions > li").nth(1))
    await expect(page.locator("aside li")).to_have_count(1)
