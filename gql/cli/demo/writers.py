"""Programs that write to the example shop through the driver alone.

Some count the version, others do not; some name an author and a reason, most do not; some write in
transactions.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from bson import Decimal128
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from revstream.gql.cli.demo.data import DEVICES, UNTOUCHED, order

__all__ = ["Writers"]

_PEOPLE = ("anna", "bram", "chidi")
_REASONS = ("weekly price check", "supplier raised prices", "spring sale", "typo")


class Writers:
    """Writers of one shop. `dice` chooses the next write."""

    def __init__(self, shop: AsyncDatabase[dict[str, Any]], dice: random.Random) -> None:
        self._shop = shop
        self._dice = dice
        self._withdrawn: list[dict[str, Any]] = []
        # How often each comes up.
        self._acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (30, self.reprice),
            (25, self.sell),
            (15, self.move_order),
            (15, self.measure),
            (8, self.describe),
            (4, self.withdraw),
            (2, self.rename_supplier),
        ]

    async def run(self, rate: float) -> None:
        """Write `rate` times a second, until cancelled; return at once where that is 0."""
        if not rate:
            return
        weights, acts = zip(*self._acts, strict=True)
        while True:
            await self._dice.choices(acts, weights)[0]()
            await asyncio.sleep(self._dice.expovariate(rate))

    async def reprice(self) -> None:
        """Change a price, with a version, an author and a reason."""
        product = await self._any("products")
        if product is None:
            return
        factor = Decimal(self._dice.choice(("0.95", "0.98", "1.02", "1.05")))
        price = (product["price"].to_decimal() * factor).quantize(Decimal("0.01"))
        change = {
            "id": uuid.uuid4(),
            "by": self._dice.choice(_PEOPLE),
            "why": self._dice.choice(_REASONS),
        }
        await self._shop.products.update_one(
            {"_id": product["_id"]},
            {"$set": {"price": Decimal128(price), "_change": change}, "$inc": {"version": 1}},
        )

    async def sell(self) -> None:
        """An order and the stock it takes, in one transaction; does not count versions."""
        in_stock = {"stock": {"$gt": 3}, "_id": {"$nin": UNTOUCHED}}
        goods = [each async for each in self._shop.products.find(in_stock).limit(50)]
        customers = await self._shop.customers.find().to_list()
        if not goods or not customers:
            return
        placed = order(self._dice, customers, goods)

        async def work(session: AsyncClientSession) -> None:
            await self._shop.orders.insert_one(placed, session=session)
            for line in placed["lines"]:
                await self._shop.products.update_one(
                    {"_id": line["productId"]},
                    {"$inc": {"stock": -line["quantity"]}},
                    session=session,
                )

        async with self._shop.client.start_session() as session:
            await session.with_transaction(work)

    async def move_order(self) -> None:
        """The order's next step; old ones are cleared away."""
        found = await self._any("orders")
        if found is None:
            return
        following = {"OPEN": "PAID", "PAID": "SHIPPED"}.get(found["status"])
        if following is None:
            await self._shop.orders.delete_one({"_id": found["_id"]})
        else:
            await self._shop.orders.update_one(
                {"_id": found["_id"]}, {"$set": {"status": following}}
            )

    async def measure(self) -> None:
        device = self._dice.choice(DEVICES)
        await self._shop.readings.update_one(
            {"_id": device},
            {"$inc": {"sequence": 1, "value": round(self._dice.uniform(-0.4, 0.4), 2)}},
        )

    async def describe(self) -> None:
        """Replaces the whole document, as many object mappers do; counts the version."""
        product = await self._any("products")
        if product is None:
            return
        attributes = {**(product.get("attributes") or {}), "shelf": self._dice.choice("ABCDEF")}
        replaced = {
            **product,
            "attributes": attributes,
            "stock": product["stock"] + self._dice.randint(0, 20),
            "version": product.get("version", 0) + 1,
        }
        await self._shop.products.replace_one(
            {"_id": product["_id"], "version": product.get("version")}, replaced
        )

    async def withdraw(self) -> None:
        """Takes a product from the shop, or brings one back."""
        if self._withdrawn and (len(self._withdrawn) > 3 or self._dice.random() < 0.5):
            returned = self._withdrawn.pop(0)
            await self._shop.products.insert_one({**returned, "stock": 10})
            return
        product = await self._any("products")
        if product is not None:
            await self._shop.products.delete_one({"_id": product["_id"]})
            self._withdrawn.append(product)

    async def rename_supplier(self) -> None:
        """The Copier brings it to the products."""
        supplier = await self._any("suppliers")
        if supplier is None:
            return
        name = supplier["name"]
        renamed = name.removesuffix(" & Co.") if name.endswith(" & Co.") else f"{name} & Co."
        await self._shop.suppliers.update_one(
            {"_id": supplier["_id"]}, {"$set": {"name": renamed}, "$inc": {"version": 1}}
        )

    async def _any(self, collection: str) -> dict[str, Any] | None:
        cursor = await self._shop[collection].aggregate(
            [{"$match": {"_id": {"$nin": UNTOUCHED}}}, {"$sample": {"size": 1}}]
        )
        found = await cursor.to_list()
        return found[0] if found else None
