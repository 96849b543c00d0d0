"""Ring buffer against a plain list."""

from __future__ import annotations

import weakref

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.ring_buffer import Ring
from tests.support.streams import event, token_at


class RingAgainstList(RuleBasedStateMachine):
    """Runs every step on the ring and on a list that drops its first items."""

    @initialize(events=st.integers(1, 6), size_bytes=st.integers(400, 4000))
    def begin(self, events: int, size_bytes: int) -> None:
        self.capacity_events, self.capacity_bytes = events, size_bytes
        self.floor = token_at(0)
        self.held: list[ChangeEvent] = []
        self.seconds = 0
        self.ring = Ring(self.floor, capacity_events=events, capacity_bytes=size_bytes)

    @rule(step=st.integers(1, 3), length=st.integers(0, 1500), times=st.integers(1, 90))
    def append(self, step: int, length: int, times: int) -> None:
        for _ in range(times):
            self.seconds += step
            added = event(self.seconds, after={"_id": 1, "text": "x" * length})
            self.ring.append(added)
            self.held.append(added)
            while self.held and (
                len(self.held) > self.capacity_events
                or sum(each.size_bytes for each in self.held) > self.capacity_bytes
            ):
                self.floor = self.held.pop(0).token

    @rule(back=st.integers(-2, 15), count=st.integers(0, 1))
    def after(self, back: int, count: int) -> None:
        token = token_at(max(0, self.seconds - back), count)
        found = self.ring.items_after(token)
        later = [each for each in self.held if each.token > token]
        assert self.ring.pending_after(token) == (len(later), later[0] if later else None)
        if token < self.floor:
            assert found is None
        else:
            assert found == later

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "ring"):
            return
        assert self.ring.floor == self.floor
        assert len(self.ring) == len(self.held)
        assert self.ring.size_bytes == sum(each.size_bytes for each in self.held)
        assert self.ring.items_after(self.floor) == self.held


TestRing = RingAgainstList.TestCase
TestRing.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_an_event_larger_than_the_ring_is_not_held() -> None:
    """The limit in bytes is strict: a larger event is dropped at once, and the floor moves."""
    ring = Ring(token_at(0), capacity_events=10, capacity_bytes=1000)
    ring.append(event(1, after={"_id": 1, "text": "x" * 2000}))
    assert (len(ring), ring.size_bytes, ring.floor) == (0, 0, token_at(1))
    assert ring.items_after(token_at(0)) is None
    assert ring.items_after(token_at(1)) == []


def test_an_evicted_event_is_freed_at_once() -> None:
    """The memory of evicted events is not kept until a later cleanup."""
    ring = Ring(token_at(0), capacity_events=1, capacity_bytes=10**6)
    first = event(1)
    gone = weakref.ref(first)
    ring.append(first)
    del first
    ring.append(event(2))
    assert gone() is None
