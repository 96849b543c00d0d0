"""Memory that read documents take: a decoded value takes ten times its bytes as BSON."""

from __future__ import annotations

from typing import Any

__all__ = ["SMALL_BYTES", "VALUE_BYTES", "LargeRead", "count_values"]

VALUE_BYTES = 100
"""Approximate memory of a decoded value with its name, in addition to its bytes."""

SMALL_BYTES = 64 * 1024
"""BSON below this size has its values estimated: counting would take longer than a lookup may."""

_BYTES_PER_VALUE = 16
_CONTAINERS = frozenset({dict, list})


class LargeRead(Exception):
    """A read is larger than its kind allows; it has no effect, and is repeated in another way.

    No client receives it.
    """


def count_values(document: Any, size: int) -> int:
    """Return the approximate number of values in a decoded document of `size` bytes as BSON."""
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
