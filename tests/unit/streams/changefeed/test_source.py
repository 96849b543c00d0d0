"""The source against a server that answers by script: positions, reconnects, what ends it."""

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
    """An event's `_data`."""
    return f"82{seconds:08X}000000012B042C0100{count:04X}"


def mark(seconds: int) -> str:
    """A high-water mark's `_data`: before all events of its time."""
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
    """Each opening of the stream takes the next list: replies, and perhaps an error at its end."""

    def __init__(self, *openings: Sequence[Any]) -> None:
        self.started_at: list[Timestamp | str] = []
        self.asked: list[str] = []
        self.away = False
        self._openings = iter(openings)

    @asynccontextmanager
    async def change_batches(
        self, pipeline: Sequence[Mapping[str, Any]], *, size: int, wait_ms: int
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        self.asked.append(asked(pipeline, size))
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
    """All batches until the script's end."""
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
    """Where more may stand behind it, the postBatchResumeToken is that event's."""
    script = Script([reply(change(5, 1), change(5, 2), token=data(5, 2))])
    found = await read(script, moment(4))
    assert keys(found) == [1, 2]
    assert found[-1].position == resume_tokens.token_from_stream(data(5, 2))
    assert script.started_at[0] == Timestamp(4, 1)


async def test_a_high_water_mark_moves_the_position_behind_its_time() -> None:
    """An empty batch says that nothing stands up to there, which a moment's token includes."""
    found = await read(Script([reply(token=mark(4)), reply(token=mark(9))]), moment(4))
    assert [each.position for each in found] == [moment(4), moment(9)]


async def test_the_mark_that_a_stream_opens_with_tells_nothing() -> None:
    """It repeats where the stream was asked to start; events of that very time may follow."""
    script = Script([reply(token=mark(4)), reply(change(4, 1), token=data(4, 1))])
    found = await read(script, resume_tokens.time_prefix(Timestamp(4, 1)))
    assert found[0].position < resume_tokens.token_from_stream(data(4, 1))
    assert keys(found) == [1]


async def test_a_mark_of_a_sharded_cluster_stays_before_the_events_of_its_time() -> None:
    """Another shard may still bring one."""
    found = await read(Script([reply(token=mark(9))]), moment(4), sharded=True)
    assert found[0].position == resume_tokens.token_from_stream(mark(9)) < moment(9)


async def test_an_empty_batch_says_that_the_time_of_the_last_event_is_over() -> None:
    """The server repeats that event's token while nothing else happens: no more of its time
    follow."""
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
    """On a quiet server too: the event comes again, is passed over, and nothing follows it."""
    script = Script([reply(change(5), token=data(5)), reply(token=data(5))])
    found = await read(script, resume_tokens.token_from_stream(data(5)))
    assert keys(found) == []
    assert [each.position for each in found] == [
        resume_tokens.token_from_stream(data(5)),
        moment(5),
    ]


async def test_the_position_never_goes_back() -> None:
    """Neither by a mark before it nor by events that are passed over."""
    script = Script([reply(change(4), token=data(4)), reply(token=mark(3)), reply(change(6))])
    found = await read(script, moment(5))
    assert [each.position for each in found] == [
        moment(5),
        moment(5),
        resume_tokens.token_from_stream(data(6)),
    ]
    assert keys(found) == [1]


async def test_events_of_the_position_s_own_time_are_passed_over_up_to_it() -> None:
    """Resumed by time: of a transaction, what was handed over is not handed over again."""
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
    """Nothing is lost and nothing comes twice, in the middle of a transaction too."""
    script = Script(
        [reply(change(5, 1), change(5, 2), token=data(5, 2)), error],
        [error],
        [reply(change(5, 1), change(5, 2), change(5, 3), token=mark(6))],
    )
    found = await read(script, moment(4))
    assert keys(found) == [1, 2, 3]
    assert script.started_at[:3] == [Timestamp(4, 1), Timestamp(5, 1), Timestamp(5, 1)]


async def test_reconnects_are_counted_and_the_connection_is_shown() -> None:
    """What `/readyz` and the metrics tell."""
    script = Script([Unavailable("x")], [reply(token=mark(5)), Unavailable("x")])
    source = Source(script, ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    async with aclosing(source.batches(moment(4))) as batches:
        assert not source.connected
        await anext(batches)
        assert (source.reconnects, source.connected) == (1, True)
        with pytest.raises(DatabaseError):
            await anext(batches)
        assert (source.reconnects, source.connected) == (2, False)


async def test_an_interruption_that_lasts_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Which stream, why, and that it goes on; not a line for each attempt."""
    gone = [Unavailable("no primary")]
    script = Script(*[gone] * 20, [reply(token=mark(5))])
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
    said = [(each.getMessage(), vars(each)["stream"]) for each in caplog.records]
    assert said == [
        ("change stream interrupted", "recorder:things"),
        ("change stream open again", "recorder:things"),
    ]


async def test_a_stream_that_opens_and_breaks_at_once_is_opened_ever_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An overloaded server is not asked ten times a second; one that has gone on is, at first."""
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
    """Never "from now": whoever follows decides what to do, and the message says since when."""
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
        # Network errors and elections of before 4.4: today the server's label says it.
        DatabaseError("no label", number=91),
        ZeroDivisionError(),
    ],
)
async def test_what_cannot_be_mended_by_trying_again_is_raised(error: Exception) -> None:
    """A bug is never retried, nor a server that cannot serve."""
    source = Source(Script([error]), ["things"], before_images=False, options=QUICK)  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        await anext(source.batches(moment(4)))


async def test_a_stream_that_the_server_closed_goes_on_one_tick_later() -> None:
    """After an invalidate; at its own time the server would only close it again."""
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


async def test_the_position_behind_a_drop_is_behind_all_records_that_are_made_of_it() -> None:
    """Of one event the archive makes many records, whose tokens begin with the event's."""
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


async def test_before_images_are_asked_for_only_where_they_are_wanted() -> None:
    """The recorder does without: they cost the server a read each."""
    asked = []

    class Asked(Script):
        def change_batches(self, pipeline: Sequence[Mapping[str, Any]], **options: Any) -> Any:
            asked.append(pipeline[0]["$changeStream"].get("fullDocumentBeforeChange"))
            return super().change_batches(pipeline, **options)

    for wanted in (False, True):
        source = Source(Asked(), ["things"], before_images=wanted, options=QUICK)  # type: ignore[arg-type]
        with pytest.raises(DatabaseError):
            await anext(source.batches(moment(4)))
    assert asked == [None, "whenAvailable"]


async def test_others_have_their_turn_while_a_large_batch_is_decoded() -> None:
    """A thousand events take a while; requests need not wait for all of them."""
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


def asked(pipeline: Sequence[Mapping[str, Any]], size: int) -> str:
    """The level of detail that an opening asks for, in short."""
    stages = {name for each in pipeline[2:] for name in each}
    return " ".join(
        [
            *(["images"] if "fullDocument" in pipeline[0]["$changeStream"] else []),
            *(["single"] if size == 1 else []),
            *(["bare"] if "$project" in stages else []),
            *(["short keys"] if "$match" in stages else []),
        ]
    )


async def test_an_event_that_is_too_large_is_asked_for_with_ever_less_detail() -> None:
    """Only where nothing is left to leave out the refusal is raised."""
    script = Script(*[[TOO_LARGE]] * 4, [DatabaseError("the script ends", number=10334)])
    await read(script, moment(1))
    assert script.asked == ["images", "", "single", "single bare", "single bare short keys"]


async def test_an_event_without_content_is_bare_and_those_after_it_are_not() -> None:
    """Full detail is asked for again behind the one that was too large, and not before."""
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
    # At its own time it would come again.
    assert script.started_at == [*[Timestamp(4, 1)] * 4, data(5, 1), Timestamp(6, 2)]


async def test_a_place_whose_event_cannot_be_read_at_all_is_passed_and_said() -> None:
    """The batch that comes behind it says that something is missing; the next one does not."""
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


async def test_a_server_that_closes_twice_at_one_place_means_that_an_event_is_too_large() -> None:
    """Some bytes below the limit it closes the connection instead of saying so."""
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
    # An empty reply has shown that nothing stood there.
    assert script.asked == ["images", "images", "", *["images"] * 4]


async def test_a_server_that_is_away_is_not_taken_for_one_that_closes_at_a_large_event() -> None:
    """However often the connection is lost: it does not answer anything else, either."""
    script = Script(*[[CLOSED]] * 9, [reply(change(5, 1), token=data(5, 1))])
    script.away = True
    assert keys(await read(script, moment(4))) == [1]
    assert script.asked == ["images"] * 11


async def test_what_is_not_read_any_more_is_in_no_trouble() -> None:
    """A recorder that another process has replaced while MongoDB was away is ready all the same."""
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
