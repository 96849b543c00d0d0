"""Pending versions: known numbers equal those that the recorder writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.live import pending_versions as module
from revstream.streams.live.pending_versions import NumberedEvent, PendingVersions
from revstream.streams.recording.versions.version_batch import VersionBatch
from revstream.streams.versioning.version import LastVersion, make_version
from tests.support.streams import event, stop_task, token_at, turn

NAME = "things"
WHOLE = Partition(NAME)


class Recorder:
    """Drafts and writes versions of events when the test says so."""

    def __init__(self, numbers: PendingVersions) -> None:
        self.numbers = numbers
        self.events: list[ChangeEvent] = []
        self.drafted = self.written = 0
        self.records: list[Mapping[str, Any]] = []
        self.lasts: dict[Any, LastVersion] = {}

    def draft(self, count: int) -> None:
        draft = VersionBatch()
        meant = self.events[self.drafted : self.drafted + count]
        for each in meant:
            last = self.lasts.get(each.key)
            standing = last is not None and last.full is not None
            record, self.lasts[each.key] = make_version(
                token=each.token,
                at=each.at,
                wall=each.wall,
                key=each.key,
                operation=each.operation.upper(),
                after=each.after,
                last=last,
                version_field="version",
                event=each,
                gap=(each.operation == "insert") == standing,
            )
            draft.add(record, last)
        self.drafted += len(meant)
        self.records += draft.records
        if meant:
            self.numbers.add(WHOLE, meant[-1].token, draft.numbered)

    def write(self, count: int) -> None:
        self.written = min(self.written + count, self.drafted)

    def begin_anew(self) -> None:
        """Restart from the written records, as another process does."""
        self.numbers.remove_partition(WHOLE)
        self.lasts, self.records, self.drafted = {}, [], 0
        self.draft(self.written)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["insert", "update", "replace", "delete"]),
            st.integers(1, 3),
            st.sampled_from([None, 1, 3, 7, "x"]),
        ),
        st.tuples(st.sampled_from(["draft", "write", "ask"]), st.integers(1, 6)),
        st.just(("lose",)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_known_number_is_the_recorded_one(steps: list[Any]) -> None:
    """This holds for any events and any lag of the recorder, also for lookups before the draft."""
    asyncio.run(drafted_and_asked(steps))


async def drafted_and_asked(steps: list[Any]) -> None:
    numbers = PendingVersions()
    recorder = Recorder(numbers)
    lookups: list[asyncio.Task[Mapping[str, NumberedEvent]]] = []
    for second, step in enumerate(steps, 2):
        match step:
            case "draft", count:
                recorder.draft(count)
            case "write", count:
                recorder.write(count)
            case "lose", *_:
                recorder.begin_anew()
            case "ask", count if recorder.events:
                lookups.append(asyncio.create_task(numbers.lookup(recorder.events[-count:])))
                await turn()
            case str(kind), key, version:
                after = None if kind == "delete" else {"_id": key, "version": version}
                change = event(second, key=key, operation=kind, after=after, before={"_id": key})
                recorder.events.append(change)
    recorder.draft(len(recorder.events))
    known: dict[str, NumberedEvent] = {}
    for each in await asyncio.gather(*lookups):
        known |= each
    if recorder.events:
        known |= await numbers.lookup(recorder.events)
    recorded = {each["_id"]: each for each in recorder.records}
    for token, (number, previous, *_) in known.items():
        record = recorded[token]
        assert record["v"] == number
        assert previous == (None if record["prev"] is None else recorded[record["prev"]]["v"])
    # An event without a number has more to it.
    assert all("gap" in recorded[each] for each in recorded.keys() - known.keys())


def numbered(*seconds: int) -> dict[str, NumberedEvent]:
    return {token_at(second): NumberedEvent(second, second - 1) for second in seconds}


async def test_a_lookup_before_the_draft_waits() -> None:
    """It waits until all its events are drafted; concurrent lookups share the wait."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(1), {})
    both = [event(2), event(3)]
    first, second, given_up = (asyncio.create_task(numbers.lookup(both)) for _ in range(3))
    await turn()
    numbers.add(WHOLE, token_at(2), numbered(2))
    await turn()
    assert not first.done()
    # A cancelled lookup does not affect the others.
    await stop_task(given_up)
    numbers.add(WHOLE, token_at(3), numbered(3))
    assert await first == await second == numbered(2, 3)


async def test_a_version_with_a_gap_is_not_awaited() -> None:
    """The archive has to be read for such a version."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(5), numbered(2))
    assert await numbers.lookup([event(2), event(3)]) == numbered(2)


async def test_a_late_recorder_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait has a time limit."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(1), {})
    assert await numbers.lookup([event(2)]) == {}


async def test_a_recorder_elsewhere_is_not_awaited() -> None:
    """The same holds for one of several partitions.

    Drafts of recorders in this process are known.
    """
    numbers = PendingVersions()
    assert await numbers.lookup([event(2)]) == {}
    here, elsewhere = collection_partitions(NAME, 2)
    numbers.add(here, token_at(2), numbered(2))
    assert await numbers.lookup([event(2), event(3)]) == numbered(2)
    numbers.add(elsewhere, token_at(2), {})
    waiting = asyncio.create_task(numbers.lookup([event(2), event(3)]))
    await turn()
    numbers.add(here, token_at(3), {})
    await turn()
    assert not waiting.done()
    numbers.add(elsewhere, token_at(4), numbered(3))
    assert await waiting == numbered(2, 3)


async def test_a_stopped_recorder_leaves_no_drafts() -> None:
    """They may never have been written. Waiting lookups end."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(2), numbered(2))
    waiting = asyncio.create_task(numbers.lookup([event(2), event(3)]))
    await turn()
    numbers.remove_partition(WHOLE)
    assert await waiting == {}
    assert await numbers.lookup([event(2)]) == {}


async def test_the_number_of_events_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are kept."""
    monkeypatch.setattr(module, "_EVENTS", 2)
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(3), numbered(2, 3))
    numbers.add(WHOLE, token_at(4), numbered(4))
    assert await numbers.lookup([event(2), event(3), event(4)]) == numbered(3, 4)
