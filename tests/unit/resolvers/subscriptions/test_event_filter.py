"""Event filter: the time at which a subscription without matching events gets a fresher token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.row_filter import ALL_ROWS
from revstream.resolvers.filters.expression import Compare, Comparison
from revstream.resolvers.subscriptions import token_refresh
from revstream.resolvers.subscriptions.event_enrichment import EventEnrichment
from revstream.resolvers.subscriptions.event_filter import EventFilter
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.live.replay import LiveEvents
from tests.support.streams import event, token_at

QUIET_S = 20.0
[THING] = read_model('type Thing @collection(name: "things") { id: ID! name: String }').entities


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(token_refresh, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def watching_deletions() -> EventFilter:
    nothing: Any = None
    completion = EventEnrichment(THING, nothing, nothing, nothing)
    request = ChangeRequest(operations=frozenset({"DELETE"}))
    return EventFilter(THING, request, ALL_ROWS, completion, quiet_s=QUIET_S)


def passed_over(second: int) -> LiveEvents:
    return LiveEvents([event(second, before={"name": "a"}, after={"name": "b"})])


async def due_after_s(watching: EventFilter, clock: Clock) -> int:
    """Return the seconds of skipped events after which a fresher token is due.

    It is the last event's.
    """
    for passed_s in range(int(QUIET_S) + 2):
        assert await watching.take(passed_over(passed_s)) == []
        token = watching.fresher_token()
        if token is not None:
            assert token == token_at(passed_s)
            return passed_s
        clock.now += 1
    raise AssertionError(f"there is none after {passed_s} s")


async def test_tokens_of_equal_subscriptions_are_not_due_at_the_same_time(
    clock: Clock,
) -> None:
    """Each is due after between half of the interval and all of it, each time."""
    found = []
    for _ in range(50):
        watching = watching_deletions()
        found += [await due_after_s(watching, clock), await due_after_s(watching, clock)]
    assert all(QUIET_S / 2 <= each <= QUIET_S for each in found)
    assert max(map(found.count, found)) < len(found) / 3


async def test_a_sent_event_restarts_the_interval(clock: Clock) -> None:
    """The token of the event is fresh."""
    watching = watching_deletions()
    await watching.take(passed_over(1))
    clock.now += QUIET_S - 1
    deletion = LiveEvents([event(2, operation="delete", before={"name": "b"})])
    assert [each.operation for each in await watching.take(deletion)] == ["DELETE"]
    assert watching.fresher_token() is None
    await watching.take(passed_over(3))
    clock.now += QUIET_S / 2 - 1
    assert watching.fresher_token() is None
    clock.now += QUIET_S / 2 + 1
    assert watching.fresher_token() == token_at(3)
    # No token is fresher than this one.
    clock.now += QUIET_S
    assert watching.fresher_token() is None


async def test_subscriptions_with_different_filters_share_a_change() -> None:
    """Its enrichment and diff are computed once.

    A change that enters only one filter is computed twice.
    """
    nothing: Any = None
    completion = EventEnrichment(THING, nothing, nothing, nothing)
    events = LiveEvents([event(1, before={"name": "a"}, after={"name": "c"})])
    found = []
    for bound in ("b", "d", "e"):
        request = ChangeRequest(where=Compare("name", Comparison.LT, bound))
        watching = EventFilter(THING, request, ALL_ROWS, completion, quiet_s=QUIET_S)
        found += await watching.take(events)
    left, stayed, others = found
    assert [each.transition for each in found] == ["LEAVE", "STAY", "STAY"]
    assert stayed is others
    assert left.document == stayed.document
