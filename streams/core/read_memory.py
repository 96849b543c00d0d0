"""Memory of what operations read: a decoded value takes ten times the bytes that it has as BSON."""

from __future__ import annotations

from typing import Any

__all__ = ["SMALL_BYTES", "VALUE_BYTES", "LargeRead", "count_values"]

VALUE_BYTES = 100
"""About what a decoded value takes with its name, beside its bytes."""

SMALL_BYTES = 64 * 1024
"""BSON of which the values are estimated: to count them would take longer than a lookup may."""

_BYTES_PER_VALUE = 16
_CONTAINERS = frozenset({dict, list})


class LargeRead(Exception):
    """A read that is larger than it may be in the way in which it is made. It has no effect, and is
    made again in another way; no client is shown it."""


def count_values(document: Any, size: int) -> int:
    """Return about how many values a decoded document has; `size`: its bytes as BSON."""
    if size < SMALL_BYTES:
        return size // _BYTES_PER_VALUE
    count = 0
    waiting = [document]
    while waiting:
        each = waiting.pop()
        count += len(each)
        values = each.values() if each.__class__ is dict else each
        waiting += [value for value in values if value.__class__ in _CONTAINERS]
    return count
