"""A purge: no content is left in the database, but the record of the purge is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import CodecOptions, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.model.definition import Keep
from revstream.resolvers.admin.purge import Purged, Purging
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.mutations.write_executor import ATTEMPTS
from revstream.resolvers.pagination.page import PageRequest, page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from tests.integration.test_history import history
from tests.integration.test_retention import NAMES, retaining, verified
from tests.support.archives import Scribe
from tests.support.shop import PRODUCT
from tests.support.streams import Recording, unless_ended

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

SECRET = "jane.doe@example.org"
BY, WHY = "officer", "request 4711"
RAW = CodecOptions[RawBSONDocument](document_class=RawBSONDocument)


async def written(
    mongo: Mongo, client: Client, *, deleted: bool, deltas: bool = False
) -> Recording:
    """Record products p1 and p2 with a secret in several versions, drafts and comments on both."""
    recording = Recording(mongo, "products", deltas=deltas)
    await recording.begin()
    database = client[mongo.name]
    for key in ("p1", "p2"):
        change = {"id": f"{key}-1", "by": SECRET, "why": f"of {SECRET}"}
        document = {"_id": key, "name": SECRET, "_change": change}
        database.products.insert_one(document)
        for n in range(4):
            name = f"{SECRET} {n}" if n < 3 else "nobody"
            change = {"id": f"{key}-{n + 2}", "by": "ann", "why": f"{SECRET} again", "draft": 1}
            values = {"name": name, f"by.{SECRET.replace('.', '_')}": n, "_change": change}
            database.products.update_one({"_id": key}, {"$set": values})
        database["products.drafts"].insert_one({"doc": key, "number": 1, "full": {"n": SECRET}})
        database["products.comments"].insert_one({"doc": key, "version": 1, "text": SECRET})
        database["revstream.deletions"].insert_one(
            {"collection": "products", "doc": key, "change": {"why": SECRET}}
        )
    if deleted:
        database.products.delete_one({"_id": "p1"})
    await recording.record()
    return recording


async def purged(mongo: Mongo, recording: Recording, key: str = "p1") -> Purged:
    progress = await at_rest(mongo, recording)
    purging = Purging(mongo, recording.archive, progress, PRODUCT)
    return await purging.purge(key, by=BY, why=WHY, limit_s=10)


async def at_rest(mongo: Mongo, recording: Recording) -> ArchiveProgress:
    """Return a progress like that of an idle recorder, for a while: the server writes to its
    oplog itself.
    """
    now = await mongo.operation_time()
    progress = ArchiveProgress(recording.checkpoints, recording.hub)
    progress.advance(
        recording.partition, resume_tokens.token_from_time(Timestamp(now.time + 600, 0))
    )
    progress.note_baseline(recording.partition, Baseline(done=True))
    return progress


def holding(client: Client, name: str, secret: str) -> list[tuple[str, Any]]:
    """Return the collections and documents that contain the bytes of a text."""
    database = client[name]
    found = []
    for collection in database.list_collection_names():
        for each in database.get_collection(collection, codec_options=RAW).find():
            if secret.encode() in each.raw:
                document = bson.decode(each.raw)
                found.append((collection, document.get("doc", document["_id"])))
    return sorted(set(found))


@pytest.mark.parametrize("deltas", [False, True])
async def test_no_content_of_a_purged_deleted_document_is_left(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, deltas: bool
) -> None:
    """No collection contains it, field names included; other documents keep theirs."""
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    recording = await written(mongo, client, deleted=True, deltas=deltas)
    secrets = (SECRET, SECRET.replace(".", "_"))
    places = ["products.comments", "products.drafts", "products.versions", "revstream.deletions"]
    assert holding(client, mongo.name, SECRET) == sorted(
        [("products", "p2"), *((place, key) for place in places for key in ("p1", "p2"))]
    )
    # A trace leads to what other systems know of the deletion.
    client[mongo.name]["products.versions"].update_one(
        {"doc": "p1", "op": "DELETE"}, {"$set": {"traceparent": SECRET}}
    )
    done = await purged(mongo, recording)
    assert done == Purged(versions=5, drafts=1, comments=1, version=6, exists=False)
    for secret in secrets:
        assert {key for _, key in holding(client, mongo.name, secret)} == {"p2"}
    (record,) = await mongo.find("products.versions", {"doc": "p1"})
    assert (record["op"], record["v"], record["first"], record["full"]) == ("DELETE", 6, True, None)
    cut = record["cut"]
    assert (cut["versions"], cut["number"], cut["purge"]["by"], cut["purge"]["why"]) == (
        *(5, 1),
        *(BY, WHY),
    )
    (line,) = await mongo.find("revstream.purges", {})
    assert (line["doc"], line["by"], line["why"], line["done"]) == ("p1", BY, WHY, True)
    assert await verified(mongo, "products") == []
    # Version numbers continue.
    client[mongo.name].products.insert_one({"_id": "p1", "name": "new"})
    records = await recording.record(fencing_token=2)
    assert [each["v"] for each in records if each["doc"] == "p1"] == [6, 7]
    assert await verified(mongo, "products") == []


@pytest.mark.parametrize("deltas", [False, True])
async def test_the_last_version_of_an_existing_document_stays(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, deltas: bool
) -> None:
    """Earlier versions are reported as lost; the rest of the collection is unchanged."""
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    recording = await written(mongo, client, deleted=False, deltas=deltas)
    before = {r["v"]: r for r in await recording.archive.find({"doc": "p1"})}
    done = await purged(mongo, recording)
    assert done == Purged(versions=4, drafts=1, comments=1, version=5, exists=True)
    assert {key for _, key in holding(client, mongo.name, "again")} == {"p1", "p2"}
    (record,) = await mongo.find("products.versions", {"doc": "p1"})
    assert record["full"] == before[5]["full"]
    assert "draft" not in record
    assert await verified(mongo, "products") == []

    reading = history(mongo, Scribe(mongo, PRODUCT))
    number, at = await asyncio.gather(
        reading.by_number(PRODUCT, [("p1", 3), ("p1", 5), ("p1", 6), ("p2", 3)], NAMES),
        reading.as_of(PRODUCT, [("p1", before[3]["at"]), ("p1", before[5]["at"])], NAMES),
    )
    assert [type(each).__name__ for each in number] == [
        *("HistoryLost", "Version"),
        *("NoneType", "Version"),
    ]
    assert isinstance(number[0], HistoryLost)
    assert "by a purge" in number[0].message
    assert [type(each).__name__ for each in at] == ["HistoryLost", "Version"]
    earlier = Timestamp(before[1]["at"].time, before[1]["at"].inc - 1)
    assert await reading.as_of(PRODUCT, [("p1", earlier)], NAMES) == [None]
    # At an earlier time point p1 is missing, and other documents are not lost.
    for moment, expected in ((before[4]["at"], []), (before[5]["at"], [("p1", 5)])):
        page = await reading.collection_as_of(
            PRODUCT,
            TimePoint(moment),
            PageQuery(where=None, order=None, page=PageRequest(first=9), fields=NAMES),
        )
        assert [(each.document, each.number) for each in page.items] == expected
    (first,) = (
        await reading.pages_of(
            PRODUCT, ["p1"], PageQuery(where=None, page=page_request(), fields=NAMES)
        )
    )[0].items
    assert first.cut is not None
    assert first.cut.purge is not None
    assert (first.cut.versions, first.cut.purge.by, first.cut.purge.why) == (4, BY, WHY)


async def test_set_aside_events_are_purged(mongo: Mongo, client: Client) -> None:
    """All their parts are deleted, and no others."""
    recording = await written(mongo, client, deleted=True)
    aside = client[mongo.name]["revstream.setAside"]
    for key in ("p1", "p2"):
        aside.insert_one({"_id": key, "collection": "products", "key": key, "event": b"secret"})
        aside.insert_one({"_id": f"{key}#1", "collection": "products", "of": key, "n": 1})
    await purged(mongo, recording)
    assert sorted(each["_id"] for each in aside.find()) == ["p2", "p2#1"]


async def test_the_record_of_a_purge_stays_after_retention(mongo: Mongo, client: Client) -> None:
    """It stays after a second purge, too; deleted versions are counted together."""
    recording = await written(mongo, client, deleted=False)
    await purged(mongo, recording)
    client[mongo.name].products.update_one({"_id": "p1"}, {"$set": {"name": "x"}})
    client[mongo.name].products.update_one({"_id": "p1"}, {"$set": {"name": "y"}})
    await recording.record(fencing_token=2)
    keep = Keep(text="1 version", versions=1)
    assert await retaining(mongo, recording.archive, keep).go_through() == 2 + 4
    (record,) = await mongo.find("products.versions", {"doc": "p1"})
    assert (record["v"], record["cut"]["versions"]) == (7, 6)
    assert record["cut"]["purge"]["by"] == BY
    async with recording.running(3):
        assert (await purged(mongo, recording)).versions == 0
    (record,) = await mongo.find("products.versions", {"doc": "p1"})
    assert (record["cut"]["versions"], record["cut"]["purge"]["why"]) == (6, WHY)


async def test_a_purge_waits_for_the_recorder(mongo: Mongo, client: Client) -> None:
    """Without progress nothing is deleted; an unknown document cannot be purged."""
    recording = await written(mongo, client, deleted=True)
    purging = Purging(mongo, recording.archive, recording.progress, PRODUCT)
    client[mongo.name].products.insert_one({"_id": "p1", "name": SECRET})
    before = await mongo.count("products.versions", {})
    with pytest.raises(ArchiveBehind):
        await purging.purge("p1", by=BY, why=WHY, limit_s=0.1)
    assert await mongo.count("products.versions", {}) == before
    assert await mongo.count("revstream.purges", {}) == 0
    await recording.record(fencing_token=2)
    purging = Purging(mongo, recording.archive, await at_rest(mongo, recording), PRODUCT)
    with pytest.raises(BadUserInput, match="p9: no versions"):
        await purging.purge("p9", by=BY, why=WHY)
    done = await purging.purge("p1", by=BY, why=WHY)
    assert (done.versions, done.version, done.exists) == (6, 7, True)


async def test_a_document_written_during_its_purge_is_purged(mongo: Mongo, client: Client) -> None:
    """Its chain is exact, the last version is the current document, and `verify` has no
    findings.
    """
    recording = await written(mongo, client, deleted=False)
    products = client[mongo.name].products

    written_to, purging, enough = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def write() -> None:
        # Not cancelled: the thread would continue, and write after the checks below.
        meanwhile = 0
        # Each write causes at most one more attempt, however slow the machine is.
        while not enough.is_set() and meanwhile < ATTEMPTS - 1:
            await asyncio.to_thread(products.update_one, {"_id": "p1"}, {"$inc": {"n": 1}})
            meanwhile += purging.is_set()
            written_to.set()
            await asyncio.sleep(0.05)

    async with recording.running(2) as task:
        writing = asyncio.create_task(write())
        try:
            await unless_ended(writing, written_to.wait())
            await recording.caught_up(task)
            purging.set()
            done = await purged(mongo, recording)
            assert done.versions >= 4
        finally:
            enough.set()
            await writing
        await recording.at_rest(task)
    records: list[Document] = [r for r in await recording.versions() if r["doc"] == "p1"]
    present = products.find_one({"_id": "p1"}) or {}
    assert records[-1]["full"]["n"] == present["n"]
    assert records[0]["cut"]["purge"]["at"] <= datetime.now(UTC)
    assert records[0]["cut"]["versions"] + len(records) == 5 + present["n"]
    assert await verified(mongo, "products") == []
