"""Shared source: every event once and in order, from either stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.live.hub import Hub, HubOptions
from revstream.streams.live.shared_source import SharedSource
from tests.support.eventually import eventually
from tests.support.streams import event, stop_task, token_at, turn, unless_ended

pytestmark = pytest.mark.timeout(120)

BEGINNING = token_at(1)


class Oplog:
    """The events, and two streams of them: the hub's and a recorder's own."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.events: list[ChangeEvent] = []
        self.published = 0
        self.hub = Hub(["things"], position=BEGINNING, options=HubOptions(ring_events=4))
        # The live source:
        self.connected = True
        self.trouble: str | None = None
        # The recorder's own source:
        self.reconnects = 0
        self.opened = 0
        self.open = False
        self.hidden = 0
        self.joint = SharedSource(cast(Source, self), cast(Source, self), self.hub, partition)

    def happen(self, what: str, key: int = 0) -> None:
        second = len(self.events) + 2
        fates: dict[str, dict[str, Any]] = {
            "write": {},
            "elsewhere": {"collection": "people"},
            "drop": {"operation": "drop"},
            "arrive": {"operation": "rename", "collection": "people", "renamed_to": "things"},
            "dropDatabase": {"operation": "dropDatabase", "collection": ""},
        }
        written = what in ("write", "elsewhere")
        self.events.append(event(second, key=key if written else None, **fates[what]))

    def concerned(self, each: ChangeEvent) -> bool:
        names = {each.collection, each.renamed_to}
        return bool(names & {"things", ""}) and self.partition.concerns(each)

    def between(self, after: str, upto: str) -> list[ChangeEvent]:
        return [each for each in self.events if after < each.token <= upto and self.concerned(each)]

    @property
    def end(self) -> str:
        return place(self.events[-1]) if self.events else BEGINNING

    @property
    def recorder_position(self) -> str:
        """Return the position that the recorder's own stream has reached."""
        recorder_position = self.events[: max(0, len(self.events) - self.hidden)]
        return place(recorder_position[-1]) if recorder_position else BEGINNING

    def publish(self, count: int) -> None:
        events = tuple(self.events[self.published : self.published + count])
        self.published += len(events)
        self.hub.publish(EventBatch(events, place(events[-1]) if events else self.hub.position))

    def restart(self) -> None:
        """Restart the live stream at the current end, after it was away for too long."""
        self.published = len(self.events)
        self.hub.restart(max(self.end, self.hub.position))

    async def batches(self, after: str) -> AsyncGenerator[EventBatch]:
        self.opened += 1
        self.open = True
        try:
            while True:
                end = self.recorder_position
                found = self.between(after, end)[:3]
                after = place(found[-1]) if len(found) == 3 else max(after, end)
                yield EventBatch(tuple(found), after)
                await turn()
        finally:
            self.open = False


def place(last: ChangeEvent) -> str:
    return last.token if last.is_write else resume_tokens.token_after_event(last.token)


class Reader:
    """Reads batches of the shared source, and compares each with the oplog."""

    def __init__(self, oplog: Oplog) -> None:
        self.oplog = oplog
        self.position = BEGINNING

    async def read(self) -> None:
        async with aclosing(self.oplog.joint.batches(self.position)) as batches:
            async for batch in batches:
                assert batch.position >= self.position
                meant = self.oplog.between(self.position, batch.position)
                assert list(batch.events) == meant
                self.position = batch.position

    async def reached(self, token: str) -> None:
        await eventually(lambda: self.position >= token)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["write", "write", "write", "elsewhere", "drop", "arrive"]),
            st.integers(0, 3),
        ),
        st.tuples(st.sampled_from(["dropDatabase", "cut", "mend", "restart"]), st.just(0)),
        st.tuples(st.sampled_from(["publish", "turns", "hide"]), st.integers(0, 6)),
    ),
    max_size=60,
)


@given(steps=STEPS, count=st.integers(1, 2))
def test_every_event_once_and_in_order(steps: list[tuple[str, int]], count: int) -> None:
    """This holds for any steps, any lag of the live stream, and any number of interruptions."""
    asyncio.run(check(steps, Oplog(Partition("things", 0, count))))


async def check(steps: list[tuple[str, int]], oplog: Oplog) -> None:
    reader = Reader(oplog)
    reading = asyncio.ensure_future(reader.read())
    for what, number in steps:
        if what == "turns":
            for _ in range(number):
                await turn()
        elif what == "publish":
            oplog.publish(number)
        elif what == "hide":
            oplog.hidden = number
        elif what in ("cut", "mend"):
            oplog.connected = what == "mend"
        elif what == "restart":
            oplog.restart()
        else:
            oplog.happen(what, number)
    oplog.connected, oplog.hidden = True, 0
    oplog.publish(len(oplog.events))
    await unless_ended(reading, reader.reached(oplog.end))
    await stop_task(reading)


@pytest.fixture
async def abreast() -> tuple[Oplog, Reader, asyncio.Future[None]]:
    """Provide a reader that shares the live stream."""
    oplog = Oplog(Partition("things"))
    oplog.happen("write")
    oplog.publish(1)
    reader = Reader(oplog)
    reading = asyncio.ensure_future(reader.read())
    await reader.reached(oplog.end)
    while oplog.open:
        await turn()
    return oplog, reader, reading


Abreast = tuple[Oplog, Reader, asyncio.Future[None]]


async def test_a_reader_of_the_live_stream_opens_none_of_its_own(abreast: Abreast) -> None:
    """It gets all events from the hub."""
    oplog, reader, reading = abreast
    for _ in range(10):
        oplog.happen("write")
        oplog.publish(1)
        await reader.reached(oplog.end)
    assert oplog.opened == 1
    assert not oplog.open
    oplog.trouble = "as the live stream says"
    assert oplog.joint.trouble == oplog.trouble
    await stop_task(reading)


@pytest.mark.parametrize("why", ["silent", "cut off", "too far behind", "restarted"])
async def test_a_reader_opens_its_own_stream_while_the_live_one_does_not_advance(
    abreast: Abreast, why: str
) -> None:
    """The live stream is silent or interrupted."""
    oplog, reader, reading = abreast
    oplog.happen("write")
    if why == "silent":
        oplog.hub.moved_at -= 60
    elif why == "cut off":
        oplog.connected = False
    elif why == "too far behind":
        for _ in range(9):
            oplog.happen("write")
        oplog.publish(10)
    else:
        oplog.restart()
    await reader.reached(oplog.end)
    assert oplog.opened == 2
    # The reader shares the live stream again as soon as that advances.
    oplog.connected = True
    oplog.publish(10)
    while oplog.open:
        await turn()
    await stop_task(reading)


async def test_database_events_are_read_from_its_own_stream(abreast: Abreast) -> None:
    """The ring of a collection does not have them."""
    oplog, reader, reading = abreast
    oplog.happen("dropDatabase")
    oplog.publish(1)
    await reader.reached(oplog.end)
    assert oplog.opened == 2
    await stop_task(reading)
