"""The source against a scripted server: positions, reconnects, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import EventBatch
from revstream.streams.changefeed.source import Source, SourceOptions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import (
    ConnectionLost,
    DatabaseError,
    HistoryLost,
    Unavailable,
    Unsuitable,
)
from revstream.streams.mongo.driver.codecs import RAW
from tests.support.eventually import eventually

QUICK = SourceOptions(retry_first_s=0.0001, retry_most_s=0.001)


def data(seconds: int, count: int = 1) -> str:
    """Return an event's `_data`."""
    return f"82{seconds:08X}000000012B042C0100{count:04X}"


def mark(seconds: int) -> str:
    """Return the `_data` of a high-water mark: before all events of its time."""
    return f"82{seconds:08X}000000012B0229296E04"


def change(seconds: int, count: int = 1, operation: str = "insert") -> RawBSONDocument:
    return RawBSONDocument(
        bson.encode(
            {
                "_id": {"_data": data(seconds, count)},
                "operationType": operation,
                "clusterTime": Timestamp(seconds, 1),
                "ns": {"db": "d", "coll": "things"},
                "documentKey": {"_id": count},
                "fullDocument": {"_id": count},
            }
        ),
        RAW,
    )


def reply(*events: RawBSONDocument, token: str | None = None) -> dict[str, Any]:
    return {"batch": list(events), "token": None if token is None else {"_data": token}}


def moment(seconds: int) -> str:
    return resume_tokens.token_from_time(Timestamp(seconds, 1))


class Script:
    """Answers each opening of the stream with the next list: replies, then perhaps an error."""

    def __init__(self, *openings: Sequence[Any]) -> None:
        self.started_at: list[Timestamp | str] = []
        self.asked: list[str] = []
        self.away = False
        self._openings = iter(openings)

    @asynccontextmanager
    async def change_batches(
        self, pipeline: Sequence[Mapping[str, Any]], *, size: int, wait_ms: int
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        self.asked.append(level_of_detail(pipeline, size))
        stage = pipeline[0]["$changeStream"]
        self.started_at.append(stage.get("startAtOperationTime") or stage["startAfter"]["_data"])
        opening = next(self._openings, None)
        if opening is None:
            raise DatabaseError("the script ends", number=999)

        async def replies() -> AsyncIterator[dict[str, Any]]:
            for each in opening:
                if isinstance(each, Exception):
                    raise each
                yield each

        yield replies()

    async def command(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if self.away:
            raise Unavailable("no primary")
        return {"ok": 1}


async def read(script: Script, after: str, **options: Any) -> list[EventBatch]:
    """Return all batches until the script's end."""
    source = Source(script, ["things"], before_images=False, options=QUICK, **options)  # type: ignore[arg-type]
    found = []
    async with aclosing(source.batches(after)) as batches:
        with pytest.raises(DatabaseError, match="the script ends"):
            async for each in batches:
                found.append(each)  # noqa: PERF401 - the error ends it
    return found


def keys(batches: Sequence[EventBatch]) -> list[Any]:
    return [event.key for batch in batches for event in batch.events]


async def test_a_batch_moves_the_position_to_its_last_event() -> None:
    """If more events may follow, the postBatchResumeToken is that event's token."""
    script = Script([reply(change(5, 1), change(5, 2), token=data(5, 2))])
    found = await read(script, moment(4))
    assert keys(found) == [1, 2]
    assert found[-1].position == resume_tokens.token_from_stream(data(5, 2))
    assert script.started_at[0] == Timestamp(4, 1)


async def test_a_high_water_mark_moves_the_position_after_its_time() -> None:
    """An empty batch proves that there are no further events up to the mark."""
    found = await read(Script([reply(token=mark(4)), reply(token=mark(9))]), moment(4))
    assert [each.position for each in found] == [moment(4), moment(9)]


async def test_the_mark_of_an_opened_stream_does_not_move_the_position() -> None:
    """It repeats the start of the stream; events of that very time may follow."""
    script = Script([reply(token=mark(4)), reply(change(4, 1), token=data(4, 1))])
    found = await read(script, resume_tokens.time_prefix(Timestamp(4, 1)))
    assert found[0].position < resume_tokens.token_from_stream(data(4, 1))
    assert keys(found) == [1]


async def test_a_mark_of_a_sharded_cluster_stays_before_the_events_of_its_time() -> None:
    """Another shard may still send one."""
    found = await read(Script([reply(token=mark(9))]), moment(4), sharded=True)
    assert found[0].position == resume_tokens.token_from_stream(mark(9)) < moment(9)


async def test_an_empty_batch_proves_that_the_time_of_the_last_event_is_over() -> None:
    """The server repeats that event's token while idle: no more events of its time follow."""
    script = Script([reply(change(5), token=data(5)), reply(token=data(5))])
    found = await read(script, moment(4))
    assert [each.position for each in found] == [
        resume_tokens.token_from_stream(data(5)),
        moment(5),
    ]
    script = Script([reply(change(5), token=data(5)), reply(token=data(5))])
    found = await read(script, moment(4), sharded=True)
    assert found[-1].position == resume_tokens.token_from_stream(data(5))


async def test_a_stream_resumed_at_the_last_event_knows_that_its_time_is_over() -> None:
    """This holds on an idle server too: the event is sent again, skipped, and no other follows."""
    script = Script([reply(change(5), token=data(5)), reply(token=data(5))])
    found = await read(script, resume_tokens.token_from_stream(data(5)))
    assert keys(found) == []
    assert [each.position for each in found] == [
        resume_tokens.token_from_stream(data(5)),
        moment(5),
    ]


async def test_the_position_never_goes_back() -> None:
    """Neither an older mark nor skipped events move it back."""
    script = Script([reply(change(4), token=data(4)), reply(token=mark(3)), reply(change(6))])
    found = await read(script, moment(5))
    assert [each.position for each in found] == [
        moment(5),
        moment(5),
        resume_tokens.token_from_stream(data(6)),
    ]
    assert keys(found) == [1]


async def test_events_of_the_position_s_own_time_are_skipped_up_to_it() -> None:
    """Delivered events of a transaction are not delivered again after resuming by time."""
    script = Script([reply(change(5, 1), change(5, 2), change(5, 3), token=data(5, 3))])
    found = await read(script, resume_tokens.token_from_stream(data(5, 2)))
    assert keys(found) == [3]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the connection was lost"),
        DatabaseError("cursor not found", number=43, resumable=True),
    ],
)
async def test_an_interruption_is_resumed_where_it_was(error: Exception) -> None:
    """No event is lost or repeated, in the middle of a transaction too."""
    script = Script(
        [reply(change(5, 1), change(5, 2), token=data(5, 2)), error],
        [error],
        [reply(change(5, 1), change(5, 2), change(5, 3), token=mark(6))],
    )
    found = await read(script, moment(4))
    assert keys(found) == [1, 2, 3]
    assert script.started_at[:3] == [Timestamp(4, 1), Timestamp(5, 1), Timestamp(5, 1)]


async def test_reconnects_are_counted_and_the_connection_is_reported() -> None:
    """`/readyz` and the metrics show both."""
    script = Script([Unavailable("x")], [reply(token=mark(5)), Unavailable("x")])
    source = Source(script, ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    async with aclosing(source.batches(moment(4))) as batches:
        assert not source.connected
        await anext(batches)
        assert (source.reconnects, source.connected) == (1, True)
        with pytest.raises(DatabaseError):
            await anext(batches)
        assert (source.reconnects, source.connected) == (2, False)


async def test_a_long_interruption_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has stream and reason, and not a line for each attempt."""
    outage = [Unavailable("no primary")]
    script = Script(*[outage] * 20, [reply(token=mark(5))])
    source = Source(
        script,  # type: ignore[arg-type]
        ["things"],
        before_images=False,
        options=QUICK,
        name="recorder:things",
    )
    caplog.set_level("INFO", logger="revstream.streams.changefeed.source")
    async with aclosing(source.batches(moment(4))) as batches:
        await anext(batches)
    assert (source.reconnects, source.trouble) == (20, None)
    logged = [(each.getMessage(), vars(each)["stream"]) for each in caplog.records]
    assert logged == [
        ("change stream interrupted", "recorder:things"),
        ("change stream open again", "recorder:things"),
    ]


async def test_a_stream_that_breaks_at_once_is_reopened_with_growing_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An overloaded server gets few attempts.

    A stream that has made progress is reopened at once.
    """
    attempts: list[int] = []
    monkeypatch.setattr(
        Source, "_log_interruption", lambda self, why, attempt, s: attempts.append(attempt)
    )
    breaks = [reply(token=mark(5)), Unavailable("MongoDB is overloaded")]
    goes_on = [reply(token=mark(5)), reply(token=mark(6)), Unavailable("MongoDB is overloaded")]
    await read(Script(breaks, breaks, breaks, goes_on, breaks), moment(4))
    assert attempts == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("number", [286, 136])
async def test_an_oplog_that_rolled_over_is_history_lost(number: int) -> None:
    """The source never continues from now on; the message has the time of the last event."""
    script = Script([DatabaseError("gone", number=number)])
    source = Source(script, ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    with pytest.raises(HistoryLost, match="1970-01-01 00:00:04Z"):
        await anext(source.batches(moment(4)))
    assert not source.connected


@pytest.mark.parametrize(
    "error",
    [
        Unsuitable("a standalone"),
        DatabaseError("fatal", number=280),
        # Network errors and elections of servers before 4.4; newer servers send a label.
        DatabaseError("no label", number=91),
        ZeroDivisionError(),
    ],
)
async def test_a_permanent_error_is_raised(error: Exception) -> None:
    """A bug is never retried, nor a server that cannot serve."""
    source = Source(Script([error]), ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        await anext(source.batches(moment(4)))


async def test_a_stream_that_the_server_closed_continues_one_tick_later() -> None:
    """The server would close a stream again at the time of its invalidate."""
    script = Script(
        [reply(change(5, 1, "dropDatabase"), change(5, 2, "invalidate"), token=data(5, 2))],
        [reply(change(7), token=data(7))],
    )
    found = await read(script, moment(4))
    assert [event.operation for batch in found for event in batch.events] == [
        "dropDatabase",
        "invalidate",
        "insert",
    ]
    assert script.started_at[1] == Timestamp(5, 2)


async def test_the_position_after_a_drop_is_after_all_of_its_records() -> None:
    """The archive makes many records of one drop, whose tokens begin with the event's."""
    script = Script([reply(change(5, operation="drop"), token=data(5))])
    found = await read(script, moment(4))
    drop = resume_tokens.token_from_stream(data(5))
    assert resume_tokens.numbered_token(drop, 1) < found[-1].position < moment(5)
    assert (
        resume_tokens.decode(resume_tokens.encode(found[-1].position, "abc"), "abc")
        == found[-1].position
    )
    script = Script([reply(change(5, 1, "drop"), change(5, 2), token=mark(6))])
    assert keys(await read(script, found[-1].position)) == [2]


async def test_before_images_are_requested_only_where_needed() -> None:
    """The recorder needs none: each costs the server a read."""
    requested = []

    class Asked(Script):
        def change_batches(self, pipeline: Sequence[Mapping[str, Any]], **options: Any) -> Any:
            requested.append(pipeline[0]["$changeStream"].get("fullDocumentBeforeChange"))
            return super().change_batches(pipeline, **options)

    for wanted in (False, True):
        source = Source(Asked(), ["things"], before_images=wanted, options=QUICK)  # type: ignore[arg-type]
        with pytest.raises(DatabaseError):
            await anext(source.batches(moment(4)))
    assert requested == [None, "whenAvailable"]


async def test_other_tasks_run_while_a_large_batch_is_decoded() -> None:
    """Requests do not wait until a thousand events are decoded."""
    script = Script([reply(*(change(5, n) for n in range(1, 1001)))])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    source = Source(script, ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    async with aclosing(source.batches(moment(4))) as batches:
        assert len((await anext(batches)).events) == 1000
    task.cancel()
    assert turns >= 5


TOO_LARGE = DatabaseError("BSONObj size is invalid", number=10334)
CLOSED = ConnectionLost("the connection to MongoDB was lost: connection closed")


def level_of_detail(pipeline: Sequence[Mapping[str, Any]], size: int) -> str:
    """Return the level of detail that an opening requests, as a short text."""
    stages = {name for each in pipeline[2:] for name in each}
    return " ".join(
        [
            *(["images"] if "fullDocument" in pipeline[0]["$changeStream"] else []),
            *(["single"] if size == 1 else []),
            *(["bare"] if "$project" in stages else []),
            *(["short keys"] if "$match" in stages else []),
        ]
    )


async def test_an_event_that_is_too_large_is_requested_with_less_detail() -> None:
    """The error is raised once no detail is left to omit."""
    script = Script(*[[TOO_LARGE]] * 4, [DatabaseError("the script ends", number=10334)])
    await read(script, moment(1))
    assert script.asked == ["images", "", "single", "single bare", "single bare short keys"]


async def test_only_the_large_event_is_read_without_content() -> None:
    """Full detail is requested again right after the event that was too large."""
    script = Script(
        *[[TOO_LARGE]] * 3,
        [reply(token=mark(4)), reply(change(5, 1), token=data(5, 1)), ZeroDivisionError()],
        [reply(change(6, 2), token=data(6, 2))],
    )
    found = await read(script, moment(4))
    assert [(each.key, each.bare) for batch in found for each in batch.events] == [
        (1, True),
        (2, False),
    ]
    assert script.asked == ["images", "", "single", "single bare", "images", "images"]
    # Reopened at its own time, the stream would send it again.
    assert script.started_at == [*[Timestamp(4, 1)] * 4, data(5, 1), Timestamp(6, 2)]


async def test_an_unreadable_event_is_skipped_and_reported() -> None:
    """The next batch is marked as following a loss; the one after it is not."""
    script = Script(
        *[[TOO_LARGE]] * 4,
        [reply(token=mark(4)), reply(change(6, 1), token=data(6, 1)), ZeroDivisionError()],
        [reply(change(6, 1), change(7, 2), token=data(7, 2))],
    )
    found = await read(script, moment(4))
    assert [(keys([each]), each.passed_over) for each in found] == [
        ([], False),
        ([], True),
        ([1, 2], False),
    ]
    assert script.started_at[4:6] == [Timestamp(4, 1), Timestamp(6, 1)]
    assert not any(event.bare for batch in found for event in batch.events)


async def test_a_server_that_closes_twice_at_one_position_has_a_large_event() -> None:
    """Some bytes below the limit, the server closes the connection in place of an error."""
    script = Script(
        [reply(change(4, 1), token=data(4, 1)), CLOSED],
        [CLOSED],
        [reply(change(5, 2), token=data(5, 2))],
        [reply(token=mark(6)), CLOSED],
        [reply(token=mark(6)), CLOSED],
        [reply(token=mark(6)), CLOSED],
    )
    found = await read(script, moment(3))
    assert keys(found) == [1, 2]
    # An empty reply proves that there was no event at this position.
    assert script.asked == ["images", "images", "", *["images"] * 4]


async def test_an_unreachable_server_is_not_a_large_event() -> None:
    """It answers no other command either, however often the connection is lost."""
    script = Script(*[[CLOSED]] * 9, [reply(change(5, 1), token=data(5, 1))])
    script.away = True
    assert keys(await read(script, moment(4))) == [1]
    assert script.asked == ["images"] * 11


async def test_a_source_that_is_closed_reports_no_trouble() -> None:
    """A recorder that lost its lease during an outage is ready all the same."""
    script = Script(*[[Unavailable("no primary")]] * 20, [reply(token=mark(5))])
    slow = SourceOptions(retry_first_s=600, retry_most_s=600)
    source = Source(script, ["things"], before_images=False, options=slow)  # type: ignore[arg-type]
    async with aclosing(source.batches(moment(4))) as batches:
        reading = asyncio.ensure_future(anext(batches))
        await eventually(lambda: source.trouble)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert (source.connected, source.trouble) == (False, None)
