"""The documents that the benchmarks write, the same in every run."""

from __future__ import annotations

import random
import string
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["COLLECTION", "MODEL", "SMALL_BYTES", "USUAL_BYTES", "change", "product", "touched"]

COLLECTION = "products"
MODEL = Path(__file__).parent / "products.graphql"

USUAL_BYTES = 2500
SMALL_BYTES = 500
"""About 1 GB with the number of versions of the as-of benchmark."""

_WORDS = ("alder", "birch", "cedar", "elder", "hazel", "juniper", "larch", "maple", "oak", "willow")
_START = datetime(2024, 1, 1, tzinfo=UTC)
_TEXT = "".join(random.Random(1).choices(string.ascii_lowercase + " ", k=20_000))


def product(number: int, *, size_bytes: int = USUAL_BYTES) -> dict[str, Any]:
    """Return the first version of the document with that id; its BSON has about `size_bytes`."""
    dice = random.Random(number)
    document: dict[str, Any] = {
        "_id": number,
        "version": 1,
        "sku": f"{dice.choice(_WORDS)[:3].upper()}-{number:07d}",
        "name": f"{dice.choice(_WORDS)} {dice.choice(_WORDS)} {number}",
        "price": dice.randrange(100, 100_000) / 100,
        "stock": dice.randrange(1000),
        "tags": dice.sample(_WORDS, 3),
        "updatedAt": _START + timedelta(seconds=dice.randrange(10_000_000)),
    }
    if size_bytes > SMALL_BYTES:
        document |= {
            "supplier": f"Supplier {dice.randrange(200)}",
            "dimensions": {"width": dice.random(), "height": dice.random()},
            "attributes": {f"{word}{n}": dice.random() for n, word in enumerate(_WORDS)},
        }
    # The size of the other fields, measured once.
    rest_bytes = 505 if size_bytes > SMALL_BYTES else 187
    offset = dice.randrange(len(_TEXT) // 2)
    document["description"] = _TEXT[offset : offset + size_bytes - rest_bytes]
    return document


def change(step: int) -> dict[str, Any]:
    """Return an update, as a shop would send it; `stock` identifies the step."""
    return {
        "$set": {
            "stock": step,
            "price": step % 100_000 / 100,
            "updatedAt": _START + timedelta(milliseconds=step),
        },
        "$inc": {"version": 1},
    }


def touched(step: int, documents: int) -> int:
    """Return the document that a step changes: pseudo-random, the same for each caller."""
    return random.Random(step).randrange(documents)
