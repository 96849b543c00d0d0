"""A product that one test owns, written as by a program that knows nothing of revstream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bson import Decimal128
from playwright.async_api import Locator, expect


class Lamp:
    """One document of the shop's `products`; each write sets its price."""

    def __init__(self, database: Any) -> None:
        self.id = f"lamp-{uuid4().hex[:8]}"
        self.name = f"Lamp {self.id}"
        self._products = database["products"]

    def write(self, price: int) -> None:
        facts = {
            "sku": self.id,
            "name": self.name,
            "price": Decimal128(f"{price}.50"),
            "stock": 3,
            "tags": ["light"],
        }
        self._products.update_one(
            {"_id": self.id},
            {"$set": facts, "$setOnInsert": {"added_at": datetime(2026, 1, 2, tzinfo=UTC)}},
            upsert=True,
        )

    async def write_until_seen(self, locator: Locator) -> None:
        """Write until `locator` is visible: a subscription only shows writes after its start."""
        for price in range(100, 600):
            self.write(price)
            try:
                await expect(locator).to_be_visible(timeout=200)
            except AssertionError:
                continue
            return
        await expect(locator).to_be_visible(timeout=1)
