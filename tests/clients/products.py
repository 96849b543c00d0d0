"""A product of the example shop, as the shop stores it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bson import Decimal128

__all__ = ["product"]


def product(name: str, id_: str) -> dict[str, Any]:
    """Return a product at its first version, with a stock of five."""
    return {
        "_id": id_,
        "version": 1,
        "sku": id_,
        "name": name,
        "price": Decimal128("12.50"),
        "stock": 5,
        "tags": [],
        "added_at": datetime(2026, 1, 5, tzinfo=UTC),
    }
