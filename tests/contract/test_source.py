"""The source on a real server: equal tokens in all streams, and no event lost or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.changefeed.source import Source
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.wire.pool import WirePool
from tests.support.eventually import eventually
from tests.support.streams import BRISK, stop_task

Client = MongoClient[dict[str, Any]]


def source_of(mongo: Mongo, *collections: str, **options: Any) -> Source:
    settings = {"before_images": False, "options": BRISK, **options}
    return Source(mongo, collections or ("things",), **settings)


async def now(mongo: Mongo) -> str:
    return resume_tokens.token_from_time(await mongo.operation_time())


async def read(
    source: Source,
    after: str,
    until: str,
    *,
    on_batch: Callable[[EventBatch], Any] = lambda batch: None,
) -> list[ChangeEvent]:
    """Return every event after one position, until the position has reached another."""
    found: list[ChangeEvent] = []
    position = after
    async with aclosing(source.batches(after)) as batches:
        async for batch in batches:
            assert batch.position >= position
            position = batch.position
            assert all(event.token <= position for event in batch.events)
            found += batch.events
            if position >= until:
                break
            on_batch(batch)
    assert [each.token for each in found] == sorted({each.token for each in found})
    assert all(each.token > after for each in found)
    return found


def event_summaries(events: list[ChangeEvent]) -> list[tuple[str, str, Any]]:
    return [(each.operation, each.collection, each.key) for each in events]


async def test_two_streams_give_the_same_event_the_same_token(mongo: Mongo, client: Client) -> None:
    """Hand-over and append depend on it.

    The streams have other collections, with and without images, and other starts.
    """
    database = client[mongo.name]
    for name in ("things", "people"):
        database.create_collection(name, changeStreamPreAndPostImages={"enabled": True})
    begin = await now(mongo)
    database.things.insert_one({"_id": 1, "n": 1})
    database.people.insert_one({"_id": 1})
    middle = await now(mongo)
    database.things.update_one({"_id": 1}, {"$inc": {"n": 1}})
    with client.start_session() as session, session.start_transaction():
        database.things.insert_one({"_id": 2}, session=session)
        database.things.replace_one({"_id": 2}, {"n": 5}, session=session)
        database.people.delete_one({"_id": 1}, session=session)
    end = await now(mongo)

    expected = await read(source_of(mongo), begin, end)
    assert event_summaries(expected) == [
        ("insert", "things", 1),
        ("update", "things", 1),
        ("insert", "things", 2),
        ("replace", "things", 2),
    ]
    for other in (
        source_of(mongo, before_images=True),
        source_of(mongo, "people", "things"),
        source_of(mongo, "people", "things", before_images=True, sharded=True),
    ):
        for after in (begin, middle):
            # The position of a sharded cluster passes a time only with the next event.
            found = await read(other, after, expected[-1].token)
            things = [each.token for each in found if each.collection == "things"]
            assert things == [each.token for each in expected if each.token > after]


async def test_expanded_events_change_nothing_else(mongo: Mongo, client: Client) -> None:
    """Expanded events, requested of newer servers, change neither the events nor their tokens."""
    database = client[mongo.name]
    begin = await now(mongo)
    database.create_collection("things")
    database.things.insert_one({"_id": 1, "a": {"5": 1, "b.c": 1}})
    database.things.update_one({"_id": 1}, {"$set": {"a.5": 2}})
    database.things.create_index("x")
    database.command({"collMod": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    database.things.drop_index("x_1")
    database.things.rename("people")
    database.people.rename("things")
    client.drop_database(mongo.name)
    database.things.insert_one({"_id": 2})
    end = await now(mongo)
    expected, found = [
        [(each.token, each.operation, each.key, each.renamed_to) for each in events]
        for events in [
            await read(source_of(mongo, expanded=expanded), begin, end)
            for expanded in (False, True)
        ]
    ]
    assert len(expected) == 8
    assert found == expected


async def test_the_events_of_a_transaction_have_one_time_and_their_own_tokens(
    mongo: Mongo, client: Client
) -> None:
    """They have the order of the writes; outside a transaction each write has a time of its own."""
    database = client[mongo.name]
    database.create_collection("things")
    begin = await now(mongo)
    with client.start_session() as session, session.start_transaction():
        for n in range(5):
            database.things.insert_one({"_id": n}, session=session)
            database.things.update_one({"_id": 0}, {"$set": {"n": n}}, session=session)
    database.things.insert_one({"_id": 9})
    found = await read(source_of(mongo), begin, await now(mongo))
    *inside, outside = found
    assert [each.key for each in inside] == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0]
    assert {each.at for each in inside} == {inside[0].at}
    assert outside.at > inside[0].at
    assert [each.in_transaction for each in found] == [True] * 10 + [False]


async def test_a_stream_resumes_from_every_event_within_a_transaction(
    mongo: Mongo, client: Client
) -> None:
    """Exactly the later events follow, however small the batches are."""
    database = client[mongo.name]
    database.create_collection("things")
    begin = await now(mongo)
    database.things.insert_one({"_id": "before"})
    with client.start_session() as session, session.start_transaction():
        for n in range(6):
            database.things.insert_one({"_id": n}, session=session)
    database.things.insert_one({"_id": "after"})
    end = await now(mongo)
    small = source_of(mongo, options=replace(BRISK, batch_events=2))
    every = await read(small, begin, end)
    assert len(every) == 8
    for n, event in enumerate(every):
        for source in (small, source_of(mongo)):
            found = await read(source, event.token, end)
            assert [each.token for each in found] == [each.token for each in every[n + 1 :]]


async def test_the_position_reaches_a_time_without_events(mongo: Mongo, client: Client) -> None:
    """Writes to other collections move it, so that the absence of events is known."""
    begin = await now(mongo)
    client[mongo.name].elsewhere.insert_one({"_id": 1})
    until = await now(mongo)
    assert await read(source_of(mongo), begin, until) == []


async def test_a_full_batch_is_followed_by_the_rest(mongo: Mongo, client: Client) -> None:
    """The position of a full batch is its last event's, since more events may have that time."""
    begin = await now(mongo)
    client[mongo.name].things.insert_many([{"_id": n} for n in range(25)])
    sizes: list[int] = []
    source = source_of(mongo, options=replace(BRISK, batch_events=10))
    found = await read(
        source, begin, await now(mongo), on_batch=lambda batch: sizes.append(len(batch.events))
    )
    assert [each.key for each in found] == list(range(25))
    assert max(sizes) == 10


async def test_other_writes_end_a_reply_from_a_given_time_on(mongo: Mongo, client: Client) -> None:
    """Without them the server reads the whole oplog; no event is lost or repeated."""
    database, begin = client[mongo.name], await now(mongo)
    database.elsewhere.insert_many([{"n": n} for n in range(10)])
    marks_from = await mongo.operation_time()
    for n in range(10):
        database.elsewhere.insert_one({"n": n, "text": "x" * 1000})
        if n % 5 == 0:
            database.things.insert_one({"_id": n})
    until = await now(mongo)
    first: dict[bool, str] = {}
    for marked in (False, True):
        source = source_of(
            mongo,
            before_images=True,
            options=replace(BRISK, batch_events=2),
            marks_from=marks_from if marked else None,
        )
        positions: list[str] = []
        found = await read(
            source, begin, until, on_batch=lambda batch, to=positions: to.append(batch.position)
        )
        assert event_summaries(found) == [("insert", "things", 0), ("insert", "things", 5)]
        assert [each.document for each in found] == [{"_id": 0}, {"_id": 5}]
        first[marked] = positions[0]
        if marked:
            for position in positions:
                again = await read(source, position, until)
                assert again == [each for each in found if each.token > position]
    # The last write before that time is the first mark.
    assert resume_tokens.cluster_time(first[True]) < resume_tokens.cluster_time(first[False])


async def test_a_stream_starts_one_tick_after_the_last_operation(
    mongo: Mongo, client: Client
) -> None:
    """A stream can start at a future time, and returns all events from then on."""
    database = client[mongo.name]
    database.things.insert_one({"_id": 1})
    last = await mongo.operation_time()
    source = source_of(mongo)
    async with aclosing(
        source.batches(resume_tokens.time_prefix(Timestamp(last.time, last.inc + 1)))
    ) as batches:
        await anext(batches)
        database.things.insert_one({"_id": 2})
        found = [event.key async for event in events_of(batches, 1)]
    assert found == [2]


async def events_of(batches: AsyncGenerator[EventBatch], count: int) -> AsyncIterator[ChangeEvent]:
    """Yield so many events, over any number of batches."""
    async for batch in batches:
        for event in batch.events:
            yield event
            count -= 1
        if count <= 0:
            return


def kill_cursors(client: Client, name: str) -> None:
    """Kill the server's cursors of the change streams on a database."""
    for each in client.admin.aggregate(
        [
            {"$currentOp": {"idleCursors": True, "allUsers": True}},
            {"$match": {"ns": f"{name}.$cmd.aggregate", "cursor.cursorId": {"$exists": True}}},
        ]
    ):
        client[name].command(
            {"killCursors": "$cmd.aggregate", "cursors": [each["cursor"]["cursorId"]]}
        )


def kill_sessions(client: Client, name: str) -> None:
    """Kill the sessions in which the streams on a database run."""
    found = client.admin.aggregate(
        [
            {"$currentOp": {"idleCursors": True, "allUsers": True}},
            {"$match": {"ns": f"{name}.$cmd.aggregate", "lsid": {"$exists": True}}},
        ]
    )
    sessions = [{"id": each["lsid"]["id"]} for each in found]
    client.admin.command({"killSessions": sessions})


def close_connections(wires: WirePool) -> None:
    """Close the connections of the streams."""
    assert wires.open
    for each in list(wires.open):
        each.close()


@pytest.mark.parametrize(
    ("kill", "wired"),
    [
        (kill_cursors, True),
        (close_connections, True),
        (kill_cursors, False),
        # On wire connections there are none.
        (kill_sessions, False),
    ],
)
async def test_a_stream_whose_cursor_dies_continues_without_loss_or_duplicate(
    mongo: Mongo, client: Client, kill: Callable[..., None], wired: bool
) -> None:
    """It is opened again at its position, in the middle of a transaction too."""
    wires = mongo.wires
    assert wires is not None
    if not wired:
        mongo.wires = None

    async def killed() -> None:
        if kill is close_connections:
            close_connections(wires)
        else:
            await asyncio.to_thread(kill, client, mongo.name)

    database = client[mongo.name]
    database.create_collection("things")
    begin = await now(mongo)
    source = source_of(mongo, options=replace(BRISK, batch_events=3))
    with client.start_session() as session, session.start_transaction():
        for n in range(7):
            database.things.insert_one({"_id": n}, session=session)
    found: list[Any] = []
    async with aclosing(source.batches(begin)) as batches:
        found += [event.key async for event in events_of(batches, 2)]
        await killed()
        while len(found) < 7:
            found += [event.key async for event in events_of(batches, 1)]
        await killed()
        database.things.insert_one({"_id": 7})
        while len(found) < 8:
            found += [event.key async for event in events_of(batches, 1)]
    mongo.wires = wires
    assert found == list(range(8))
    assert source.reconnects >= 1


async def test_streams_leave_connections_to_others(
    client: Client, mongo_uri: str, database_name: str
) -> None:
    """Streams beyond the URI's limit of connections use the driver's commands."""
    client[database_name].create_collection("things")
    async with Mongo.connect(f"{mongo_uri}&maxPoolSize=2", database_name) as mongo:
        assert mongo.wires is not None
        begin = await now(mongo)
        first, second = (source_of(mongo).batches(begin) for _ in range(2))
        async with aclosing(first), aclosing(second):
            for n, batches in enumerate((first, second)):
                client[database_name].things.insert_one({"_id": n})
                found = [event.key async for event in events_of(batches, n + 1)]
                assert found == list(range(n + 1))
            assert len(mongo.wires.open) == 1
        await eventually(lambda: mongo.wires is not None and not mongo.wires.open)


async def test_a_stream_waits_for_the_primary(
    monkeypatch: pytest.MonkeyPatch, mongo_uri: str, database_name: str
) -> None:
    """A stream waits for the primary as long as the options allow.

    Short reads soon use driver cursors.
    """
    monkeypatch.setattr("revstream.streams.mongo.wire.pool._SELECTION_S", 0.0)
    # No wire connection has looked for the primary before.
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        assert mongo.wires is not None
        async with mongo.change_batches([{"$changeStream": {}}], size=1, wait_ms=1) as replies:
            await anext(replies)
            assert len(mongo.wires.open) == 1
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        assert mongo.wires is not None
        assert await mongo.find("things", {}, FindOptions(naive=True)) == []
        assert not mongo.wires.open


@pytest.mark.parametrize("live", [True, False])
async def test_a_dropped_database_does_not_end_the_stream(
    mongo: Mongo, client: Client, live: bool
) -> None:
    """Live or later, the stream has drop, dropDatabase, invalidate, and the next events."""
    begin = await now(mongo)
    database = client[mongo.name]
    source = source_of(mongo)
    database.things.insert_one({"_id": 1})
    expected = ["insert", "drop", "dropDatabase", "invalidate", "insert"]
    if live:
        async with aclosing(source.batches(begin)) as batches:
            found = [event.operation async for event in events_of(batches, 1)]
            await asyncio.to_thread(client.drop_database, mongo.name)
            while len(found) < 4:
                found += [event.operation async for event in events_of(batches, 1)]
            database.things.insert_one({"_id": 2})
            while len(found) < 5:
                found += [event.operation async for event in events_of(batches, 1)]
    else:
        client.drop_database(mongo.name)
        database.things.insert_one({"_id": 2})
        found = [each.operation for each in await read(source, begin, await now(mongo))]
    assert found == expected
    assert source.reconnects == 0


async def test_a_stream_resumes_from_every_position_around_a_dropped_database(
    mongo: Mongo, client: Client
) -> None:
    """The invalidate is included, after which the server resumes differently."""
    begin = await now(mongo)
    database = client[mongo.name]
    for n in range(2):
        database.things.insert_one({"_id": n})
        client.drop_database(mongo.name)
    database.things.insert_one({"_id": 2})
    end = await now(mongo)
    every = await read(source_of(mongo), begin, end)
    assert [each.operation for each in every] == [
        *("insert", "drop", "dropDatabase", "invalidate") * 2,
        "insert",
    ]
    for n, event in enumerate(every):
        found = await read(source_of(mongo), event.token, end)
        assert [each.token for each in found] == [each.token for each in every[n + 1 :]]


async def test_drops_and_renames_reach_their_collections(mongo: Mongo, client: Client) -> None:
    """A rename concerns its old and its new collection.

    Events of other collections are not sent.
    """
    database = client[mongo.name]
    for name in ("things", "elsewhere"):
        database[name].insert_one({"_id": 1})
    begin = await now(mongo)
    database.things.rename("people")
    database.elsewhere.drop()
    database.people.rename("things")
    database.things.drop()
    end = await now(mongo)
    assert [
        (each.operation, each.collection, each.renamed_to)
        for each in await read(source_of(mongo), begin, end)
    ] == [
        ("rename", "things", "people"),
        ("rename", "people", "things"),
        ("drop", "things", None),
    ]
    assert event_summaries(await read(source_of(mongo, "elsewhere"), begin, end)) == [
        ("drop", "elsewhere", None)
    ]


async def test_a_stream_cancelled_while_it_waits_loses_nothing(
    mongo: Mongo, client: Client
) -> None:
    """All events after the last returned position come again, even if a reply was on its way."""
    begin = await now(mongo)
    source = source_of(mongo)
    position, found = begin, []
    for turn in range(12):
        # A spare connection: PyMongo leaks one that is cancelled while it is being opened.
        await mongo.operation_time()
        batches = source.batches(position)
        waiting = asyncio.ensure_future(anext(batches))
        client[mongo.name].things.insert_one({"_id": turn})
        # Some are cancelled before the request, some while it waits, some after its reply.
        await asyncio.wait([waiting], timeout=turn * 0.002)
        if waiting.done():
            batch = waiting.result()
            position = batch.position
            found += [each.key for each in batch.events]
        await stop_task(waiting)
        await batches.aclose()
    found += [each.key for each in await read(source, position, await now(mongo))]
    assert found == list(range(12))


async def test_events_have_images_where_the_server_stores_them(
    mongo: Mongo, client: Client
) -> None:
    """Post-images always, pre-images if requested.

    Without images an update has only its description.
    """
    database = client[mongo.name]
    database.create_collection("things", changeStreamPreAndPostImages={"enabled": True})
    database.create_collection("bare")
    begin = await now(mongo)
    for name in ("things", "bare"):
        database[name].insert_one({"_id": 1, "n": 1})
        database[name].update_one({"_id": 1}, {"$set": {"n": 2}})
        database[name].delete_one({"_id": 1})
    end = await now(mongo)
    one, two = {"_id": 1, "n": 1}, {"_id": 1, "n": 2}

    def images(events: list[ChangeEvent], name: str) -> list[tuple[Any, Any]]:
        return [(e.document_before, e.document) for e in events if e.collection == name]

    found = await read(source_of(mongo, "things", "bare", before_images=True), begin, end)
    assert images(found, "things") == [(None, one), (one, two), (two, None)]
    assert images(found, "bare") == [(None, one), (None, None), (None, None)]
    found = await read(source_of(mongo, "things", "bare"), begin, end)
    assert images(found, "things") == [(None, one), (None, two), (None, None)]
    updates = [each.update for each in found if each.operation == "update"]
    assert [dict(each["updatedFields"]) for each in updates if each is not None] == [{"n": 2}] * 2


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_an_event_that_exceeds_16_mb_with_its_images_has_none(
    mongo: Mongo, client: Client
) -> None:
    """No event is lost or repeated, and later events have their images."""
    things = client[mongo.name].things
    client[mongo.name].create_collection("things", changeStreamPreAndPostImages={"enabled": True})
    begin = await now(mongo)
    things.insert_one({"_id": 1, "text": "x" * 8_500_000, "n": 0})
    things.insert_many([{"_id": n} for n in range(2, 20)])
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    things.insert_one({"_id": 20})
    things.update_one({"_id": 1}, {"$set": {"text": "y" * 8_500_000}})
    things.insert_one({"_id": 21})
    things.update_one({"_id": 3}, {"$set": {"n": 3}})
    found = await read(source_of(mongo, before_images=True), begin, await now(mongo))
    assert event_summaries(found) == [
        ("insert", "things", 1),
        *(("insert", "things", n) for n in range(2, 20)),
        ("update", "things", 1),
        ("insert", "things", 20),
        ("update", "things", 1),
        ("insert", "things", 21),
        ("update", "things", 3),
    ]
    assert 1 in [each.key for each in found if each.after is None]


async def test_writes_to_documents_of_other_partitions_are_skipped(
    mongo: Mongo, client: Client
) -> None:
    """The position moves all the same; collection events concern every partition."""
    start = await now(mongo)
    things = client[mongo.name].things
    things.insert_many([{"_id": n} for n in range(4)])
    things.drop()
    things.insert_one({"_id": 1, "again": True})
    end = await now(mongo)
    positions: list[str] = []
    source = source_of(mongo, holds=lambda key: key % 2 == 0)
    events = await read(source, start, end, on_batch=lambda each: positions.append(each.position))
    assert [(each.operation, each.key) for each in events] == [
        ("insert", 0),
        ("insert", 2),
        ("drop", None),
    ]
    # The position is not inside a drop, which is divided among records.
    assert not any(each.partition("-")[2] for each in positions if each > events[-1].token + "~")
    whole = await read(source_of(mongo), start, end)
    assert await read(source_of(mongo, holds=lambda key: False), whole[4].token, end) == []
