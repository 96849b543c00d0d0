"""gql.server.slow_client: who takes nothing is cut off, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from revstream.gql.server.slow_client import SlowClientTimeout


class Buffer:
    """A transport, by what lies in it."""

    def __init__(self) -> None:
        self.size = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True


class Watch:
    """A stall's, and the clock it looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.buffer: Any = Buffer()
        self.stalled = 0
        self.due: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        monkeypatch.setattr(
            "revstream.gql.server.slow_client.asyncio.get_running_loop", lambda: self
        )
        self.stall = SlowClientTimeout(20.0, self.count)

    def count(self) -> None:
        self.stalled += 1

    def call_later(self, _s: float, look: Callable[..., None], *arguments: Any) -> Any:
        self.due.append((look, arguments))
        return asyncio.Handle(lambda: None, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def look(self) -> None:
        look, arguments = self.due.pop()
        look(*arguments)


def test_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written to him meanwhile."""
    watch = Watch(monkeypatch)
    watch.buffer.size = 10
    watch.stall.watch(watch.buffer)
    watch.buffer.size += 90
    watch.stall.add(90)
    watch.look()
    assert (watch.buffer.aborted, watch.stalled, watch.due) == (True, 1, [])


def test_who_is_slow_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more and more waits for him; from each look on he is looked at anew."""
    watch = Watch(monkeypatch)
    watch.buffer.size = 10
    watch.stall.watch(watch.buffer)
    for _ in range(3):
        watch.buffer.size += 90 - 1
        watch.stall.add(90)
        watch.look()
        assert not watch.buffer.aborted
    watch.look()
    assert watch.buffer.aborted
