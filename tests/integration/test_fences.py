"""Fenced events in any order, from many writers at once, and repeated.

The newest event of each document stays, with one round trip each, and stale ones leave no trace.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64
from pymongo import MongoClient
from pymongo.database import Database

from revstream.model.compiler.loader import read_model
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.document_input import parse_change
from revstream.resolvers.mutations.expected_version import ExpectedVersions
from revstream.resolvers.mutations.fenced_upsert import BatchOutcome, FencedUpserts
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import AlreadyExists, Author, StaleWrite
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate
from revstream.resolvers.mutations.writes import DocumentWrites
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import Commands
from tests.support.exhaustive import scaled
from tests.support.streams import Recording, by_document

Document = dict[str, Any]
Event = tuple[str, Document]
Order = Callable[[list[Event]], Sequence[Event]]

MODEL = read_model(
    """
    type Reading @collection(name: "readings") {
      id: String!
      sequence: Long! @fence
      value: Float!
      label: String
    }
    """
)
READING = MODEL.entities[0]
NOBODY = Author()
WRITERS, BATCH = 8, 1000
IDS = scaled(all=1000, fast=150)
TURNS = scaled(all=50, fast=10)
BEYOND_DOUBLES = 2**53


class Readings:
    """The fenced store of readings as a gateway uses it, with a recorder."""

    def __init__(self, mongo: Mongo) -> None:
        self.recording = Recording(mongo, READING.collection, fence_field="sequence")
        progress = self.recording.progress
        archives = {READING.collection: self.recording.archive}
        own_writes, repeats = (
            OwnWrites(progress, VersionNumberCache(Hub([READING.collection], position=""))),
            IdempotencyStore(mongo),
        )
        expected_versions = ExpectedVersions(mongo, archives, progress)
        writes = DocumentWrites(
            mongo, MODEL, archives, progress, own_writes, expected_versions, repeats
        )
        self.fences = FencedUpserts(mongo, archives, writes, own_writes, repeats)

    async def apply(self, event: Event) -> bool:
        """Return whether the event was applied; otherwise it was stale."""
        try:
            await self.fences.apply(READING, *event, NOBODY)
        except StaleWrite:
            return False
        return True

    async def apply_each(self, events: Sequence[Event]) -> BatchOutcome:
        return await self.fences.apply_each(READING, events, NOBODY)


@pytest.fixture
async def readings(mongo_uri: str, database_name: str) -> AsyncIterator[Readings]:
    """Open it over the test's database; the drivers make no difference here."""
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        yield Readings(mongo)


@pytest.fixture
def counted_readings(counted: Mongo) -> Readings:
    """Open it with its commands counted."""
    return Readings(counted)


@pytest.fixture
def database(client: MongoClient[Document], database_name: str) -> Database[Document]:
    """Return the database through the bare driver."""
    return client[database_name]


def event(sequence: int, id_: str = "r1", **more: Any) -> Event:
    return id_, {"sequence": Int64(sequence), "value": float(sequence), **more}


def events_of(ids: int, each: int) -> list[Event]:
    """Return events in order: the first of every id, the second of every id, …"""
    return [event(n, f"r{id_}") for n in range(1, each + 1) for id_ in range(ids)]


def in_order(events: list[Event]) -> list[Event]:
    return events


def backwards(events: list[Event]) -> list[Event]:
    return events[::-1]


def shuffled(events: list[Event]) -> list[Event]:
    return random.Random(1).sample(events, len(events))


def with_duplicates(events: Sequence[Event]) -> list[Event]:
    """Repeat a tenth of the events, at once or at another position."""
    dice = random.Random(2)
    sent: list[Event] = []
    for each in events:
        sent.append(each)
        if dice.random() < 0.05:
            sent.append(each)
        if dice.random() < 0.05:
            sent.append(dice.choice(events))
    return sent


def in_batches(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    return (events[start : start + size] for start in range(0, len(events), size))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("order", "each"), [(in_order, 20), (backwards, 20), (shuffled, 100)])
async def test_the_newest_of_thousands_of_events_stay_in_any_order(
    readings: Readings, database: Database[Document], order: Order, each: int
) -> None:
    """There are many ids, batches from 8 concurrent writers, and duplicates."""
    events = with_duplicates(order(events_of(ids=IDS, each=each)))
    batches = in_batches(events, BATCH)

    async def write() -> int:
        applied = 0
        # All eight writers take from one list, which is in the order of the events.
        for batch in batches:
            done = await readings.apply_each(batch)
            assert done.applied + done.stale == len(batch)
            applied += done.applied
        return applied

    await readings.recording.begin(baseline_done=True)
    # No recorder reports that there are no deletions.
    readings.recording.progress._limit_s = 100
    async with readings.recording.running() as task:
        applied = sum(await asyncio.gather(*(write() for _ in range(WRITERS))))
        await readings.recording.at_rest(task)
    check_newest(database, ids=IDS, newest=each)
    check_versions(await readings.recording.versions(), applied)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", [in_order, backwards, shuffled])
async def test_the_newest_of_single_events_stay_in_any_order(
    readings: Readings, database: Database[Document], order: Order
) -> None:
    """There are 2,000 events of 100 ids, from 8 concurrent writers, with duplicates."""
    events = iter(with_duplicates(order(events_of(ids=100, each=20))))

    async def write() -> int:
        return sum([await readings.apply(each) for each in events])

    await readings.recording.begin(baseline_done=True)
    # No recorder reports that there are no deletions.
    readings.recording.progress._limit_s = 100
    async with readings.recording.running() as task:
        applied = sum(await asyncio.gather(*(write() for _ in range(WRITERS))))
        await readings.recording.at_rest(task)
    check_newest(database, ids=100, newest=20)
    check_versions(await readings.recording.versions(), applied)


def check_newest(database: Database[Document], *, ids: int, newest: int) -> None:
    """Check that each document is its newest event."""
    found = list(database["readings"].find())
    assert len(found) == ids
    assert {(each["sequence"], each["value"]) for each in found} == {(newest, float(newest))}


def check_versions(records: Sequence[Document], applied: int) -> None:
    """Check for one version per applied event, each with a higher fence value than before."""
    assert len(records) == applied
    for versions in by_document(records):
        assert [each["v"] for each in versions] == [*range(1, len(versions) + 1)]
        sequences = [each["full"]["sequence"] for each in versions]
        assert all(one < other for one, other in pairwise(sequences))


@pytest.mark.parametrize("order", [in_order, backwards, shuffled])
async def test_an_event_of_an_existing_document_is_one_command(
    counted_readings: Readings, commands: Commands, order: Order
) -> None:
    """Newer and stale events take no read before and no second write.

    For the first event of a document, deletions are looked up.
    """
    events = with_duplicates(order(events_of(ids=10, each=10)))
    with commands.counting() as sent:
        await counted_readings.apply_each([event(0, f"r{n}") for n in range(10)])
    assert sent[:2] == ["update", "find"]
    assert sent[-2:] == ["update", "commitTransaction"]
    assert len(sent) <= 8
    with commands.counting() as sent:
        for each in events:
            await counted_readings.apply(each)
    assert sent == ["findAndModify"] * len(events)


@pytest.mark.parametrize("order", [in_order, backwards, shuffled])
async def test_a_batch_of_events_is_one_command(
    counted_readings: Readings, commands: Commands, order: Order
) -> None:
    """Newer and stale events are one command, even if nothing is applied."""
    batches = list(in_batches(with_duplicates(order(events_of(ids=100, each=20))), 200))
    await counted_readings.apply_each([event(0, f"r{n}") for n in range(100)])
    with commands.counting() as sent:
        done = [await counted_readings.apply_each(each) for each in batches]
    assert sent == ["update"] * len(batches)
    assert order is in_order or any(each.applied == 0 for each in done)


async def test_an_older_event_does_not_recreate_a_deleted_document(
    readings: Readings, database: Database[Document]
) -> None:
    """The gateway or another program deleted it; a newer event recreates it."""
    writes, archive = readings.fences._writes, readings.recording.archive
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running() as task:
        await readings.apply_each([event(10, "gateway"), event(10, "program"), event(10, "both")])
        for key in ("gateway", "both"):
            await writes.delete(READING, key, None, NOBODY)
            assert not await readings.apply(event(10, key))
        assert await readings.apply(event(12, "both"))
        database["readings"].delete_many({})
        await readings.recording.at_rest(task)
    records = await readings.recording.versions()
    assert {each["fence"] for each in records if each["op"] == "DELETE"} == {10, 12}
    assert sorted(await archive.fences_of_deleted(["program", "both", "other"])) == [
        ("both", 12),
        ("program", 10),
    ]
    late = [event(9, "gateway"), event(10, "program"), event(11, "both"), event(1, "new")]
    async with readings.recording.running(fencing_token=2):
        for each in late[:3]:
            with pytest.raises(StaleWrite) as refused:
                await readings.fences.apply(READING, *each, NOBODY)
            assert refused.value.applied == {"gateway": 10, "program": 10, "both": 12}[each[0]]
        done = await readings.apply_each(late)
        assert (done.applied, done.stale) == (1, 3)
        assert [each["_id"] for each in database["readings"].find()] == ["new"]
        done = await readings.apply_each([event(11, "gateway"), event(11, "program")])
        assert (done.applied, done.stale) == (2, 0)


NOT_A_NUMBER = [float("nan"), Decimal128("NaN"), Decimal128("sNaN")]


@pytest.mark.parametrize("stored", NOT_A_NUMBER, ids=["double", "decimal", "signaling"])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_a_deletion_with_an_invalid_fence_value_stops_no_event(
    readings: Readings, database: Database[Document], stored: Any, batch: bool
) -> None:
    """NaN and values that are not numbers compare with nothing."""
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running():
        database["readings"].insert_one({"_id": "r1", "sequence": stored})
        database["readings"].delete_one({"_id": "r1"})
        if batch:
            assert (await readings.apply_each([event(1)])).applied == 1
        else:
            assert await readings.apply(event(1))
    assert [each["sequence"] for each in database["readings"].find()] == [1]


async def test_an_event_waits_for_unrecorded_deletions(
    readings: Readings, database: Database[Document]
) -> None:
    """Another program may have deleted the document; events of existing documents do not wait."""
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running():
        await readings.apply_each([event(10, "gone"), event(10, "there")])
    database["readings"].delete_one({"_id": "gone"})
    single = asyncio.create_task(readings.apply(event(9, "gone")))
    batch = asyncio.create_task(readings.apply_each([event(10, "gone"), event(1, "new")]))
    assert await readings.apply(event(11, "there"))
    assert not single.done()
    async with readings.recording.running(fencing_token=2):
        assert not await single
        done = await batch
    assert (done.applied, done.stale) == (1, 1)
    assert {each["_id"] for each in database["readings"].find()} == {"there", "new"}


async def test_an_event_of_a_missing_document_is_refused_without_a_recorder(
    readings: Readings, database: Database[Document]
) -> None:
    """The refusal comes within the time limit, nothing is written, and the event may be sent
    again.
    """
    await readings.recording.begin(baseline_done=True)
    readings.recording.progress._limit_s = 0.05
    with pytest.raises(ArchiveBehind, match=r"wait of 0\.05 s"):
        await readings.apply(event(1))
    with pytest.raises(ArchiveBehind):
        await readings.apply_each([event(1)])
    assert list(database["readings"].find()) == []


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_an_insert_and_deletion_before_the_own_insert_are_noticed(
    readings: Readings,
    database: Database[Document],
    monkeypatch: pytest.MonkeyPatch,
    batch: bool,
) -> None:
    """Another program inserts and deletes the document after the lookup of deletions."""
    look = readings.fences._first.buried
    looks = 0

    async def overtaken(entity: Any, keys: Sequence[Any]) -> Any:
        nonlocal looks
        found = await look(entity, keys)
        looks += 1
        if looks == 1:
            database["readings"].insert_one({"_id": "r1", "sequence": 20, "value": 1.0})
            database["readings"].delete_one({"_id": "r1"})
        return found

    monkeypatch.setattr(readings.fences._first, "buried", overtaken)
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running():
        if batch:
            done = await readings.apply_each([event(10), event(1, "r2")])
            assert (done.applied, done.stale) == (1, 1)
        else:
            assert not await readings.apply(event(10))
    assert looks == 2
    assert database["readings"].find_one({"_id": "r1"}) is None


async def test_waiting_for_deletions_blocks_no_other_writer(
    readings: Readings, database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of an idempotency key writes nothing before the wait."""
    progress = readings.recording.progress
    wait, waiting = progress.wait_deletions, asyncio.Event()

    async def noticed(*asked: Any) -> None:
        waiting.set()
        await wait(*asked)

    monkeypatch.setattr(progress, "wait_deletions", noticed)
    progress._limit_s = 30
    await readings.recording.begin(baseline_done=True)
    database["readings"].insert_one({"_id": "there", "sequence": 10, "value": 1.0})
    author = Author(repeat="key", fingerprint="events")
    events = [event(11, "there"), event(1, "new")]
    batch = asyncio.create_task(readings.fences.apply_each(READING, events, author))
    await asyncio.wait_for(waiting.wait(), 30)

    def update() -> int:
        with pymongo.timeout(5):
            change = {"$set": {"label": "changed"}}
            return database["readings"].update_one({"_id": "there"}, change).modified_count

    assert await asyncio.to_thread(update) == 1
    assert not batch.done()
    async with readings.recording.running():
        done = await batch
    assert (done.applied, done.stale) == (2, 0)
    assert [each["sequence"] for each in database["readings"].find().sort("_id")] == [1, 11]


@pytest.mark.parametrize("stored", [Int64(10), 10.5, Decimal128("10"), "text", None])
async def test_no_update_lowers_a_fence_value(
    readings: Readings, database: Database[Document], stored: Any
) -> None:
    """A replacement with a lower value or without one is refused; an invalid value is replaced."""
    writes = readings.fences._writes
    await readings.recording.begin(baseline_done=True)
    lower = {"sequence": Int64(1), "value": 2.0}
    for key, alteration in {
        "update": DocumentUpdate.update(parse_change(MODEL, READING, {"sequence": "1"})),
        "replace": DocumentUpdate.replacement(READING, lower),
        "without": DocumentUpdate.replacement(READING, {"value": 2.0}),
    }.items():
        database["readings"].insert_one({"_id": key, "sequence": stored, "value": 1.0})
        await writes.alter(READING, key, alteration, None, NOBODY)
        found = database["readings"].find_one({"_id": key}) or {}
        if isinstance(stored, str) or stored is None:
            assert found.get("sequence") in (1, None)
        else:
            assert found["sequence"] == stored
        higher = DocumentUpdate.update(parse_change(MODEL, READING, {"sequence": "11"}))
        await writes.alter(READING, key, higher, None, NOBODY)
        assert (database["readings"].find_one({"_id": key}) or {})["sequence"] == 11


async def test_an_empty_batch_applies_nothing(readings: Readings) -> None:
    """It returns the server's cluster time, as every batch does."""
    before = await readings.apply_each([event(1)])
    done = await readings.apply_each([])
    assert (done.applied, done.stale) == (0, 0)
    assert done.at >= before.at


async def test_the_time_of_a_stale_batch_is_after_the_newer_event(
    readings: Readings, database: Database[Document]
) -> None:
    """A subscriber that starts there has read or written the newer event."""
    for n in range(1, 101):
        with database.client.start_session(causal_consistency=False) as session:
            database["readings"].update_one(
                {"_id": "r1"}, {"$set": {"sequence": n}}, upsert=True, session=session
            )
            written_at = session.operation_time
        done = await readings.apply_each([event(n)])
        assert done.applied == 0
        assert written_at is not None
        assert done.at >= written_at


async def test_concurrent_first_events_cause_no_errors(
    readings: Readings, database: Database[Document]
) -> None:
    """Each of twenty concurrent single events and batches for many new documents is applied or
    stale.
    """
    for turn in range(TURNS):
        singles = [readings.apply(event(n, f"r{turn}")) for n in range(1, 21)]
        batches = [readings.apply_each([event(n, f"r{turn}")]) for n in range(21, 31)]
        *_, last = await asyncio.gather(*singles, *batches)
        assert isinstance(last, BatchOutcome)
        assert last.applied == 1
    found = list(database["readings"].find())
    assert [each["sequence"] for each in found] == [30] * TURNS


async def test_a_stale_event_returns_the_applied_one_and_changes_nothing(
    readings: Readings, database: Database[Document]
) -> None:
    """An event with an equal fence value is stale, too; the attribution of the last change
    stays.
    """
    await readings.fences.apply(READING, *event(5), Author(by="ann", why="measured"))
    stored = database["readings"].find_one()
    for sequence in (4, 5):
        with pytest.raises(StaleWrite) as refused:
            await readings.fences.apply(READING, *event(sequence, label="x"), Author(by="bob"))
        assert (refused.value.fence, refused.value.applied) == (sequence, 5)
    assert database["readings"].find_one() == stored


async def test_a_batch_applies_the_newest_event_of_each_document(
    readings: Readings, database: Database[Document]
) -> None:
    """Its position does not matter; the others are stale and create no version."""
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running():
        done = await readings.apply_each([event(2), event(7), event(7), event(3), event(1, "r2")])
    assert (done.applied, done.stale) == (2, 3)
    assert [each["sequence"] for each in database["readings"].find().sort("_id")] == [7, 1]
    assert len(await readings.recording.record(fencing_token=2)) == 2


async def test_a_batch_is_applied_without_the_events_that_a_unique_index_refuses(
    readings: Readings, database: Database[Document]
) -> None:
    """The error names them; the batch may be sent again without them."""
    database["readings"].create_index("label", unique=True, sparse=True)
    await readings.apply(event(1, "r0", label="kitchen"))
    taken = event(1, "r1", label="kitchen")
    with pytest.raises(AlreadyExists) as refused:
        await readings.apply(taken)
    assert refused.value.path == "label"
    batch = [event(1, "r2", label="attic"), taken, event(1, "r3", label="cellar")]
    with pytest.raises(BadUserInput, match="label: in use by another Reading"):
        await readings.apply_each(batch)
    stored = {each["_id"]: each["label"] for each in database["readings"].find()}
    assert stored == {"r0": "kitchen", "r2": "attic", "r3": "cellar"}
    done = await readings.apply_each([each for each in batch if each is not taken])
    assert (done.applied, done.stale) == (0, 2)


async def test_first_events_are_applied_without_the_refused_ones(
    counted_readings: Readings, database: Database[Document], commands: Commands
) -> None:
    """Each refusal takes two more transactions."""
    database["readings"].create_index("label", unique=True, sparse=True)
    database["readings"].insert_one({"_id": "r0", "label": "kitchen"})
    batch = [event(1, f"r{n}", label="kitchen" if n % 20 == 1 else str(n)) for n in range(1, 101)]
    with commands.counting() as sent, pytest.raises(BadUserInput, match="label: in use by another"):
        await counted_readings.apply_each(batch)
    stored = {each["_id"] for each in database["readings"].find()}
    assert stored == {f"r{n}" for n in range(101) if n % 20 != 1}
    # The first lookup; five refused events, one of them first; and the events between them.
    assert sent.count("update") == 1 + 5 + 5
    assert sent.count("abortTransaction") == 5


async def test_a_batch_with_many_refused_events_is_aborted(
    counted_readings: Readings, database: Database[Document], commands: Commands
) -> None:
    """One mutation does not take thousands of transactions; its error is true all the same."""
    database["readings"].create_index("label", unique=True, sparse=True)
    database["readings"].insert_one({"_id": "r0", "label": "kitchen"})
    batch = [event(1, f"r{n}", label="kitchen") for n in range(1, 201)]
    with commands.counting() as sent, pytest.raises(BadUserInput, match="may have been applied"):
        await counted_readings.apply_each([event(1, "first"), *batch, event(1, "last")])
    assert 20 <= sent.count("abortTransaction") <= 50
    assert {each["_id"] for each in database["readings"].find()} == {"r0", "first"}


async def test_reads_wait_for_the_applied_events_of_a_refused_batch(
    readings: Readings, database: Database[Document]
) -> None:
    """Otherwise the same process would read a history without them."""
    database["readings"].create_index("label", unique=True, sparse=True)
    await readings.recording.begin(baseline_done=True)
    async with readings.recording.running() as task:
        await readings.apply_each([event(1, "r0", label="kitchen"), event(1, "r1"), event(1, "r2")])
        await readings.recording.at_rest(task)
    with pytest.raises(BadUserInput, match="label: in use by another Reading"):
        await readings.apply_each([event(2, "r1"), event(2, "r2", label="kitchen")])
    assert [each["sequence"] for each in database["readings"].find().sort("_id")] == [1, 2, 1]
    own_writes = readings.fences._own_writes
    readings.recording.progress._limit_s = 0.05
    with pytest.raises(ArchiveBehind):
        await own_writes.recorded("readings", ["r1"])
    readings.recording.progress._limit_s = 30
    async with readings.recording.running(fencing_token=2):
        await own_writes.recorded("readings", ["r1", "r2"])


async def test_fence_values_beyond_double_precision_are_distinguished(
    readings: Readings, database: Database[Document]
) -> None:
    """Values beyond 2^53 are compared exactly, in single events and batches."""
    assert await readings.apply(event(BEYOND_DOUBLES))
    assert await readings.apply(event(BEYOND_DOUBLES + 1))
    with pytest.raises(StaleWrite) as refused:
        await readings.fences.apply(READING, *event(BEYOND_DOUBLES), NOBODY)
    assert refused.value.applied == BEYOND_DOUBLES + 1
    done = await readings.apply_each([event(BEYOND_DOUBLES + 2), event(BEYOND_DOUBLES + 3)])
    assert (done.applied, done.stale) == (1, 1)
    [stored] = database["readings"].find()
    assert stored["sequence"] == BEYOND_DOUBLES + 3


@pytest.mark.parametrize(
    "stored",
    [{}, *({"sequence": each} for each in (None, "9", [9], *NOT_A_NUMBER))],
    ids=["missing", "null", "text", "list", "NaN", "decimal NaN", "signaling NaN"],
)
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_a_stored_fence_value_that_is_not_a_number_stops_no_event(
    readings: Readings, database: Database[Document], stored: Document, batch: bool
) -> None:
    """Other programs may write anything; the first event sets a number."""
    database["readings"].insert_one({"_id": "r1", "note": "kept", **stored})
    if batch:
        assert (await readings.apply_each([event(3)])).applied == 1
    else:
        assert await readings.apply(event(3))
    assert not await readings.apply(event(2))
    [found] = database["readings"].find()
    assert (found["sequence"], found["note"]) == (3, "kept")


@pytest.mark.parametrize("stored", [9, 9.0, Decimal128("9")], ids=["int", "double", "decimal"])
async def test_a_stored_fence_value_of_another_number_type_is_compared(
    readings: Readings, database: Database[Document], stored: Any
) -> None:
    """JavaScript writes doubles."""
    database["readings"].insert_one({"_id": "r1", "sequence": stored})
    with pytest.raises(StaleWrite) as refused:
        await readings.fences.apply(READING, *event(9), NOBODY)
    assert refused.value.applied == 9
    assert await readings.apply(event(10))
