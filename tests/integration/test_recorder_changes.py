"""Collections that change while they are recorded: created later, without post-images, filled by a
large transaction; and collections without history.
"""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import check_collections, enable_collection_images
from tests.support.streams import Recording, outline

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


def keeps_images(client: Client, name: str) -> bool:
    (found,) = client[name].list_collections(filter={"name": "things"})
    images = found["options"].get("changeStreamPreAndPostImages", {})
    return bool(images.get("enabled"))


async def test_a_collection_created_later_is_recorded_from_the_first_write(
    mongo: Mongo, client: Client
) -> None:
    """The recorder waits for it; its first document creates it."""
    recording = Recording(mongo)
    await recording.begin()
    async with recording.running() as task:
        await recording.caught_up(task)
        assert "things" not in client[mongo.name].list_collection_names()
        things = client[mongo.name].things
        things.insert_one({"_id": 1, "a": {"b": 1}})
        things.update_one({"_id": 1}, {"$set": {"a.b": 2}})
        await recording.caught_up(task)
    records = await recording.versions()
    assert outline(records) == [("INSERT", 1, False), ("UPDATE", 2, False)]
    assert [each["full"]["a"]["b"] for each in records] == [1, 2]


async def test_recording_continues_after_post_images_are_turned_off(
    mongo: Mongo, client: Client
) -> None:
    """Versions from deltas are exact; the next start turns post-images on again."""
    await enable_collection_images(mongo, "things")
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    states = [{"_id": 1, "a": {"b": n, "c": [n]}} for n in range(6)]
    things.insert_one(states[0])
    async with recording.running() as task:
        for n, state in enumerate(states[1:], 1):
            if n == 3:
                await recording.caught_up(task)
                images = {"enabled": False}
                client[mongo.name].command(
                    {"collMod": "things", "changeStreamPreAndPostImages": images}
                )
            things.update_one({"_id": 1}, {"$set": {"a.b": n, "a.c.0": n}})
            assert things.find_one() == state
        await recording.caught_up(task)
    records = await recording.versions()
    assert [each["full"] for each in records] == states
    assert not any(gap for _, _, gap in outline(records))
    assert not keeps_images(client, mongo.name)
    await enable_collection_images(mongo, "things")
    assert keeps_images(client, mongo.name)


@pytest.mark.parametrize("images", [True, False], ids=["images", "deltas"])
async def test_a_transaction_beyond_16_mb_has_one_cluster_time(
    mongo: Mongo, client: Client, images: bool
) -> None:
    """The order is that of its writes, although the server logs several entries."""
    if images:
        await enable_collection_images(mongo, "things")
    else:
        client[mongo.name].create_collection("things")
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": "before"})
    expected: list[tuple[Any, str, int]] = [("before", "INSERT", 1)]
    with client.start_session() as session, session.start_transaction():
        for key in range(5):
            things.insert_one({"_id": key, "n": 0, "text": "x" * 3_600_000}, session=session)
            things.update_one({"_id": key}, {"$set": {"n": 1}}, session=session)
            expected += [(key, "INSERT", 1), (key, "UPDATE", 2)]
        things.delete_one({"_id": 0}, session=session)
        expected.append((0, "DELETE", 3))
    entries = client.local["oplog.rs"].count_documents({"o.applyOps.ns": f"{mongo.name}.things"})
    assert entries > 1
    records = await recording.record()
    assert [(each["doc"], each["op"], each["v"]) for each in records] == expected
    assert len({each["at"] for each in records[1:]}) == 1
    assert records[0]["at"] < records[1]["at"]
    updates = [each["full"] for each in records if each["op"] == "UPDATE"]
    assert updates == [{"_id": key, "n": 1, "text": "x" * 3_600_000} for key in range(5)]
    assert not any(gap for _, _, gap in outline(records))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"viewOn": "other", "pipeline": []}, "is a view, expected a collection"),
        ({"timeseries": {"timeField": "at"}}, "is a time-series collection"),
        ({"capped": True, "size": 4096}, "is a capped collection"),
    ],
    ids=["view", "time series", "capped"],
)
async def test_a_collection_without_possible_history_is_refused(
    mongo: Mongo, client: Client, options: dict[str, Any], said: str
) -> None:
    """The error has its name, the reason and a way out; other collections are recorded."""
    database = client[mongo.name]
    database.create_collection("good")
    await check_collections(mongo, ["good", "not there yet"])
    database.create_collection("things", **options)
    with pytest.raises(Unsuitable, match=f"{mongo.name}.things {said}"):
        await check_collections(mongo, ["good", "things", "not there yet"])


async def test_a_capped_collection_cannot_be_read_at_a_cluster_time(
    mongo: Mongo, client: Client
) -> None:
    """The refusal has this reason: a snapshot could not be joined with the change
    stream.
    """
    client[mongo.name].create_collection("things", capped=True, size=4096)
    client[mongo.name].things.insert_one({"_id": 1})
    now = await mongo.operation_time()
    with pytest.raises(DatabaseError, match="capped collections with readConcern snapshot"):
        await mongo.find("things", {}, FindOptions(at=now))


@pytest.mark.parametrize("images", [True, False])
async def test_entries_of_copies_are_stored_beside_the_content(
    mongo: Mongo, client: Client, images: bool
) -> None:
    """Each record has all of them, also after a partial update without a post-image.

    They are neither content nor a change.
    """
    if images:
        await enable_collection_images(mongo, "things")
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    copies: dict[str, Any] = {"name": [{"of": "ann", "v": 1}], "city": [{"of": "ann", "v": 1}]}
    things.insert_one({"_id": 1, "name": "Ann", "_copies": copies, "_change": {"id": 1}})
    things.update_one({"_id": 1}, {"$set": {"name": "Anna", "_copies.name.0.v": 2}})
    things.update_one({"_id": 1}, {"$set": {"_copies.name": [{"of": "bob", "v": 7}]}})
    things.update_one({"_id": 1}, {"$unset": {"_copies": ""}})
    records = await recording.record()
    assert [each["full"] for each in records] == [
        {"_id": 1, "name": name} for name in ("Ann", "Anna", "Anna", "Anna")
    ]
    assert [each["changed"] for each in records] == [["name"], ["name"], [], []]
    assert [each.get("copies") for each in records] == [
        copies,
        {**copies, "name": [{"of": "ann", "v": 2}]},
        {**copies, "name": [{"of": "bob", "v": 7}]},
        None,
    ]
