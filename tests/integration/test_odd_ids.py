"""Documents with ids that no driver preserves, and versions without a document: they are reported
to an operator and do not affect others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import WriteError

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import possible_ids
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.layouts.archive import ArchiveLayout
from revstream.streams.layouts.factory import create_layout
from revstream.streams.maintenance.verification import Verification
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.recording.bootstrap.collection_arrival import advance_baseline
from revstream.streams.recording.bootstrap.initial_snapshot import read_chunk
from revstream.streams.recording.set_aside import COLLECTION, SetAsideEvents
from tests.fuzzing.raw_documents import array_of, document_of, int32, text
from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.layouts import layout_model
from tests.support.streams import Recording, outline

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

REPLACEMENT = "\ufffd"
"""The decoded form of text that is not UTF-8; a valid id itself."""
UNHELD = {
    "text": b"\x02_id\0" + text(b"\xfe"),
    "other text": b"\x02_id\0" + text(b"\xff"),
    "a name twice": b"\x03_id\0" + document_of([b"\x10a\0" + int32(n) for n in (1, 2)]),
    "undefined": b"\x03_id\0" + document_of([b"\x06a\0"]),
    "DBPointer": b"\x0c_id\0" + text(b"x") + bytes(12),
    "symbol inside": b"\x03_id\0" + document_of([b"\x0ea\0" + text(b"x")]),
    "empty timestamp": b"\x11_id\0" + bytes(8),
}
HELD = {
    "symbol": b"\x0e_id\0" + text(b"symbol"),
    "null": b"\x0a_id\0",
    "minimum": b"\xff_id\0",
    "decimal": b"\x13_id\0" + bytes([1]) + bytes(14) + b"\x30",
    "replacement": b"\x02_id\0" + text(REPLACEMENT.encode()),
}
ROWS = {
    "regular expression": b"\x0bdocId\0h\0\0",
    "array": b"\x04docId\0" + array_of([(0x02, text(b"other"))]),
    "undefined": b"\x06docId\0",
    "operator": b"\x03docId\0" + document_of([b"\x02$ref\0" + text(b"x")]),
    "text": b"\x02docId\0" + text(b"\xff"),
}
NUMBERED = b"\x10v\0" + int32(1)
LIKE_OPERATORS: list[Any] = [
    {"$ref": "a", "$id": 1},
    {"$ref": "a", "$id": None, "$db": "other", "code": 0},
    {"$ref": "a", "$id": {"b": 1}},
    {"$ref": "a"},
    {"$id": 1},
    {"$ref": 1, "$id": 2},
    {"$id": 1, "$ref": "a"},
    {"$db": "x", "$ref": "a", "$id": 1},
    {"$ref": "a", "$id": 1, "$foo": 2},
    {"$ref": "a", "$db": "x", "$id": 1},
    {"$foo": 1},
]


def insert(client: Client, database: str, collection: str, *elements: bytes) -> None:
    raw = RawBSONDocument(document_of(elements), RAW)
    reply = client[database].command("insert", collection, documents=[raw])
    assert "writeErrors" not in reply, reply


@one_driver
@pytest.mark.parametrize("first", [True, False], ids=["before the first reading", "beside it"])
async def test_documents_with_ids_that_no_driver_preserves_are_set_aside(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """They share no history with one another, nor with the document of the decoded id.

    `verify` reports them.
    """
    recording = Recording(mongo)
    if not first:
        await recording.begin()
    for key in (*UNHELD.values(), *HELD.values()):
        insert(client, mongo.name, "things", key)
    if first:
        await recording.begin()
    records = await recording.record()
    assert len(records) == len(HELD)
    assert [each[0] for each in outline(records, REPLACEMENT)] == [
        "BASELINE" if first else "INSERT"
    ]
    [trouble] = (await SetAsideEvents(mongo).troubles()).values()
    assert trouble.startswith(f"{len(UNHELD)} change events set aside")
    stored = await recording.checkpoints.load(recording.name)
    archive = Archive(mongo, "things")
    monkeypatch.setattr("revstream.streams.maintenance.verification._CHUNK", 1)
    found = await Verification(mongo, archive, stored, version_field="version").run()
    assert [each.kind for each in found.findings] == ["MISSING"] * len(UNHELD)
    assert all("bytes that drivers change" in each.problem for each in found.findings)


@one_driver
async def test_ids_with_dollar_names_are_found(mongo: Mongo, client: Client) -> None:
    """MongoDB accepts ids that have the form of a DBRef.

    Their versions are numbered in sequence, also when several are looked up at once.
    """
    things = client[mongo.name]["things"]
    recording = Recording(mongo)
    await recording.begin()
    stored = []
    for key in LIKE_OPERATORS:
        try:
            things.insert_one({"_id": key})
        except WriteError:
            assert not possible_ids([key]) or not list(things.find({"_id": {"$in": [key]}}))
        else:
            stored.append(key)
    assert len(stored) == 3
    assert list(possible_ids(stored)) == stored
    assert len(await recording.record()) == len(stored)
    for key in stored:
        things.update_one({"_id": {"$eq": key}}, {"$set": {"n": 1}})
    again = Recording(mongo)
    records = await again.record()
    assert [each["v"] for each in records[-len(stored) :]] == [2] * len(stored)


@one_driver
@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_a_scan_continues_after_ids_that_no_driver_preserves(
    mongo: Mongo, client: Client, size: int
) -> None:
    """Each document is read once, for any limits of the chunks."""
    for key in (*UNHELD.values(), *HELD.values()):
        insert(client, mongo.name, "things", key)
    at = await mongo.operation_time()
    found: list[bytes] = []
    async with aclosing(ArchiveLayout(mongo, "things").scan_current(size=size, at=at)) as pages:
        async for documents, _ in pages:
            assert len(documents) <= size
            found += [bytes(each.raw) for each in documents]
    keys = {document_of([each]) for each in (*UNHELD.values(), *HELD.values())}
    assert sorted(found) == sorted(keys)


@one_driver
async def test_chunks_with_ids_that_no_driver_preserves_are_not_larger(
    mongo: Mongo, client: Client
) -> None:
    """The stored position of the initial snapshot is an id that is preserved."""
    known = (b"a", b"\xf0\x9f\x98\x80")
    for key in (*known, *(b"m\xff" + bytes([65 + n]) for n in range(20))):
        insert(client, mongo.name, "things", b"\x02_id\0" + text(key))
    baseline, found, places = Baseline(), 0, []
    while not baseline.done:
        chunk = await read_chunk(mongo, "things", baseline, size=3)
        assert len(chunk.documents) <= 3
        found += len(chunk.documents)
        baseline = advance_baseline(baseline, chunk, 0)
        places.append(baseline.after)
    assert (found, baseline.read) == (22, 22)
    assert places == ["a"] * 7 + ["\U0001f600"]


@one_driver
@pytest.mark.parametrize("history", ["DOCUMENT_PER_VERSION", "CURRENT_FLAG", "DELTAS", "SEPARATE"])
async def test_versions_without_a_document_are_ignored(
    mongo: Mongo, client: Client, history: str
) -> None:
    """The snapshot of the layout continues after them; an invalid number is ignored, too."""
    layout = create_layout(mongo, layout_model(history, "things").entity("Product"))
    rows = "things.previous" if history == "SEPARATE" else "things"
    for odd in ROWS.values():
        insert(client, mongo.name, rows, odd, NUMBERED)
    for v in (
        b"\x02v\0" + text(b"one"),
        b"\x10v\0" + int32(-1),
        b"\x01v\0" + bytes(6) + b"\xf8\x3f",
    ):
        insert(client, mongo.name, rows, b"\x02docId\0" + text(b"odd"), v)
    insert(client, mongo.name, rows, b"\x02docId\0" + text(b"x"), NUMBERED)
    if history == "SEPARATE":
        insert(client, mongo.name, "things", b"\x02_id\0" + text(b"y"), b"\x02v\0" + text(b"one"))
        insert(client, mongo.name, "things", b"\x02_id\0" + text(b"x"), b"\x10v\0" + int32(2))
    at = await mongo.operation_time()
    for size in (1, 2, 100):
        after, end, found = None, False, []
        while not end:
            versions, end = await layout.read(after, size=size, at=at)  # type: ignore[attr-defined]
            found += [(each.key, each.number) for each in versions]
            after = (versions[-1].key,) if versions else after
        assert found == ([("x", 1), ("x", 2)] if history == "SEPARATE" else [("x", 1)])


@one_driver
@pytest.mark.parametrize("odd", ["text", "list"])
@pytest.mark.parametrize("history", ["DOCUMENT_PER_VERSION", "CURRENT_FLAG", "DELTAS", "SEPARATE"])
async def test_the_snapshot_of_a_layout_continues_after_many_invalid_rows(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, history: str, odd: str
) -> None:
    """They are consecutive and have more bytes than one read."""
    monkeypatch.setattr("revstream.streams.layouts.self_versioned.version_rows._CHUNK_BYTES", 3000)
    layout = create_layout(mongo, layout_model(history, "things").entity("Product"))
    await layout.prepare()
    rows = "things.previous" if history == "SEPARATE" else "things"
    for n in range(30):
        long = text(b"m" + bytes([0xFF, 65 + n]) + b"x" * 500)
        key = b"\x02docId\0" + long if odd == "text" else b"\x04docId\0" + array_of([(0x02, long)])
        insert(client, mongo.name, rows, key, NUMBERED)
    for known in (b"a", b"z"):
        insert(client, mongo.name, rows, b"\x02docId\0" + text(known), NUMBERED)
        insert(client, mongo.name, rows, b"\x02docId\0" + text(known), b"\x10v\0" + int32(2))
    at = await mongo.operation_time()
    for size in (2, 100):
        after, end, found = None, False, []
        while not end:
            versions, end = await layout.read(after, size=size, at=at)  # type: ignore[attr-defined]
            found += [(each.key, each.number) for each in versions if each.number is not None]
            after = (versions[-1].key,) if versions else after
        assert found == [("a", 1), ("a", 2), ("z", 1), ("z", 2)]


@one_driver
async def test_any_number_of_documents_without_a_version_is_skipped(
    mongo: Mongo, client: Client
) -> None:
    """They fill more pages than Python's recursion limit."""
    layout = create_layout(mongo, layout_model("SEPARATE", "things").entity("Product"))
    things = client[mongo.name].things
    things.insert_many([{"_id": f"{n:04}", "name": "uncounted"} for n in range(4000)])
    things.insert_one({"_id": "x", "v": 1})
    at = await mongo.operation_time()
    versions, end = await layout.read(None, size=1, at=at)  # type: ignore[attr-defined]
    assert ([(each.key, each.number) for each in versions], end) == ([("x", 1)], True)


@one_driver
async def test_a_document_has_only_the_versions_of_its_own_id(mongo: Mongo, client: Client) -> None:
    """Another document's id is equal after decoding."""
    layout = create_layout(mongo, layout_model("SEPARATE", "things").entity("Product"))
    insert(client, mongo.name, "things", b"\x02_id\0" + text(b"\x80"), NUMBERED)
    insert(client, mongo.name, "things", HELD["replacement"], NUMBERED)
    at = await mongo.operation_time()
    versions, end = await layout.read(None, size=5, at=at)  # type: ignore[attr-defined]
    assert ([(each.key, each.number) for each in versions], end) == ([(REPLACEMENT, 1)], True)


MODEL = """
type Thing @collection(name: "things") { id: ID! n: Int }
type Row @collection(name: "rows", history: DOCUMENT_PER_VERSION, version: "v") { id: ID! n: Int }
"""


@pytest.fixture
def database(client: Client) -> Iterator[str]:
    name = f"odd_ids_{uuid4().hex[:8]}"
    yield name
    client.drop_database(name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "schema.graphql"
    file.write_text(MODEL)
    return file


@pytest.fixture
def gateway(mongo_uri: str, database: str, model: Path) -> Iterator[RunningGateway]:
    with running_gateway(mongo_uri, database, model) as running:
        yield running


def test_a_document_without_versions_is_left_out_if_version_is_selected(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The others are returned; without `version` it is returned, too."""
    insert(client, database, "things", UNHELD["text"])
    insert(client, database, "things", b"\x02_id\0" + text(b"healthy"))
    for odd in ROWS.values():
        insert(client, database, "rows", odd, NUMBERED)
    insert(client, database, "rows", b"\x02docId\0" + text(b"healthy"), NUMBERED)
    versions = client[database]
    wait_until(lambda: versions["things.versions"].count_documents({}), within_s=30)
    wait_until(lambda: versions["rows.versions"].count_documents({}), within_s=30)
    answer = gateway.post("{ things { nodes { id version } } rows { nodes { id version } } }")
    healthy = [{"id": "healthy", "version": 1}]
    assert answer["data"]["things"]["nodes"] == healthy
    # It has a version field.
    assert answer["data"]["rows"]["nodes"] == [*healthy, {"id": REPLACEMENT, "version": 1}]
    assert {each["extensions"]["code"] for each in answer["errors"]} == {"ARCHIVE_BEHIND"}
    assert all(each["extensions"]["leftOut"] for each in answer["errors"])
    assert ["things", "nodes", 1, "version"] in [each["path"] for each in answer["errors"]]
    ids = [each["id"] for each in gateway.query("{ things { nodes { id } } }")["things"]["nodes"]]
    assert ids == ["healthy", REPLACEMENT]


def test_a_document_set_aside_by_a_running_gateway_is_reported(
    gateway: RunningGateway, client: Client, database: str, model: Path, mongo_uri: str
) -> None:
    """Its recorder may take events from the live stream."""
    shop = client[database]
    shop.things.insert_one({"_id": "healthy"})
    shop.rows.insert_one({"docId": "healthy", "v": 1})
    for name in ("things", "rows"):
        wait_until(lambda archive=shop[f"{name}.versions"]: archive.count_documents({}))
    # The live stream, and that of the self-versioned collection.
    wait_until(lambda: open_streams(client, database) == 2)
    insert(client, database, "things", UNHELD["other text"])
    said = "1 change event set aside"

    def told_of() -> bool:
        trouble = http.get(f"{gateway.address}/readyz").json().get("trouble", {})
        return said in trouble.get("recorder:things", "")

    wait_until(told_of, within_s=30)
    streams = gateway.query("{ streams { name trouble } }")["streams"]
    assert [each["name"] for each in streams if said in str(each["trouble"])] == ["recorder:things"]
    doctor = run_command(
        *("doctor", "--mongodb-uri", mongo_uri, "--database", database, "--schema", str(model))
    )
    assert f"things: {said}" in doctor.stdout


def open_streams(client: Client, database: str) -> int:
    look = {"$currentOp": {"idleCursors": True, "allUsers": True}}
    found = client.admin.aggregate([look])
    commands = [each.get("cursor", {}).get("originatingCommand", {}) for each in found]
    mine = [each for each in commands if each.get("$db") == database]
    return sum("$changeStream" in stage for each in mine for stage in each.get("pipeline", ()))


@one_driver
async def test_all_set_aside_events_of_a_document_are_one_entry(
    mongo: Mongo, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Frequent writes cause neither log lines nor commands; a removed entry comes back later."""
    recording = Recording(mongo)
    await recording.begin()
    things, aside = client[mongo.name].things, client[mongo.name][COLLECTION]

    def lines() -> int:
        return sum(each.message == "event set aside" for each in caplog.records)

    async with recording.running() as task:
        insert(client, mongo.name, "things", UNHELD["text"])
        insert(client, mongo.name, "things", UNHELD["other text"])
        for _ in range(20):
            things.update_many({}, {"$inc": {"n": 1}})
        await recording.at_rest(task)
        assert lines() == aside.count_documents({}) == 2
        aside.delete_many({})
        things.update_many({}, {"$inc": {"n": 1}})
        await recording.at_rest(task)
        assert aside.count_documents({}) == 0
        recording.recorder._builder._set_aside._forget_at = 0.0
        things.update_many({}, {"$inc": {"n": 1}})
        await recording.at_rest(task)
        assert aside.count_documents({}) == 2
    assert recording.recorder.statistics()["set_aside"] == 4
