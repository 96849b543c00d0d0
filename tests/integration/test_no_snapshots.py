"""A server without snapshot history (`minSnapshotHistoryWindowInSeconds: 0`): a failed read at an
earlier cluster time does not end a recorder.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from bson import ObjectId, Timestamp
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.row_filter import ALL_ROWS
from revstream.resolvers.current.documents import Current
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.pagination.page import page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.resolvers.subscriptions.snapshot import Snapshot
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk
from revstream.streams.recording.options import RecorderOptions
from tests.fuzzing.raw_documents import text
from tests.integration.test_diagnosis import examined, healthy
from tests.integration.test_odd_ids import insert
from tests.support.archives import nothing_written
from tests.support.layouts import CLASSIC, layout_model, program
from tests.support.streams import LosesHistory, Recording, outline

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
WINDOW = "minSnapshotHistoryWindowInSeconds"
FEW = RecorderOptions(chunk_documents=3)


@pytest.fixture(autouse=True)
def no_window(client: Client) -> Iterator[None]:
    """Turn off the test server's snapshot history for a while."""
    before = client.admin.command({"setParameter": 1, WINDOW: 0})["was"]
    yield
    client.admin.command({"setParameter": 1, WINDOW: before})


@pytest.mark.parametrize("images", [True, False], ids=["images", "no images"])
async def test_the_initial_snapshot_is_exact_without_snapshot_history(
    mongo: Mongo, client: Client, images: bool
) -> None:
    """Under concurrent writes each document has one chain without a gap.

    Its last state is the current document.
    """
    options = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
    await mongo.command({"create": "things", **options})
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "n": 0, "a": {"b": 0}} for n in range(30)])
    recording = Recording(mongo, options=FEW)
    await recording.begin()
    stopping = threading.Event()

    def write() -> None:
        turn = 0
        while not stopping.is_set():
            turn += 1
            things.update_one({"_id": turn * 7 % 30}, {"$inc": {"n": 1, "a.b": 1}})

    writing = threading.Thread(target=write)
    writing.start()
    try:
        async with recording.running() as task:
            await recording.caught_up(task)
    finally:
        stopping.set()
        writing.join()
    records = await Recording(mongo, options=FEW).record(fencing_token=2)
    last = {each["doc"]: each["full"] for each in records}
    assert last == {each["_id"]: each for each in things.find()}
    for key in range(30):
        states = [each["full"]["n"] for each in records if each["doc"] == key]
        assert states == list(range(states[0], states[-1] + 1))
    assert not any(gap for _, _, gap in outline(records))


async def test_documents_after_ids_that_no_driver_preserves_have_versions(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk may contain no other ids; documents deleted meanwhile are found."""

    async def never(command: Any, at: Timestamp, **options: Any) -> Any:
        raise DatabaseError("Read timestamp is older than the oldest available", number=239)

    things = client[mongo.name].things
    ids = ["a", "mm", "o", "\U0001f600"]
    things.insert_many([{"_id": each} for each in [*ids, "n"]])
    await Recording(mongo).begin()
    await Recording(mongo).record()
    things.delete_one({"_id": "n"})
    for n in range(8):
        insert(client, mongo.name, "things", b"\x02_id\0" + text(b"m\xff" + bytes([65 + n])))
    things.insert_many([{"_id": "b"}, {"_id": "zz"}])
    monkeypatch.setattr(mongo, "read_at", never)
    records = await Recording(mongo, source=LosesHistory(mongo), options=FEW).record(2)
    assert {each["doc"] for each in records if each["op"] != "DELETE"} == {*ids, "b", "n", "zz"}
    assert outline(records, "n")[-1] == ("DELETE", 2, True)
    assert [outline(records, each)[-1][0] for each in ids] == ["BASELINE"] * 4


async def test_an_expired_cluster_time_is_chosen_again(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server chooses it, and writes follow before the read: the recorder continues."""
    client[mongo.name].things.insert_one({"_id": 1})
    chosen = 0
    read_now = mongo.read_now

    async def late(command: Any) -> Any:
        nonlocal chosen
        chosen += 1
        if chosen == 1:
            raise DatabaseError("Read timestamp is older than the oldest available", number=239)
        return await read_now(command)

    async def never(command: Any, at: Timestamp, **options: Any) -> Any:
        raise DatabaseError("Read timestamp is older than the oldest available", number=239)

    monkeypatch.setattr(mongo, "read_now", late)
    monkeypatch.setattr(mongo, "read_at", never)
    chunk = await read_chunk(mongo, "things", Baseline(), size=10)
    assert ([each["_id"] for each in chunk.documents], chosen) == ([1], 2)


async def test_unseen_deletions_are_found_without_snapshot_history(
    mongo: Mongo, client: Client
) -> None:
    """They are found after lost history, too."""
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "n": 0} for n in range(10)])
    await Recording(mongo).begin()
    await Recording(mongo).record()
    things.delete_many({"_id": {"$in": [1, 9]}})
    things.update_one({"_id": 2}, {"$set": {"n": 2}})
    records = await Recording(mongo, source=LosesHistory(mongo), options=FEW).record(2)
    found = {key: outline(records, key)[-1] for key in (0, 1, 2, 9)}
    assert found == {
        0: ("BASELINE", 1, False), 1: ("DELETE", 2, True), 2: ("REPLACE", 2, True),
        9: ("DELETE", 2, True),
    }  # fmt: skip


@pytest.mark.parametrize("history", CLASSIC)
async def test_layouts_are_read_without_snapshot_history(
    mongo: Mongo, client: Client, history: str
) -> None:
    """All versions of the layout are recorded."""
    layout = create_layout(mongo, layout_model(history).entity("Product"))
    await layout.prepare()
    writes = program(history, client[mongo.name])
    for key in range(5):
        for name in ("one", "two"):
            writes.write(key, {"name": name})
    archive = Archive(mongo, "products", layout)
    recording = Recording(mongo, "products", version_field="v", archive=archive, options=FEW)
    await recording.begin()
    assert len(await recording.record()) == 10


MODEL = read_model('type Thing @collection(name: "things") { id: ID! group: String n: Int }')
(THING,) = MODEL.entities
BELOW_30 = {"n": {"lt": 30}}


@pytest.mark.parametrize(
    ("where", "key", "expected"),
    [
        (None, None, range(12)),
        ({"or": [BELOW_30, {"id": {"eq": "11"}}]}, None, [*range(3), 11]),
        ({"version": {"gt": 1}}, None, range(5, 12)),
        (BELOW_30, "1", [1]),
    ],
    ids=["all", "by a field", "by number", "one"],
)
async def test_a_snapshot_has_one_cluster_time_without_snapshot_history(
    mongo: Mongo, client: Client, where: Any, key: str | None, expected: Sequence[int]
) -> None:
    """Documents and numbers are those of that time, whatever is written between two pages."""
    things = client[mongo.name].things
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things.insert_many([{"_id": f"{n:02}", "group": "a", "n": n * 10, "version": 1}
                        for n in range(12)])  # fmt: skip
    things.update_many({"n": {"$gte": 50}}, {"$inc": {"version": 1}})
    condition = None if where is None else parse_where(MODEL, THING, where)
    ids = () if key is None else (f"{int(key):02}",)
    request = ChangeRequest(ids=ids, where=condition, needs_version=True)
    async with recording.running() as task:
        at = await mongo.operation_time()
        forget(client, mongo.name)
        snapshot = Snapshot(
            mongo, recording.archive, recording.progress, THING, request, ALL_ROWS, at, size=2
        )
        found: list[Change] = []
        async with aclosing(snapshot.pages()) as pages:
            async for page in pages:
                assert len(page) <= 2
                found += page
                forget(client, mongo.name)
        await recording.caught_up(task)
    assert [each.document_id for each in found] == [f"{n:02}" for n in expected]
    assert [each.document["n"] for each in found if each.document] == [n * 10 for n in expected]
    assert [each.version for each in found] == [1 if n < 5 else 2 for n in expected]


def forget(client: Client, database: str) -> None:
    """Write until the server can no longer read at the earlier cluster time."""
    things = client[database].things
    for n in range(50):
        things.update_many({}, {"$set": {"n": -n}, "$inc": {"version": 1}})
    things.insert_one({"_id": f"later {ObjectId()}", "n": 1})
    things.delete_one({"_id": "03"})


@pytest.mark.parametrize("history", CLASSIC)
async def test_snapshots_of_layouts_have_one_cluster_time(
    mongo: Mongo, client: Client, history: str
) -> None:
    """The collection may contain all versions."""
    entity = layout_model(history).entity("Product")
    layout = create_layout(mongo, entity)
    await layout.prepare()
    writes = program(history, client[mongo.name])
    archive = Archive(mongo, "products", layout)
    recording = Recording(mongo, "products", version_field="v", archive=archive)
    await recording.begin(baseline_done=True)
    for key in "abcde":
        writes.write(key, {"name": f"{key} then"})
    writes.write("c", None)
    request = ChangeRequest(needs_version=True)
    found: list[Change] = []
    async with recording.running():
        at = await mongo.operation_time()
        snapshot = Snapshot(
            mongo, archive, recording.progress, entity, request, ALL_ROWS, at, size=2
        )
        async with aclosing(snapshot.pages()) as pages:
            async for page in pages:
                found += page
                for _ in range(10):
                    for key in "abcdef":
                        writes.write(key, {"name": f"{key} later"})
    assert [(each.document_id, each.version, (each.document or {})["name"]) for each in found] == [
        (key, 1, f"{key} then") for key in "abde"
    ]


async def test_a_page_with_a_token_is_read_at_a_later_cluster_time(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server can no longer read at the first one."""
    client[mongo.name].things.insert_one({"_id": "1", "n": 1})
    current = Current(mongo, {"things": Archive(mongo, "things")}, nothing_written())
    now = mongo.operation_time
    moments: list[Timestamp] = []

    async def moment() -> Timestamp:
        moments.append(await now())
        if len(moments) == 1:
            forget(client, mongo.name)
        return moments[-1]

    monkeypatch.setattr(mongo, "operation_time", moment)
    page = await current.page(
        THING,
        PageQuery(where=None, order=None, page=page_request(), fields=frozenset({"n"}), token=True),
    )
    assert page.token == resume_tokens.token_from_time(moments[1])
    assert page.items[0] == {"_id": "1", "n": -49}


async def test_a_read_at_an_expired_cluster_time_has_its_own_error(
    mongo: Mongo, client: Client
) -> None:
    """It is the server's error for a read at an earlier time, which a chunk does not need."""
    things = client[mongo.name].things
    things.insert_one({"_id": 1})
    earlier = await mongo.operation_time()
    for n in range(50):
        things.update_one({"_id": 1}, {"$set": {"n": n}})
    with pytest.raises(DatabaseError) as refused:
        await mongo.find("things", {}, FindOptions(at=earlier))
    assert refused.value.number == 239
    chunk = await read_chunk(mongo, "things", Baseline(), size=10)
    assert chunk.at > earlier
    assert chunk.keys == [1]


async def test_doctor_reports_a_missing_snapshot_history(mongo: Mongo) -> None:
    """The finding has the command that turns it on."""
    [finding] = (await examined(mongo, await healthy(mongo)))["server"]
    assert "minSnapshotHistoryWindowInSeconds: 0" in finding.text
    assert finding.mend is not None
    assert "minSnapshotHistoryWindowInSeconds: 300" in finding.mend
