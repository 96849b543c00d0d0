"""The timeline with difficult data: thousands of versions, documents that violate the model, long
and unusual values, small screens; it reads nothing twice.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from playwright.async_api import Page, Request, expect
from pymongo import UpdateOne

from tests.browser.conftest import Gateway
from tests.browser.lamp import Lamp
from tests.support.exhaustive import scaled

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_all_versions_are_reached_page_by_page(
    page: Page, lamp: Lamp, gateway: Gateway
) -> None:
    """All pages together show each version once; the oldest one is the insert."""
    lamp.write(1)
    count = scaled(all=1040, fast=140)
    gateway.database["products"].bulk_write(
        [
            UpdateOne({"_id": lamp.id}, {"$set": {"stock": number}})
            for number in range(10, 10 + count)
        ]
    )
    await page.goto(f"/#/product/{lamp.id}")
    await expect(page.get_by_text(f"{count + 1} versions")).to_be_visible()
    versions, older = (
        page.locator(".versions > li"),
        page.get_by_role("button", name="Older versions"),
    )
    shown = 0
    while await older.is_visible():
        shown = await versions.count()
        await older.click()
        await expect(versions.nth(shown)).to_be_visible()
    await expect(versions).to_have_count(count + 1)
    await expect(versions.last).to_contain_text("insert")
    numbers = await page.locator(".versions strong").all_text_contents()
    assert numbers == [str(number) for number in range(count + 1, 0, -1)]


async def test_an_invalid_document_hides_no_other_document(
    page: Page, lamp: Lamp, gateway: Gateway
) -> None:
    """The versions and documents around an invalid one are shown, with an error for that one."""
    products = gateway.database["products"]
    lamp.write(1)
    broken = f"broken-{lamp.id}"
    try:
        products.update_one({"_id": lamp.id}, {"$set": {"name": ["no", "text"]}})
        products.insert_one({"_id": broken, "name": {"of": "another type"}, "price": "none"})
        lamp.write(3)
        await page.goto(f"/#/product/{lamp.id}")
        await expect(page.locator(".versions > li")).to_have_count(3)
        await expect(page.get_by_role("heading", name=lamp.name)).to_be_visible()
        await expect(page.locator("aside a").filter(has_text=lamp.name)).to_be_visible()
        await expect(page.locator(".problem").first).to_contain_text("expected String")
        await page.goto(f"/#/product/{broken}")
        await expect(page.locator(".versions > li")).to_have_count(1)
    finally:
        products.delete_one({"_id": broken})


async def test_an_unknown_entity_is_an_error(page: Page) -> None:
    """The page of an unknown entity shows an error, not another entity."""
    await page.goto("/#/nonsense/42")
    await expect(page.get_by_text("No entity here is called nonsense")).to_be_visible()
    await expect(page.locator("article")).to_have_count(0)
    await page.get_by_role("tab", name="Product").click()
    await expect(page.locator("article")).to_be_visible()


async def test_a_missing_document_is_an_error(page: Page) -> None:
    """The page of a missing document shows an error, also for an unusual id."""
    await page.goto("/#/product/%E0%A4%A")
    await expect(page.get_by_text("Nothing is known of Product")).to_be_visible()


async def test_only_new_versions_are_read(page: Page, lamp: Lamp) -> None:
    """A change makes the timeline read the newer versions only; the event updates the list."""
    lamp.write(1)
    await page.goto(f"/#/product/{lamp.id}")
    await expect(page.locator(".versions > li")).to_have_count(1)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    asked: list[dict[str, Any]] = []

    def heard(request: Request) -> None:
        if request.post_data and "Streams" not in request.post_data:
            asked.append(json.loads(request.post_data))

    page.on("request", heard)
    await lamp.write_until_seen(page.locator(".versions > li").nth(1))
    assert asked
    assert {each["query"].split()[1].partition("(")[0] for each in asked} == {"History"}
    assert all(each["variables"].get("before") for each in asked)


async def test_values_are_isolated_from_the_text_around_them(
    page: Page, lamp: Lamp, gateway: Gateway
) -> None:
    """Right-to-left text and direction overrides change the direction of nothing else."""
    lamp.write(1)
    odd = "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd"
    change = {"id": "odd", "by": odd, "why": odd}
    gateway.database["products"].update_one(
        {"_id": lamp.id}, {"$set": {"name": odd, "_change": change}}
    )
    await page.goto(f"/#/product/{lamp.id}")
    newest = page.locator(".versions > li").first
    await expect(newest.locator("ins bdi")).to_have_text(odd)
    await expect(newest.locator(".version bdi")).to_have_text(odd)
    await expect(newest.locator("blockquote bdi")).to_have_text(odd)
    await expect(page.locator("h3 bdi")).to_have_text(odd)


async def test_the_timeline_fits_a_small_screen(page: Page, lamp: Lamp, gateway: Gateway) -> None:
    """The page fits 390 pixels, also with long values that cannot wrap."""
    await page.set_viewport_size({"width": 390, "height": 844})
    lamp.write(1)
    gateway.database["products"].update_one(
        {"_id": lamp.id},
        {
            "$set": {
                "name": "x" * 300,
                "price": Decimal128("9" * 34),
                "attributes": {"k" * 80: "v" * 200},
            }
        },
    )
    await page.goto(f"/#/product/{lamp.id}")
    await expect(page.locator(".versions > li")).to_have_count(2)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    # Only for the screenshot.
    await page.locator("article").scroll_into_view_if_needed()
    await page.locator(".versions > li").last.scroll_into_view_if_needed()


async def test_a_version_without_changed_fields_is_explained(
    page: Page, lamp: Lamp, gateway: Gateway
) -> None:
    """A version without visible changes is explained.

    Such versions are a copy whose value was right already, and a write of fields outside the model.
    """
    lamp.write(1)
    supplier = ObjectId()
    gateway.database["suppliers"].insert_one({"_id": supplier, "name": "Nordlys"})
    gateway.database["products"].update_one(
        {"_id": lamp.id}, {"$set": {"supplierId": supplier, "supplierName": "Nordlys"}}
    )
    gateway.database["products"].update_one({"_id": lamp.id}, {"$set": {"unnamed": 1}})
    await page.goto(f"/#/product/{lamp.id}")
    versions = page.locator(".versions > li")
    noted = versions.filter(has_text="revstream:copier")
    await expect(noted).to_contain_text("The copied fields were right already")
    unnamed = versions.filter(has_text="No field of the model differs")
    await expect(unnamed).to_have_count(1)
