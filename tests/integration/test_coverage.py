"""Coverage of history: time points before recording began, beyond the recorder's progress, and in
lost time windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Entity
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.resolvers.history.versions import VersionHistory
from revstream.streams.archive.coverage import Coverage, CoverageStore, TimeMark
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording import recorder
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.versioning.version import Version
from tests.support.editing import Failed, Shop, open_shop
from tests.support.eventually import eventually
from tests.support.streams import LosesHistory, Recording

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

MODEL = read_model("""
type Item @collection(name: "items", version: null) {
  id: ID!
  name: String
  makerId: ID
  maker: Maker @reference(by: "makerId")
}
type Maker @collection(name: "makers", version: null) { id: ID! name: String }
type Note @collection(name: "notes", version: null) { id: ID! text: String }
""")
THING: Entity = read_model('type Thing @collection(name: "things") { id: Int! n: JSON }').entities[
    0
]

AS_OF = "query($at: TimePoint!) { found: itemsAsOf(asOf: $at) { totalCount nodes { documentId } } }"
ONE = "query($at: TimePoint!, $id: ID!) { found: itemVersion(id: $id, asOf: $at) { operation } }"
STATE = 'query($at: TimePoint!) { item(id: "old") { found: state(asOf: $at) { operation } } }'
NESTED = """
query($at: TimePoint!, $id: ID!) {
  found: itemVersion(id: $id, asOf: $at) { document { maker { name } } }
}
"""
LONG_AGO = "2000-01-01T00:00:00.000Z"


async def refused(shop: Shop, text: str, **variables: Any) -> dict[str, Any]:
    """Return the extensions of the error of a query."""
    with pytest.raises(Failed) as failed:
        await shop.ask(text, **variables)
    extensions: dict[str, Any] = failed.value.args[0].extensions
    return extensions


@pytest.fixture
async def shop(mongo_uri: str, client: Client) -> AsyncIterator[Shop]:
    """Run a gateway over items and makers that are older than the archive; all of them are
    recorded.
    """
    name = f"coverage_{uuid4().hex[:8]}"
    database = client[name]
    database.makers.insert_many([{"_id": "m", "name": "Ada"}])
    database.items.insert_many([{"_id": "old", "name": "lamp", "makerId": "m"}])
    async with open_shop(client, mongo_uri, name, model=MODEL, empty=False) as opened:
        await read(opened)
        yield opened
    client.drop_database(name)


async def read(shop: Shop) -> None:
    """Wait for the end of the initial snapshots."""
    now = resume_tokens.token_from_time(await shop.gateway.mongo.operation_time())
    for entity in shop.gateway.model.entities:
        await shop.gateway.progress.wait_complete(entity.collection, now)


@pytest.mark.parametrize("text", [AS_OF, ONE, STATE], ids=["collection", "document", "state"])
async def test_a_time_point_before_recording_is_refused_with_the_first_known_one(
    shop: Shop, text: str
) -> None:
    """The error has its time and its token, and both can be read."""
    more = {"id": "old"} if text is ONE else {}
    lost = await refused(shop, text, at={"time": LONG_AGO}, **more)
    assert lost["code"] == "HISTORY_LOST"
    for known in ({"time": lost["oldestTime"]}, {"token": lost["oldestResumeToken"]}):
        found = await shop.ask(text, at=known, **more)
        shown = str(found)
        assert "BASELINE" in shown or "'documentId': 'old'" in shown
    before = datetime.fromisoformat(lost["oldestTime"]) - timedelta(seconds=1)
    at = {"time": before.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
    assert (await refused(shop, text, at=at, **more))["code"] == "HISTORY_LOST"


@pytest.mark.parametrize("text", [AS_OF, ONE, STATE], ids=["collection", "document", "state"])
async def test_a_refused_time_point_is_not_resolved_to_another_one(shop: Shop, text: str) -> None:
    """A time is resolved to the last record before it, or to the beginning of all time."""
    more = {"id": "old"} if text is ONE else {}
    with pytest.raises(Failed) as failed:
        await shop.ask(text, at={"time": LONG_AGO}, **more)
    message = failed.value.args[0].message
    assert "the requested time was not recorded" in message
    assert "1970" not in message


async def test_writes_during_recording_are_known_exactly(shop: Shop) -> None:
    """A newer document, and a collection whose insertions are all recorded, have full coverage."""
    moment = (await shop.ask("{ resumeToken }"))["resumeToken"]
    shop.database.items.insert_one({"_id": "new", "name": "cup"})
    shop.database.notes.insert_one({"_id": "n", "text": "hello"})
    await shop.recorded()
    assert await shop.ask(ONE, at={"token": moment}, id="new") == {"found": None}
    assert await shop.ask(ONE, at={"time": LONG_AGO}, id="new") == {"found": None}
    text = "query($at: TimePoint!) { found: notesAsOf(asOf: $at) { totalCount } }"
    for at in ({"token": moment}, {"time": LONG_AGO}):
        assert await shop.ask(text, at=at) == {"found": {"totalCount": 0}}


async def test_a_reference_outside_the_coverage_is_refused(shop: Shop, mongo_uri: str) -> None:
    """The document is not returned as missing."""
    shop.database.items.insert_one({"_id": "new", "makerId": "m"})
    await shop.recorded()
    moment = (await shop.ask("{ resumeToken }"))["resumeToken"]
    assert await shop.ask(NESTED, at={"token": moment}, id="new") == {
        "found": {"document": {"maker": {"name": "Ada"}}}
    }
    shop.database["makers.versions"].update_one({}, {"$set": {"at": Timestamp(2**32 - 2, 1)}})
    lost = await refused(shop, NESTED, at={"token": moment}, id="new")
    assert lost["code"] == "HISTORY_LOST"


@pytest.mark.parametrize(
    "text",
    [
        '{ item(id: "old") { history(first: 1) { totalCount nodes { version } } } }',
        '{ item(id: "old") { state(version: 1) { operation } } }',
        '{ item(id: "old") { blame { path } } }',
        '{ item(id: "old") { version } }',
        '{ itemVersion(id: "old", version: 1) { operation } }',
        "{ itemVersions(first: 1) { totalCount nodes { version } } }",
        '{ item(id: "old") { diff(from: 1) { path } } }',
    ],
    ids=["history", "state", "blame", "version", "itemVersion", "trail", "diff"],
)
async def test_unrecorded_history_is_refused_after_a_wait(
    mongo_uri: str, client: Client, text: str
) -> None:
    """The result is never empty, 0 or null, even if no recorder has ever run."""
    name = f"coverage_{uuid4().hex[:8]}"
    client[name]["items"].insert_one({"_id": "old", "name": "lamp"})
    settings = Settings(record=False)
    opened = open_shop(
        client, mongo_uri, name, settings, model=MODEL, begun=True, archive_wait_s=0.1
    )
    async with opened as shop:
        assert (await refused(shop, text))["code"] == "ARCHIVE_BEHIND"
        assert set(await shop.gateway.warnings()) == {
            f"recorder:{n}" for n in ("items", "makers", "notes")
        }
    client.drop_database(name)


async def test_version_zero_does_not_exist(shop: Shop) -> None:
    """The response comes at once, with and without a recorder."""
    assert await shop.ask('{ found: itemVersion(id: "old", version: 0) { operation } }') == {
        "found": None
    }


async def test_a_new_document_has_its_version_number(shop: Shop) -> None:
    """The number is right even before this process's change stream has reached the insertion."""
    for n in range(20):
        shop.database.items.insert_one({"_id": f"fast{n}"})
        text = f'{{ item(id: "fast{n}") {{ version history {{ totalCount }} }} }}'
        found = (await shop.ask(text))["item"]
        assert found == {"version": 1, "history": {"totalCount": 1}}


class LostWindow:
    """Two recorded documents; then a time window is lost in which one of them changes, and both are
    snapshotted again.
    """

    def __init__(self, mongo: Mongo, client: Client) -> None:
        self._mongo = mongo
        self._things = client[mongo.name].things
        self.before = self.within = self.after = Timestamp(1, 1)

    async def run(self) -> Recording:
        first = Recording(self._mongo)
        await first.begin()
        self._things.insert_many([{"_id": 1, "n": 0}, {"_id": 2, "n": 0}])
        await first.record()
        self.before = (await first.versions())[-1]["at"]
        self._things.update_one({"_id": 2}, {"$set": {"n": 1}})
        self._things.insert_one({"_id": 3, "n": 0})
        self.within = await self._mongo.operation_time()
        options = RecorderOptions(chunk_documents=1)
        again = Recording(self._mongo, source=LosesHistory(self._mongo), options=options)
        await again.record(fencing_token=2)
        self.after = (await again.versions())[-1]["at"]
        return again


def history_of(recording: Recording) -> VersionHistory:
    own_writes = OwnWrites(recording.progress, VersionNumberCache(recording.hub))
    return VersionHistory(recording.mongo, {"things": recording.archive}, own_writes)


@one_driver
async def test_time_points_in_a_lost_window_are_refused(mongo: Mongo, client: Client) -> None:
    """Changed and unchanged documents are refused; the error has the window's end.

    Time points before and after the window can be read.
    """
    lost = LostWindow(mongo, client)
    recording = await lost.run()
    coverage = await CoverageStore(mongo).load("things")
    (gap,) = coverage.gaps
    assert lost.before < gap.start.at <= lost.within
    assert gap.end is not None
    assert gap.end.at >= lost.after
    assert gap.why == "the oplog did not reach back to it"
    history = history_of(recording)
    await recording.progress.position("things")
    states = await history.as_of(THING, [(key, lost.within) for key in (1, 2, 3)], None)
    for state in states:
        assert isinstance(state, HistoryLost)
        assert state.facts["oldestResumeToken"] == resume_tokens.token_from_time(gap.end.at)
    for at in (lost.before, gap.end.at):
        found = await history.as_of(THING, [(1, at), (2, at), (3, at)], None)
        there = at != lost.before
        assert [isinstance(each, Version) for each in found] == [True, True, there]
        assert coverage.error_at("things", at) is None
    assert isinstance(coverage.error_at("things", lost.within), HistoryLost)


@one_driver
async def test_a_version_that_spans_a_lost_window_has_a_gap(mongo: Mongo, client: Client) -> None:
    """It has one even if nothing differs afterwards; the version replaced in the window has
    none.
    """
    recording = await LostWindow(mongo, client).run()
    found = await history_of(recording).by_number(THING, [(1, 1), (2, 1), (2, 2)], None)
    shown = [(each.number, each.gap) for each in found if isinstance(each, Version)]
    assert shown == [(1, True), (1, False), (2, True)]


@one_driver
async def test_reads_wait_for_the_end_of_an_open_window(mongo: Mongo) -> None:
    """During the new snapshot the coverage is not known yet."""
    coverages = CoverageStore(mongo)
    start = TimeMark(Timestamp(100, 1), datetime(2024, 1, 1, tzinfo=UTC))
    for _ in range(2):
        await coverages.open_gap("things", "recorder:things", start, "testing")
    coverage = await coverages.load("things")
    assert len(coverage.gaps) == 1
    assert isinstance(coverage.error_at("things", Timestamp(100, 1)), ArchiveBehind)
    assert coverage.error_at("things", Timestamp(99, 9)) is None
    end = TimeMark(Timestamp(200, 1), datetime(2024, 1, 2, tzinfo=UTC))
    await coverages.close_gap("things", "recorder:things", end)
    closed = await coverages.load("things")
    assert closed.open_gap is None
    assert isinstance(closed.error_at("things", Timestamp(199, 9)), HistoryLost)
    assert closed.error_at("things", Timestamp(200, 1)) is None


@one_driver
async def test_very_many_windows_are_joined_from_the_oldest_on(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time between two joined windows counts as lost, and lost time never as known."""
    monkeypatch.setattr("revstream.streams.archive.coverage._MOST_GAPS", 3)
    coverages = CoverageStore(mongo)
    day = datetime(2024, 1, 1, tzinfo=UTC)
    for n in range(6):
        await coverages.open_gap("things", "p", TimeMark(Timestamp(100 * n, 1), day), "testing")
        await coverages.close_gap("things", "p", TimeMark(Timestamp(100 * n + 50, 1), day))
    gaps = (await coverages.load("things")).gaps
    assert len(gaps) == 3
    covered = Coverage(gaps=gaps)
    assert all(covered.gap_error("things", Timestamp(100 * n + 20, 1)) for n in range(6))
    assert covered.gap_error("things", Timestamp(575, 1)) is None


async def test_lost_windows_are_shown_on_listeners_and_as_of_pages(shop: Shop) -> None:
    """Each has its reason."""
    moment = (await shop.ask("{ resumeToken }"))["resumeToken"]
    coverages = CoverageStore(shop.gateway.mongo)
    day = datetime(2024, 1, 1, tzinfo=UTC)
    await coverages.open_gap("items", "p", TimeMark(Timestamp(100, 1), day), "testing")
    await coverages.close_gap("items", "p", TimeMark(Timestamp(200, 1), day + timedelta(days=1)))
    gap = {"from": "2024-01-01T00:00:00.000Z", "to": "2024-01-02T00:00:00.000Z", "why": "testing"}
    streams = (await shop.ask("{ streams { collection gaps { from to why } } }"))["streams"]
    assert {each["collection"]: each["gaps"] for each in streams} == {
        "items": [gap],
        "makers": [],
        "notes": [],
    }
    text = "query($at: TimePoint!) { itemsAsOf(asOf: $at) { gaps { from to why } } }"
    found = await shop.ask(text, at={"token": moment})
    assert found["itemsAsOf"]["gaps"] == [gap]


async def test_reads_wait_for_the_initial_snapshot(
    mongo_uri: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known documents are returned at once; others are refused after the limit until they are
    read.
    """
    go_on = asyncio.Event()
    reading = recorder.read_chunk

    async def held_up(*args: Any, **options: Any) -> Any:
        await go_on.wait()
        return await reading(*args, **options)

    monkeypatch.setattr(recorder, "read_chunk", held_up)
    name = f"coverage_{uuid4().hex[:8]}"
    client[name]["items"].insert_one({"_id": "old", "name": "lamp"})
    opened = open_shop(client, mongo_uri, name, model=MODEL, empty=False, archive_wait_s=0.5)
    async with opened as shop:
        shop.database["items"].insert_one({"_id": "new", "name": "cup"})
        await shop.recorded()
        text = "query($id: ID!) { item(id: $id) { version history { totalCount } } }"
        found = await shop.ask(text, id="new")
        assert found == {"item": {"version": 1, "history": {"totalCount": 1}}}
        assert (await refused(shop, text, id="old"))["code"] == "ARCHIVE_BEHIND"
        trail = "{ itemVersions { totalCount } }"
        assert (await refused(shop, trail))["code"] == "ARCHIVE_BEHIND"
        assert (await refused(shop, AS_OF, at={"time": LONG_AGO}))["code"] == "ARCHIVE_BEHIND"
        go_on.set()
        await read(shop)
        found = await shop.ask(text, id="old")
        assert found == {"item": {"version": 1, "history": {"totalCount": 1}}}
        assert await shop.ask(trail) == {"itemVersions": {"totalCount": 2}}
    client.drop_database(name)


@pytest.mark.parametrize(
    "text",
    [
        'mutation { made: updateItem(id: "old", patch: {name: "x"}, expectedVersion: 1) { %s } }',
        'mutation { made: restoreItem(id: "old", version: 1) { %s } }',
        'mutation { made: commentOnItem(id: "old", version: 1, text: "well") { __typename } }',
    ],
    ids=["update", "restore", "comment"],
)
async def test_a_write_with_an_expected_version_waits_for_the_initial_snapshot(
    mongo_uri: str, client: Client, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """An existing document is not reported as missing, or as one without that version."""
    read_before = recorder.read_chunk
    go_on = asyncio.Event()

    async def held_up(*args: Any, **options: Any) -> Any:
        await go_on.wait()
        return await read_before(*args, **options)

    monkeypatch.setattr(recorder, "read_chunk", held_up)
    name = f"coverage_{uuid4().hex[:8]}"
    client[name]["items"].insert_one({"_id": "old", "name": "lamp"})
    async with open_shop(client, mongo_uri, name, model=MODEL, empty=False) as shop:
        asked = asyncio.ensure_future(shop.ask(text.replace("%s", "__typename")))
        await eventually(lambda: shop.gateway.recorders[0].statistics()["batches"])
        assert not asked.done()
        go_on.set()
        made = (await asked)["made"]
        assert made in ({"__typename": "ItemWritten"}, {"__typename": "Comment"})
    client.drop_database(name)
