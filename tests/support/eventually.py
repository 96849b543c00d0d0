"""Waiting for a condition that another process or task makes true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def eventually(condition: Callable[[], object], *, within_s: float = 120.0) -> None:
    """Return once `condition()` is true; fail, naming it, after `within_s` seconds.

    The event loop keeps running in between. An AssertionError of the condition counts as false, and
    is the one that is raised in the end.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            if condition():
                return
            failure = None
        except AssertionError as exc:
            failure = exc
        if time.monotonic() > deadline:
            raise failure or AssertionError(f"not true within {within_s} s: {condition}")
        await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], object], *, within_s: float = 120.0) -> None:
    """Do the same as `eventually`, for tests without an event loop."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within_s} s: {condition}")
        time.sleep(0.02)
