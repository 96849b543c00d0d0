"""First data of the example shop, generated from a few words, the same on every run."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from bson import Decimal128, Int64, ObjectId

__all__ = ["DEVICES", "UNTOUCHED", "beginnings", "order", "product_id"]

Document = dict[str, Any]

_SUPPLIERS = (
    ("Nordlys Keramikk", "NO"),
    ("Casa Boaventura", "PT"),
    ("Harbour & Daughters", "GB"),
    ("Atelier Morel", "FR"),
    ("Kiyomizu Craft", "JP"),
    ("Tannhof Hölzer", "AT"),
)
_KINDS = (
    ("Mug", "12.50", ("kitchen", "ceramic"), (9.0, 10.5)),
    ("Teapot", "48.00", ("kitchen", "ceramic"), (22.0, 16.0)),
    ("Cutting board", "29.90", ("kitchen", "wood"), (38.0, 24.0)),
    ("Wool blanket", "89.00", ("home", "textile"), (200.0, 140.0)),
    ("Desk lamp", "64.00", ("home", "light"), (18.0, 45.0)),
    ("Notebook", "8.40", ("paper",), (14.8, 21.0)),
    ("Coffee, 250 g", "9.80", ("food", "roast"), None),
    ("Olive oil, 1 l", "17.50", ("food",), None),
)
_COLOURS = ("sand", "moss", "ink", "clay", "snow")
_CUSTOMERS = ("Amira Haddad", "Jonas Lind", "Mei Tanaka", "Paula Ruiz", "Tom Okafor", "Vera Novák")
UNTOUCHED = ("p020", ObjectId("5a0000000000000000000005"))
"""Ids of "Desk lamp, ink" and its supplier, which the demo's writers leave to the reader of the
quickstart (docs/tutorials/quickstart.md): what the page shows comes true."""
DEVICES = ("cellar", "loading-dock", "roastery", "showroom")


def beginnings() -> dict[str, list[Document]]:
    """The documents to insert, by collection."""
    dice = random.Random(7)
    suppliers = [
        {"_id": _object_id("5a", n), "version": 1, "name": name, "country": country}
        for n, (name, country) in enumerate(_SUPPLIERS)
    ]
    customers: list[Document] = [
        {
            "_id": _object_id("c0", n),
            "version": 1,
            "name": name,
            "email": f"{name.split()[0].lower()}@example.org",
        }
        for n, name in enumerate(_CUSTOMERS)
    ]
    products = []
    for n in range(len(_KINDS) * len(_COLOURS)):
        name, price, tags, size = _KINDS[n % len(_KINDS)]
        colour = _COLOURS[n // len(_KINDS)]
        supplier = suppliers[dice.randrange(len(suppliers))]
        products.append(
            {
                "_id": product_id(n),
                "version": 1,
                "sku": f"{name[:3].upper()}-{colour[:2].upper()}-{n:03d}",
                "name": f"{name}, {colour}",
                "price": Decimal128(Decimal(price) + dice.randrange(0, 400, 10) / Decimal(100)),
                "stock": dice.randrange(5, 120),
                "tags": list(tags),
                "dimensions": None if size is None else {"width": size[0], "height": size[1]},
                "supplierId": supplier["_id"],
                "attributes": {"colour": colour, "handmade": dice.random() < 0.5},
                "added_at": datetime(2026, 1, 5, 9, tzinfo=UTC) + timedelta(days=n),
            }
        )
    readings = [
        {"_id": device, "sequence": Int64(1), "value": 18.0 + 2.5 * n}
        for n, device in enumerate(DEVICES)
    ]
    return {
        "suppliers": suppliers,
        "customers": customers,
        "products": products,
        "readings": readings,
        "orders": [],
    }


def product_id(number: int) -> str:
    return f"p{number:03d}"


def order(dice: random.Random, customers: list[Document], goods: list[Document]) -> Document:
    """A new order of up to three of these goods."""
    chosen = dice.sample(goods, k=min(len(goods), dice.randint(1, 3)))
    return {
        "_id": uuid.UUID(int=dice.getrandbits(128), version=4),
        "customerId": dice.choice(customers)["_id"],
        "status": "OPEN",
        "lines": [
            {"productId": each["_id"], "quantity": dice.randint(1, 3), "price": each["price"]}
            for each in chosen
        ],
        "shipTo": {
            "street": f"{dice.randint(1, 90)} Mill Lane",
            "city": dice.choice(("Bergen", "Porto", "Leeds", "Kyoto", "Graz")),
            "country": dice.choice(("NO", "PT", "GB", "JP", "AT")),
        },
        "placed_at": datetime.now(UTC).replace(microsecond=0),
    }


def _object_id(kind: str, number: int) -> ObjectId:
    return ObjectId(f"{kind}{number:022x}")
