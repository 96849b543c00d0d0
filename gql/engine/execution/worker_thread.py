"""A thread for computation that grows with the size of documents, and its counts.

Comparing two states of several megabytes takes a second. There is one thread for all: Python lets
the event loop run every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from revstream.streams.core.operation import OPERATION

__all__ = ["count_items", "count_list", "count_values", "has_read_much", "run_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_MUCH = 1024 * 1024
"""Bytes of documents that take some tens of milliseconds to compare or to render."""

_WEIGHED_ITEMS = 10
"""See `gql.engine.limits.query_cost.LIST_ITEMS`."""

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="comparison")


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of plain values in the worker thread, with the current context variables."""
    context = copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, lambda: context.run(function, *args, **kwargs))


def has_read_much() -> bool:
    """Return whether rendering the operation's data may block the event loop for too long."""
    operation = OPERATION.get()
    return operation is not None and operation.read_bytes > _MUCH


def count_values(count: int) -> None:
    """Count values that were computed for the running operation.

    Raises:
        LimitExceeded: the operation has too many.
    """
    operation = OPERATION.get()
    if operation is not None:
        operation.count_values(count)


def count_items(values: Sequence[T]) -> Sequence[T]:
    """Count values that were computed for the running operation, and return them.

    Raises:
        LimitExceeded: the operation has too many.
    """
    count_values(len(values))
    return values


def count_list(values: object, *, leaf: bool) -> None:
    """Count the items of a rendered list, beyond the number that its cost assumed.

    Args:
        leaf: the items are not objects; ten of them take as long as one object.

    Raises:
        LimitExceeded: the operation has too many values.
    """
    if values.__class__ is list:
        more = len(values) - _WEIGHED_ITEMS
        if more > 0:
            count_values(more // 10 if leaf else more)
