"""Sort key of a document as an aggregation expression.

The server's own sort key (`$meta`) exists only where it sorts stored documents: after stages that
change them, and after `$documents`, it is empty (6.0.5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["sort_key_expressions"]


def sort_key_expressions(sort: Iterable[tuple[str, int]]) -> list[Any]:
    """Return an expression per path of a sort order; of a list, it selects one item."""
    return [_sort_key_expression(path, direction) for path, direction in sort]


def _sort_key_expression(path: str, direction: int) -> Any:
    item = {"$min" if direction > 0 else "$max": f"${path}"}
    return {"$cond": [{"$isArray": f"${path}"}, item, f"${path}"]}
