"""A background thread that repeats one action while something else happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["repeat_in_background"]


@contextmanager
def repeat_in_background(act: Callable[[], object], every_s: float = 0.005) -> Iterator[None]:
    """Repeat an action during the context; an action that has begun is finished."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(every_s):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
