"""Idle intervals of live subscribers.

The rest needs MongoDB (`tests/integration/test_replay.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.live.hub import Hub, Subscriber
from revstream.streams.live.replay import Idle, Replay
from tests.support.streams import token_at


async def test_checkpoint_events_of_subscribers_are_spread_over_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is sent within the promised interval, at a time of its own."""
    hub = Hub(["things"], position=token_at(0))
    waits: list[float | None] = []

    async def quiet(subscriber: Subscriber, timeout_s: float | None) -> Sequence[ChangeEvent]:
        waits.append(timeout_s)
        return ()

    monkeypatch.setattr(Subscriber, "next", quiet)
    nothing: Any = None
    archive: Any = SimpleNamespace(collection="things")
    replay = Replay(archive, hub, nothing, nothing, quiet_s=20.0)
    for n in range(1, 101):
        async with aclosing(replay.follow(None)) as parts:
            await anext(parts)
            hub.publish(EventBatch((), token_at(n)))
            assert await anext(parts) == Idle(token_at(n))
    seconds = [each for each in waits if each is not None]
    assert len(seconds) == len(waits) >= 100
    assert all(10 <= each <= 20 for each in seconds)
    # No second has more than a few of them.
    assert max(sum(n <= each < n + 1 for each in seconds) for n in range(10, 21)) < len(waits) / 3
