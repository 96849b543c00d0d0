"""Slow clients: only a client that reads nothing is disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from revstream.gql.server.slow_client import SlowClientTimeout


class Buffer:
    """A transport with a size of its buffer."""

    def __init__(self) -> None:
        self.size = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True


class Watch:
    """A stall detector and its clock."""

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


def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes written meanwhile do not matter."""
    watch = Watch(monkeypatch)
    watch.buffer.size = 10
    watch.stall.watch(watch.buffer)
    watch.buffer.size += 90
    watch.stall.add(90)
    watch.look()
    assert (watch.buffer.aborted, watch.stalled, watch.due) == (True, 1, [])


def test_a_slow_client_is_not_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buffer may grow; each check compares with the one before."""
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
