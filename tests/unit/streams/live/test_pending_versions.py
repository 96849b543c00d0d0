"""streams.live.pending_versions: what is known ahead of the archive is what the recorder writes,
or nothing."""

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
from tests.support.streams import event, finished, token_at, turn

NAME = "things"
WHOLE = Partition(NAME)


class Recorder:
    """Of events, drafted and written when it is told to."""

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
        """From what is written, as another process does."""
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
def test_a_number_that_is_known_is_the_one_that_is_recorded(steps: list[Any]) -> None:
    """Whatever is written, however far the recorder is behind, whoever asks when: also of those
    who asked before it was drafted."""
    asyncio.run(drafted_and_asked(steps))


async def drafted_and_asked(steps: list[Any]) -> None:
    numbers = PendingVersions()
    recorder = Recorder(numbers)
    asked: list[asyncio.Task[Mapping[str, NumberedEvent]]] = []
    for second, step in enumerate(steps, 2):
        match step:
            case "draft", count:
                recorder.draft(count)
            case "write", count:
                recorder.write(count)
            case "lose", *_:
                recorder.begin_anew()
            case "ask", count if recorder.events:
                asked.append(asyncio.create_task(numbers.lookup(recorder.events[-count:])))
                await turn()
            case str(kind), key, version:
                after = None if kind == "delete" else {"_id": key, "version": version}
                made = event(second, key=key, operation=kind, after=after, before={"_id": key})
                recorder.events.append(made)
    recorder.draft(len(recorder.events))
    told: dict[str, NumberedEvent] = {}
    for each in await asyncio.gather(*asked):
        told |= each
    if recorder.events:
        told |= await numbers.lookup(recorder.events)
    recorded = {each["_id"]: each for each in recorder.records}
    for token, (number, previous, *_) in told.items():
        record = recorded[token]
        assert record["v"] == number
        assert previous == (None if record["prev"] is None else recorded[record["prev"]]["v"])
    # Of one that is not told, there is more to tell.
    assert all("gap" in recorded[each] for each in recorded.keys() - told.keys())


def numbered(*seconds: int) -> dict[str, NumberedEvent]:
    return {token_at(second): NumberedEvent(second, second - 1) for second in seconds}


async def test_who_asks_before_it_is_drafted_waits() -> None:
    """Until all of it is, and with others."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(1), {})
    both = [event(2), event(3)]
    first, second, given_up = (asyncio.create_task(numbers.lookup(both)) for _ in range(3))
    await turn()
    numbers.add(WHOLE, token_at(2), numbered(2))
    await turn()
    assert not first.done()
    # Whoever is cancelled takes nothing from the others.
    await finished(given_up)
    numbers.add(WHOLE, token_at(3), numbered(3))
    assert await first == await second == numbered(2, 3)


async def test_what_has_more_to_tell_is_not_waited_for() -> None:
    """As of a version with a gap, of which the archive has to be asked."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(5), numbered(2))
    assert await numbers.lookup([event(2), event(3)]) == numbered(2)


async def test_a_recorder_that_is_far_behind_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(1), {})
    assert await numbers.lookup([event(2)]) == {}


async def test_a_recorder_elsewhere_is_not_waited_for() -> None:
    """Nor is one of several; what those here have drafted is known."""
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


async def test_of_a_recorder_that_stops_nothing_stays() -> None:
    """What it drafted may never have been written. Who waits for it is let go."""
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(2), numbered(2))
    waiting = asyncio.create_task(numbers.lookup([event(2), event(3)]))
    await turn()
    numbers.remove_partition(WHOLE)
    assert await waiting == {}
    assert await numbers.lookup([event(2)]) == {}


async def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last events."""
    monkeypatch.setattr(module, "_EVENTS", 2)
    numbers = PendingVersions()
    numbers.add(WHOLE, token_at(3), numbered(2, 3))
    numbers.add(WHOLE, token_at(4), numbered(4))
    assert await numbers.lookup([event(2), event(3), event(4)]) == numbered(3, 4)
