"""Work that grows with the bytes of documents, beside the event loop, and what comes of it.

Two states of some megabytes take a second to compare. One thread for all: others have their turn in
between, since Python lets the loop go on every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from revstream.streams.core.operation import OPERATION

__all__ = ["count_list", "count_values", "counted", "has_read_much", "off_loop"]

P = ParamSpec("P")
T = TypeVar("T")

_MUCH = 1024 * 1024
"""Bytes of documents: comparing or rendering them takes some tens of milliseconds."""

_WEIGHED_ITEMS = 10
"""See `gql.engine.limits.query_cost.LIST_ITEMS`."""

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="comparison")


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of plain values in the thread of comparisons."""
    context = copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, lambda: context.run(function, *args, **kwargs))


def has_read_much() -> bool:
    """Return whether what the running operation makes of its reads may hold up the loop."""
    operation = OPERATION.get()
    return operation is not None and operation.read_bytes > _MUCH


def count_values(count: int) -> None:
    """Count values made for the running operation, beside those that are stored.

    Raises:
        LimitExceeded: it has more than it may.
    """
    operation = OPERATION.get()
    if operation is not None:
        operation.count_values(count)


def counted(values: Sequence[T]) -> Sequence[T]:
    """Return values that were made for the running operation, and count them.

    Raises:
        LimitExceeded: it has more than it may.
    """
    count_values(len(values))
    return values


def count_list(values: object, *, leaf: bool) -> None:
    """Count the items of a stored list that is shown, beyond those that it was weighed as.

    Args:
        leaf: they are no objects; ten of them take as long as one that is.

    Raises:
        LimitExceeded: the operation has more than it may.
    """
    if values.__class__ is list:
        more = len(values) - _WEIGHED_ITEMS
        if more > 0:
            count_values(more // 10 if leaf else more)
