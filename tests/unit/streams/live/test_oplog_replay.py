"""Sizes of the oplog stretches read per page.

The rest needs MongoDB (`tests/integration/test_proposal_changes.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson import Timestamp

from revstream.streams.changefeed.event import EventBatch
from revstream.streams.core import resume_tokens
from revstream.streams.live.oplog_replay import _OplogReader
from tests.support.streams import token_at


class QuickSource:
    """An empty source that answers at once; records the seconds of each stretch."""

    def __init__(self) -> None:
        self.stretches: list[int] = []

    def __call__(self, horizon: Timestamp) -> Any:
        self._horizon = horizon
        return self

    async def batches(self, after: str) -> AsyncIterator[EventBatch]:
        self.stretches.append(self._horizon.time - resume_tokens.cluster_time(after).time)
        yield EventBatch((), after)
        yield EventBatch((), resume_tokens.token_from_time(self._horizon))
        raise AssertionError("read on behind its horizon")


async def test_stretches_grow_up_to_a_bound_while_reading_is_fast() -> None:
    """One page has several stretches, up to the start of the ring buffer."""
    source = QuickSource()
    reading = _OplogReader(source, token_at(1000))
    assert await reading.read_page(token_at(4000)) == []
    assert reading.position >= token_at(4000)
    assert source.stretches == [60, 120, 240, 480, 600, 600, 600, 600]


async def test_a_page_whose_time_is_over_ends_at_the_first_reply_that_advances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next page reads a shorter stretch."""
    monkeypatch.setattr("revstream.streams.live.oplog_replay._PAGE_S", 0.0)
    source = QuickSource()
    reading = _OplogReader(source, token_at(1000))
    reached = []
    for _ in range(3):
        await reading.read_page(token_at(4000))
        reached.append(resume_tokens.cluster_time(reading.position).time)
    assert reached == [1060, 1070, 1080]
