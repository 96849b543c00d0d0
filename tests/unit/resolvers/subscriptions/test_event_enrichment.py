"""Event enrichment: results are shared by subscribers with the same needs, and by no others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from revstream.resolvers.subscriptions.event_enrichment import EventEnrichment, EventNeeds, _Records
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.live.pending_versions import NumberedEvent
from tests.support.streams import event


class Counted:
    """Knows the numbers and counts the lookups."""

    def __init__(self) -> None:
        self.lookups = 0

    async def lookup(self, events: Collection[ChangeEvent]) -> Mapping[str, NumberedEvent]:
        self.lookups += 1
        return {each.token: NumberedEvent(7, 6) for each in events}


async def test_equal_events_are_enriched_once_for_equal_needs() -> None:
    """Other needs are other lookups."""
    numbers: Any = Counted()
    nothing: Any = None
    completion = EventEnrichment(nothing, nothing, nothing, nothing, numbers)
    events = [event(second, key="a", operation="insert", after={"x": 1}) for second in (1, 2)]

    async def enriched(version: bool, replayed: bool, first: int = 0) -> list[tuple[Any, bool]]:
        needs = EventNeeds(version=version)
        found = await completion.of_events(events[first:], needs, replayed=replayed)
        return [(each.version, each.replayed) for each in found]

    for _ in range(2):
        assert await enriched(version=False, replayed=False) == [(None, False)] * 2
        assert await enriched(version=True, replayed=False) == [(7, False)] * 2
        assert await enriched(version=True, replayed=True) == [(7, True)] * 2
    assert numbers.lookups == 2
    assert await enriched(version=True, replayed=False, first=1) == [(7, False)]


async def test_the_author_of_a_version_is_the_recorders() -> None:
    """A document may hold the attribution of a clone.

    A live event and its replay have the same author.
    """
    numbers: Any = Counted()
    nothing: Any = None
    completion = EventEnrichment(nothing, nothing, nothing, nothing, numbers)
    cloned = {"x": 1, "_change": {"id": "c", "by": "bram", "why": "raised"}}
    [change] = await completion.of_events(
        [event(1, key="b", operation="insert", after=cloned)],
        EventNeeds(author=True),
        replayed=False,
    )
    assert (change.by, change.why) == (None, None)
    assert numbers.lookups == 1
    # Without an attribution in the document, no lookup is needed.
    plain = event(2, key="c", operation="insert", after={"x": 1})
    [change] = await completion.of_events([plain], EventNeeds(author=True), replayed=False)
    assert (change.by, numbers.lookups) == (None, 1)


async def test_a_failed_read_of_records_ends_all_lookups() -> None:
    """Unexpected failures do so as well; the next lookup reads again."""

    class Broken:
        lookups = 0

        async def by_token(self, tokens: Any, *, projection: Any) -> Any:
            self.lookups += 1
            raise RuntimeError("broken")

    archive: Any = Broken()
    records = _Records(archive)
    for count in (1, 2):
        both = asyncio.gather(
            *(records.load(["t"], full=False) for _ in range(2)), return_exceptions=True
        )
        assert [str(each) for each in await asyncio.wait_for(both, 5)] == ["broken"] * 2
        assert archive.lookups == count
