"""Change events that are too large for a reply of the server: one version is read again, and all
other events are recorded and published.
"""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.streams.changefeed.source import Source
from revstream.streams.live.hub import Hub, publish_source
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import enable_collection_images
from tests.support.eventually import eventually
from tests.support.exhaustive import representatives
from tests.support.streams import BRISK, Recording, outline, stop_task

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

# The event of an update has each path in full, the oplog entry nests them.
_LONG = "n" * 1000
_ITEMS = 17_000
# The server's internal limit of a document: 16 MB and 16 KB.
_LARGEST = 16_793_600


def write_many_paths(things: Any) -> Any:
    """Send an update whose event has 17 MB; returns the document's `_id`."""
    things.insert_one({"_id": "lines", _LONG: [{"q": 1, "s": "x" * 60} for _ in range(_ITEMS)]})
    more = {"$mergeObjects": ["$$this", {"q": {"$add": ["$$this.q", 1]}}]}
    things.update_one(
        {"_id": "lines"}, [{"$set": {_LONG: {"$map": {"input": f"${_LONG}", "in": more}}}}]
    )
    return "lines"


def write_long_id(things: Any) -> Any:
    """Insert nearly 16 MB; the event repeats the id in its token and its key."""
    key = "i" * 10_001
    things.insert_one({"_id": key, "name": "x" * 16_767_000})
    return key


def write_closing_id(things: Any) -> Any:
    """Insert a document whose event is 40 bytes below the server's limit.

    The server closes the connection without an error.
    """
    raw = things.database.with_options(RAW)
    at = things.database.client.admin.command("ping")["operationTime"]
    things.insert_one({"_id": "i" * 6000, "name": ""})
    stream = {"$changeStream": {"startAtOperationTime": Timestamp(at.time, at.inc + 1)}}
    reply = raw.command(
        {"aggregate": "things", "pipeline": [stream], "cursor": {}}, codec_options=RAW
    )
    (event,) = reply["cursor"]["firstBatch"]
    key = "j" * 6000
    things.insert_one({"_id": key, "name": "x" * (_LARGEST - 40 - len(event.raw))})
    return key


WRITES = (write_many_paths, write_long_id, write_closing_id)
LARGE = pytest.mark.parametrize("write", WRITES)


@pytest.mark.parametrize(
    ("write", "images", "wired"),
    representatives(
        product(WRITES, (True, False), (True, False)),
        (write_many_paths, True, True),
        (write_long_id, False, True),
        (write_closing_id, True, False),
    ),
)
@one_driver
async def test_a_version_whose_event_is_too_large_is_read_again_and_marked_as_a_gap(
    mongo: Mongo, client: Client, write: Any, images: bool, wired: bool
) -> None:
    """The versions before and after it are exact."""
    if not wired:
        mongo.wires = None
    if images:
        await enable_collection_images(mongo, "things")
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "n": 1})
    things.update_one({"_id": 1}, {"$set": {"n": 2}})
    key = write(things)
    things.update_one({"_id": 1}, {"$set": {"n": 3}})
    records = await recording.record()
    assert outline(records, 1) == [("INSERT", 1, False), ("UPDATE", 2, False), ("UPDATE", 3, False)]
    assert [each["full"]["n"] for each in records if each["doc"] == 1] == [1, 2, 3]
    *earlier, (_, _, gap) = outline(records, key)
    assert gap
    assert not any(each[2] for each in earlier)
    last = (await recording.archive.find({"doc": key}, FindOptions(sort=[("v", -1)], limit=1)))[0]
    assert last["full"] == things.find_one({"_id": key})


@one_driver
async def test_an_unreadable_change_is_found_by_a_new_snapshot(
    mongo: Mongo, client: Client
) -> None:
    """Not even its key and token fit into a reply: the stream skips it and continues."""
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1})
    key = "i" * 6_000_000
    things.insert_one({"_id": key})
    things.insert_one({"_id": 2})
    records = await recording.record()
    assert outline(records, 1) == [("INSERT", 1, False)]
    assert outline(records, 2) == [("INSERT", 1, False)]
    assert outline(records, key) == [("BASELINE", 1, True)]


@LARGE
@one_driver
async def test_a_live_stream_continues_after_a_too_large_event(
    mongo: Mongo, client: Client, write: Any
) -> None:
    """Its subscribers receive that change and later ones, with their post-images."""
    await enable_collection_images(mongo, "things")
    recording = Recording(mongo)
    begun = await recording.begin()
    hub = Hub(["things"], position=begun.token)
    subscriber = hub.attach("things")
    source = Source(mongo, ["things"], before_images=True, options=BRISK)
    things = client[mongo.name].things
    key = write(things)
    things.insert_one({"_id": 2})
    things.update_one({"_id": 2}, {"$set": {"n": 1}})
    follower = asyncio.create_task(publish_source(source, hub))
    found: list[Any] = []
    while len(found) < 3 or found[-1].key != 2 or found[-1].operation != "update":
        found += await subscriber.next()
    await stop_task(follower)
    assert [each.bare for each in found if each.key == key][-1]
    inserted, updated = found[-2:]
    assert (inserted.bare, updated.bare) == (False, False)
    assert updated.document == {"_id": 2, "n": 1}
    assert updated.document_before == {"_id": 2}


@one_driver
async def test_subscribers_resume_from_the_archive_after_an_unreadable_change(
    mongo: Mongo, client: Client
) -> None:
    """The live stream does not have it; their tokens resume after it once it is recorded."""
    recording = Recording(mongo)
    begun = await recording.begin()
    hub = Hub(["things"], position=begun.token)
    subscriber = hub.attach("things")
    source = Source(mongo, ["things"], before_images=True, options=BRISK)
    client[mongo.name].things.insert_one({"_id": "i" * 6_000_000})
    follower = asyncio.create_task(publish_source(source, hub))
    await eventually(lambda: subscriber._end)
    assert hub.ring("things").items_after(begun.token) is None
    await stop_task(follower)
