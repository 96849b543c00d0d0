"""streams.numbers: what is known ahead of the archive is what the recorder writes, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from bson import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from streams import tokens
from streams.archive import Archive
from streams.events import ChangeEvent
from streams.hub import Hub
from streams.numbers import Numbers
from streams.progress import Progress
from streams.versions import Last, make_version
from tests.support.streams import batch, event

BEGINNING = tokens.moment(Timestamp(1, 0))


class Recorder:
    """An archive and how far it has come, of a recorder that is as far behind as it is told to."""

    collection = "things"

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.here: object | None = object()
        self.reached = hub.position
        self.reads = 0
        self.waiting: list[ChangeEvent] = []
        self.inserted: list[ChangeEvent] = []
        self.records: list[Mapping[str, Any]] = []
        self.lasts: dict[Any, Last] = {}

    def publish(self, made: ChangeEvent) -> None:
        self.hub.publish(batch(made))
        self.waiting.append(made)

    def record(self, count: int) -> None:
        self.insert(max(0, count - len(self.inserted)))
        for each in self.inserted[:count]:
            self.reached = each.token
        del self.inserted[:count]

    def insert(self, count: int) -> None:
        """Versions of which nobody has been told that they are archived."""
        for each in self.waiting[:count]:
            record, self.lasts[each.key] = make_version(
                token=each.token,
                at=each.at,
                wall=each.wall,
                key=each.key,
                operation=each.operation.upper(),
                after=each.after,
                last=self.lasts.get(each.key),
                version_field="version",
                event=each,
            )
            self.records.append(record)
        self.inserted += self.waiting[:count]
        del self.waiting[:count]

    def tenure(self, _collection: str) -> object | None:
        return self.here

    def known(self, _collection: str) -> str:
        return self.reached

    async def newest(self, wanted: Sequence[Mapping[str, Any]], **_: Any) -> list[Any]:
        self.reads += 1
        at = wanted[0]["at"]
        # As an answer that was long on its way.
        found = {each["doc"]: each for each in self.records if each["at"] <= at}
        await asyncio.sleep(0)
        return [found[each["key"]] for each in wanted if each["key"] in found]


def counting() -> tuple[Recorder, Numbers]:
    hub = Hub(["things"], position=BEGINNING)
    recorder = Recorder(hub)
    numbers = Numbers(
        cast(Archive, recorder), hub, cast(Progress, recorder), version_field="version"
    )
    return recorder, numbers


def update(seconds: int, key: int = 1, version: Any = None) -> ChangeEvent:
    return event(seconds, key=key, before={"_id": key}, after={"_id": key, "version": version})


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["begin", "update", "replace", "delete", "blind"]),
            st.integers(1, 3),
            st.sampled_from([None, 1, 3, 7, "x"]),
        ),
        st.tuples(st.sampled_from(["insert", "record"]), st.integers(1, 5)),
        st.tuples(st.just("ask"), st.integers(1, 6)),
        st.just(("lose",)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_number_that_is_known_is_the_one_that_is_recorded(steps: list[Any]) -> None:
    """Whatever is written, however far the archive is behind, whoever asks when."""
    asyncio.run(counted(steps))


async def counted(steps: list[Any]) -> None:
    recorder, numbers = counting()
    told: dict[str, tuple[int, int]] = {}
    events: list[ChangeEvent] = []
    standing: set[int] = set()
    asked: list[asyncio.Task[Any]] = []
    for second, step in enumerate(steps, 2):
        if step[0] == "record":
            recorder.record(step[1])
        elif step[0] == "insert":
            recorder.insert(step[1])
        elif step[0] == "lose":
            recorder.here = object()
        elif step[0] == "ask":
            asked.append(asyncio.create_task(numbers.of(events[-step[1] :])))
            await asyncio.sleep(0)
        else:
            kind, key, version = step
            if (kind == "begin") == (key in standing):
                continue
            standing.symmetric_difference_update({key} if kind in ("begin", "delete") else ())
            after = {"_id": key, "version": version}
            made = event(
                second,
                key=key,
                operation={"begin": "insert", "blind": "update"}.get(kind, kind),
                # Of one that is blind the recorder reads the image elsewhere.
                after=None if kind in ("delete", "blind") else after,
                before={"_id": key},
            )
            recorder.publish(made)
            events.append(made)
    for each in await asyncio.gather(*asked):
        told |= each
    told |= await numbers.of(events)
    recorder.record(len(events))
    recorded = {each["_id"]: each for each in recorder.records}
    for token, (number, previous) in told.items():
        assert recorded[token]["v"] == number
        assert recorded[recorded[token]["prev"]]["v"] == previous


async def test_one_read_per_document_is_enough() -> None:
    """From there on its events are counted as they come, the archive far behind."""
    recorder, numbers = counting()
    recorder.publish(event(2, operation="insert", after={"_id": 1}))
    recorder.record(1)
    for second in range(3, 50):
        made = update(second)
        recorder.publish(made)
        assert (await numbers.of([made]))[made.token] == (second - 1, second - 2)
    assert recorder.reads == 1


async def test_those_who_ask_at_once_share_the_read() -> None:
    recorder, numbers = counting()
    recorder.publish(event(2, operation="insert", after={"_id": 1}))
    recorder.record(1)
    made = update(3, version=9)
    recorder.publish(made)
    answers = await asyncio.gather(*(numbers.of([made]) for _ in range(5)))
    assert [each[made.token] for each in answers] == [(9, 1)] * 5
    assert recorder.reads == 1


async def test_the_version_of_an_event_may_be_there_already() -> None:
    """Its number follows from the version before it, all the same."""
    recorder, numbers = counting()
    recorder.publish(event(2, operation="insert", after={"_id": 1}))
    recorder.record(1)
    made = update(3, version=9)
    recorder.publish(made)
    recorder.insert(1)
    assert (await numbers.of([made]))[made.token] == (9, 1)


@pytest.mark.parametrize("why", ["recorded elsewhere", "lost in between", "dropped", "restarted"])
async def test_what_a_break_leaves_in_doubt_is_not_known(why: str) -> None:
    recorder, numbers = counting()
    recorder.publish(event(2, operation="insert", after={"_id": 1}))
    recorder.record(1)
    made = update(3)
    recorder.publish(made)
    assert await numbers.of([made])
    if why == "recorded elsewhere":
        recorder.here = None
    elif why == "lost in between":
        recorder.here = object()
        recorder.hub.restart(tokens.moment(Timestamp(9, 0)))
    elif why == "dropped":
        recorder.hub.publish(batch(event(4, key=None, operation="drop")))
    else:
        recorder.hub.restart(tokens.moment(Timestamp(9, 0)))
    assert await numbers.of([made]) == {}
