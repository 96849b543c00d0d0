"""The document after each write: exactly the server's, with post-images and without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.errors import WriteError

from revstream.streams.core.errors import DatabaseError
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.server_check import enable_collection_images, enable_images
from revstream.streams.raw_bson.diff import is_same
from tests.support.streams import Recording, outline
from tests.support.updates import LIVES

Client = MongoClient[dict[str, Any]]
Life = tuple[dict[str, Any], list[Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
turns = count(1)


def live(client: Client, name: str, key: Any, life: Life) -> list[RawBSONDocument]:
    """Execute the writes of a document; returns its state after each write that changed it."""
    things = client.get_database(name, codec_options=DECODED).things
    states = client.get_database(name, codec_options=RAW).things
    beginning, updates = life
    things.insert_one({"_id": key, **beginning})
    found = [states.find_one({"_id": key})]
    for update in updates:
        try:
            result = things.update_one({"_id": key}, update)
        except WriteError:  # the server decides which updates are valid
            continue
        if result.modified_count:
            found.append(states.find_one({"_id": key}))
    return [each for each in found if each is not None]


async def archived(recording: Recording, key: Any) -> list[Any]:
    return await recording.mongo.find(
        recording.archive.name, {"doc": key}, FindOptions(sort=[("_id", 1)], raw=True)
    )


async def check_lives(mongo: Mongo, client: Client, lives: Sequence[Life]) -> None:
    keys = [f"{next(turns)}" for _ in lives]
    states = [live(client, mongo.name, *each) for each in zip(keys, lives, strict=True)]
    recording = Recording(mongo)
    await recording.record(fencing_token=next(turns))
    for key, expected, (beginning, updates) in zip(keys, states, lives, strict=True):
        records = await archived(recording, key)
        said = f"{beginning} {updates}"
        assert len(records) == len(expected), said
        for record, state in zip(records, expected, strict=True):
            # Except for the order of fields, which the server's own images do not always keep.
            assert is_same(record["full"], state), said
            # Each name once: `is_same` compares the last field of a name.
            once = bson.encode(bson.decode(record["full"].raw, DECODED), codec_options=DECODED)
            assert len(once) == len(record["full"].raw), said
            assert "gap" not in record, said


drawn = settings(
    # Without shrinking, which would take minutes: the message has the writes.
    phases=[Phase.explicit, Phase.generate],
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@one_driver
@drawn
@given(lives=st.lists(LIVES, min_size=10, max_size=10))
async def test_versions_from_post_images_equal_the_documents(
    mongo: Mongo, client: Client, lives: list[Life]
) -> None:
    """This holds for any updates."""
    await enable_collection_images(mongo, "things")
    await begun(mongo)
    await check_lives(mongo, client, lives)


@one_driver
@drawn
@given(lives=st.lists(LIVES, min_size=10, max_size=10))
async def test_versions_from_deltas_equal_the_documents(
    mongo: Mongo, client: Client, lives: list[Life]
) -> None:
    """Ambiguous paths are resolved by the oplog, so no version has a gap."""
    await begun(mongo)
    await check_lives(mongo, client, lives)


@one_driver
@drawn
@given(lives=st.lists(LIVES, min_size=10, max_size=10))
async def test_recent_versions_from_deltas_need_no_oplog(
    mongo: Mongo, client: Client, lives: list[Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without access to the oplog, the document is read at the event's cluster time."""
    await begun(mongo)
    with monkeypatch.context() as patch:
        patch.setattr(Mongo, "oldest", refused)
        await check_lives(mongo, client, lives)


async def begun(mongo: Mongo) -> None:
    """Start history now, unless it has started already."""
    recording = Recording(mongo)
    if await recording.checkpoints.load(recording.name) is None:
        await recording.begin(baseline_done=True)


async def refused(self: Mongo, *args: Any, **options: Any) -> None:
    raise DatabaseError("not authorized on local to execute command find", number=13)


async def test_a_version_that_cannot_be_reconstructed_is_read_again_with_a_gap(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is too old for a read at its time, and there is no oplog.

    The version is the current document, which contains later writes, too.
    """
    await Recording(mongo).begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "a": {"b": 0}, "c": 0})
    things.insert_one({"_id": 2, "a": {"b": 0}})
    for n in (1, 2):
        things.update_many({}, {"$set": {"a.b": n}})
    things.update_one({"_id": 1}, {"$set": {"c": 1}})
    things.delete_one({"_id": 2})
    find = Mongo.find
    present = await mongo.operation_time()

    async def too_old(
        self: Mongo, collection: str, query: Any, options: FindOptions = NO_OPTIONS
    ) -> Any:
        if options.at is not None and options.at < present:
            raise DatabaseError("snapshot too old", number=239)
        return await find(self, collection, query, options)

    monkeypatch.setattr(Mongo, "oldest", refused)
    monkeypatch.setattr(Mongo, "find", too_old)
    recording = Recording(mongo)
    records = await recording.record()
    assert outline(records, 1) == [("INSERT", 1, False), ("UPDATE", 2, True)]
    last = [each for each in records if each["doc"] == 1][-1]
    assert last["full"] == {"_id": 1, "a": {"b": 2}, "c": 1}
    assert last["readAt"] >= present
    # Deleted again: its updates are unknown, its deletion is known.
    assert outline(records, 2) == [("INSERT", 1, False), ("DELETE", 2, False)]
    statistics = recording.recorder.statistics()
    assert (statistics["skipped"], statistics["duplicates"]) == (2, 2)

    things.update_one({"_id": 1}, {"$set": {"c": 2}})
    records = await Recording(mongo).record(fencing_token=2)
    assert outline(records, 1)[2:] == [("UPDATE", 3, False)]


@one_driver
async def test_a_moved_field_is_stored_once(mongo: Mongo, client: Client) -> None:
    """The server's post-image has it at its old position, too, and projections of such a document
    omit the last field.
    """
    await enable_collection_images(mongo, "things")
    await begun(mongo)
    things = client.get_database(mongo.name, codec_options=RAW).things
    key = f"{next(turns)}"
    # So long that the server logs an update as a delta and not as a replacement.
    start = {"_id": key, "filler": "." * 300}
    size = {"w": 1, "h": 2, "note": "Lamp"}
    things.insert_one({**start, "size": {"h": 30, "w": 1}, "x": 1, "y": 2})
    states = [things.find_one({"_id": key})]
    for each in ({"size": size, "x": 1, "y": 2}, {"size": size, "y": 2, "x": 3, "z": 4}):
        things.update_one({"_id": key}, [{"$replaceWith": {"$literal": {**start, **each}}}])
        states.append(things.find_one({"_id": key}))
    recording = Recording(mongo)
    await recording.record(fencing_token=next(turns))
    records = await archived(recording, key)
    for record, state in zip(records, states, strict=True):
        assert state is not None
        assert record["full"].raw == state.raw
    projected = await mongo.find(
        recording.archive.name,
        {"_id": records[1]["_id"]},
        FindOptions(projection={"full.size.h": 1, "full.size.note": 1, "full.size.w": 1}),
    )
    assert projected[0]["full"]["size"] == {"w": 1, "h": 2, "note": "Lamp"}


@one_driver
async def test_writes_of_a_transaction_are_reconstructed(mongo: Mongo, client: Client) -> None:
    """A document that is written once is exact; of two writes the first is unknown."""
    await Recording(mongo).begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "a": {"b": 0}} for n in (1, 2, 3)])
    with client.start_session() as session, session.start_transaction():
        things.update_one({"_id": 1}, {"$set": {"a.b": 1}}, session=session)
        things.update_one({"_id": 2}, {"$set": {"a.b": 1}}, session=session)
        things.update_one({"_id": 2}, {"$set": {"a.b": 2}}, session=session)
        things.update_one({"_id": 3}, {"$set": {"a.b": 1}}, session=session)
        things.delete_one({"_id": 3}, session=session)
    things.update_many({"_id": {"$in": [1, 2]}}, {"$set": {"a.c": 1}})
    records = await Recording(mongo).record()
    assert outline(records, 1) == [("INSERT", 1, False), ("UPDATE", 2, False), ("UPDATE", 3, False)]
    assert outline(records, 2) == [("INSERT", 1, False), ("UPDATE", 2, True), ("UPDATE", 3, False)]
    states = [each["full"] and each["full"]["a"] for each in records]
    assert [s for s, each in zip(states, records, strict=True) if each["doc"] == 1] == [
        {"b": 0},
        {"b": 1},
        {"b": 1, "c": 1},
    ]
    assert [s for s, each in zip(states, records, strict=True) if each["doc"] == 2] == [
        {"b": 0},
        {"b": 2},
        {"b": 2, "c": 1},
    ]
    assert outline(records, 3)[-1][0] == "DELETE"


@one_driver
async def test_the_attribution_is_followed_through_partial_deltas(
    mongo: Mongo, client: Client
) -> None:
    """The archive stores it beside the document; a pipeline's delta contains only its new parts."""
    await Recording(mongo).begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "n": 0, "_change": {"id": 1, "by": "alice", "why": "begin"}})
    for n, by in ((2, "bob"), (3, "alice")):
        things.update_one(
            {"_id": 1}, [{"$set": {"n": n, "_change": {"$literal": {"id": n, "by": by}}}}]
        )
        await Recording(mongo).record(fencing_token=n)
    things.update_one({"_id": 1}, {"$set": {"n": 9}})
    records = await Recording(mongo).record(fencing_token=9)
    assert [each["by"] for each in records] == ["alice", "bob", "alice", None]
    assert [each["why"] for each in records] == ["begin", None, None, None]
    assert [each["full"] for each in records] == [{"_id": 1, "n": n} for n in (0, 2, 3, 9)]
    assert not any(gap for _, _, gap in outline(records))


@one_driver
async def test_nested_db_references_are_changed_like_objects(mongo: Mongo, client: Client) -> None:
    """The driver would decode such an object as a DBRef."""
    await Recording(mongo).begin(baseline_done=True)
    database = client.get_database(mongo.name, codec_options=RAW)
    database.things.insert_one({"_id": 1, "r": {"x": 1, "$ref": "c", "$id": 5, "y": 2}})
    database.things.update_one({"_id": 1}, {"$set": {"r.x": 9, "n": 1}})
    database.things.update_one({"_id": 1}, {"$set": {"n": 2}})
    await Recording(mongo).record()
    stored = database.things.find_one({"_id": 1})
    assert stored is not None
    records = await archived(Recording(mongo), 1)
    assert bytes(records[-1]["full"].raw) == bytes(stored.raw)
    assert ["gap" in each for each in records] == [False] * 3


@one_driver
async def test_a_repeated_field_name_is_archived_twice(mongo: Mongo, client: Client) -> None:
    """Drivers of other languages write such documents.

    After a pipeline that moves the object, the server appends fields and removes only the old ones.
    """
    await enable_collection_images(mongo, "things")
    await Recording(mongo).begin(baseline_done=True)
    once = bson.encode({"_id": 1, "data": {"a": 1, "b": 2}, "n": 0, "text": "x" * 500})
    twice = RawBSONDocument(once.replace(b"\x10b\0", b"\x10a\0"), RAW)
    database = client.get_database(mongo.name, codec_options=RAW)
    database.command("insert", "things", documents=[twice])
    stored = [bytes(twice.raw)]
    for update in (
        {"$set": {"n": 1}},
        [{"$set": {"copy": "$data"}}],
        [{"$set": {"data": {"in": "$data"}, "copy": "$$REMOVE"}}],
    ):
        database.things.update_one({"_id": 1}, update)
        found = database.things.find_one({"_id": 1})
        assert found is not None
        stored.append(bytes(found.raw))
    await Recording(mongo).record()
    records = await archived(Recording(mongo), 1)
    assert [bytes(each["full"].raw) for each in records] == stored
    assert stored[-1].count(b"\x10a\0") == 4


async def test_post_images_are_enabled_where_that_is_permitted(
    mongo: Mongo, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A collection that was dropped meanwhile is not created; a view is named in the log."""
    client[mongo.name].create_collection("old")
    client[mongo.name].create_collection("view", viewOn="old", pipeline=[])
    await enable_images(mongo, ["old", "gone", "view"])
    found = {each["name"]: each["options"] for each in client[mongo.name].list_collections()}
    assert found["old"]["changeStreamPreAndPostImages"] == {"enabled": True}
    assert "gone" not in found
    (line,) = [each for each in caplog.records if each.message.startswith("no images")]
    assert line.__dict__["collections"] == "view"


@one_driver
async def test_a_recreated_collection_is_recorded_without_post_images(
    mongo: Mongo, client: Client
) -> None:
    """The drop removed the option: updates are recorded from deltas."""
    await enable_collection_images(mongo, "things")
    await Recording(mongo).begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "a": {"b": 1}})
    things.drop()
    things.insert_one({"_id": 1, "a": {"b": 2}})
    things.update_one({"_id": 1}, {"$set": {"a.b": 3}})
    records: list[Document] = await Recording(mongo).record()
    assert [each["full"] and each["full"]["a"]["b"] for each in records] == [1, None, 2, 3]
    assert not any(gap for _, _, gap in outline(records))


async def test_a_document_whose_events_exceed_16_mb_has_its_whole_history(
    mongo: Mongo, client: Client
) -> None:
    """Such an event has no images, and the version is made from the delta."""
    await enable_collection_images(mongo, "things")
    recording = Recording(mongo)
    await recording.begin()
    things = client[mongo.name].things
    states = [{"_id": 1, "text": "x" * 8_500_000, "n": 0}]
    things.insert_one(states[0])
    for change in ({"n": 1}, {"text": "y" * 8_500_000}, {"n": 2}, {"text": "z" * 8_500_000}):
        things.update_one({"_id": 1}, {"$set": change})
        states.append({**states[-1], **change})
    records = await recording.record()
    assert [record["full"] for record in records] == states
    assert not any(record.get("gap") for record in records)
