"""Where the server places a document in an order, told by an expression.

The server's own sort key (`$meta`) is there only where it sorts documents as they lie in a
collection: behind a stage that makes others of them, and of `$documents`, it is empty (6.0.5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["sort_key_expressions"]


def sort_key_expressions(sort: Iterable[tuple[str, int]]) -> list[Any]:
    """For each path of an order what places a document by it: of a list, an item."""
    return [_sort_key_expression(path, direction) for path, direction in sort]


def _sort_key_expression(path: str, direction: int) -> Any:
    item = {"$min" if direction > 0 else "$max": f"${path}"}
    return {"$cond": [{"$isArray": f"${path}"}, item, f"${path}"]}
