"""Findings of `verify`: none in a recorder's archive, and one for each kind of planted damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection

from revstream.gql.cli.verify import verify
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import COLLECTION as CHECKPOINTS
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError
from revstream.streams.layouts.factory import create_layout
from revstream.streams.maintenance.verification import Verification, VerificationResult
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.versioning.checksum import add_checksums
from tests.support.layouts import CLASSIC, layout_model, program
from tests.support.streams import Recording

Client = MongoClient[dict[str, Any]]
Records = Collection[dict[str, Any]]
ODD_IDS = [1, True, 2.5, "a", "$a", {"a": 1}, b"x", None]


async def recorded(mongo: Mongo, client: Client) -> Records:
    """Record documents with ids of all types, changed, deleted and reinserted."""
    recording = Recording(mongo)
    await recording.begin()
    things = client[mongo.name].things
    for n, key in enumerate(ODD_IDS):
        things.insert_one({"_id": key, "n": n, "in": {"a": 1, "b": [1, 2]}})
    for n in range(4):
        things.update_many({}, {"$set": {"in.a": n + 2, f"f{n}": 1.5}})
    things.update_one({"_id": "a"}, {"$set": {"version": 40}})
    with client.start_session() as session, session.start_transaction():
        things.delete_one({"_id": 1}, session=session)
        things.insert_one({"_id": 1, "again": True}, session=session)
    things.delete_one({"_id": "$a"})
    await recording.record()
    return client[mongo.name][recording.archive.name]


async def verified(mongo: Mongo, *, checkpoint: Checkpoint | None = None) -> VerificationResult:
    stored = checkpoint or await Checkpoints(mongo).load("recorder:things")
    archive = Archive(mongo, "things")
    return await Verification(mongo, archive, stored, version_field="version").run()


def outline(found: VerificationResult) -> list[tuple[str, Any, int | None]]:
    return [(each.kind, each.document, each.version) for each in found.findings]


async def test_an_archive_of_the_recorder_has_no_findings(mongo: Mongo, client: Client) -> None:
    """It has version fields, transactions, deletions and ids of all types."""
    records = await recorded(mongo, client)
    found = await verified(mongo)
    assert outline(found) == []
    assert found.documents == len(ODD_IDS)
    assert found.versions == records.count_documents({})


async def test_documents_are_checked_in_more_than_one_part(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any boundaries between the parts."""
    monkeypatch.setattr("revstream.streams.maintenance.verification._CHUNK", 2)
    await recorded(mongo, client)
    seen: list[int] = []
    stored = await Checkpoints(mongo).load("recorder:things")
    verification = Verification(mongo, Archive(mongo, "things"), stored, version_field="version")
    found = await verification.run(seen.append)
    assert outline(found) == []
    assert found.documents == len(ODD_IDS)
    assert seen == sorted(seen)
    assert len(seen) > 3


def forged(records: Records, *, chain: bool) -> None:
    """Replace the content of a version, with a valid checksum."""
    older, record = (records.find_one({"doc": "a", "v": v}) for v in (2, 3))
    assert older is not None
    assert record is not None
    record["full"]["in"]["a"] = 999
    content = RawBSONDocument(bson.encode(record["full"]), RAW)
    made = add_checksums(dict(record), content, older["chain"], kept=False)
    sealed = {**record}
    add_checksums(sealed, content, older["chain"], kept=False)
    change = {"full": record["full"], "sum": sealed["sum"]}
    records.update_one(
        {"_id": record["_id"]}, {"$set": change | ({"chain": made} if chain else {})}
    )


Damage = Callable[[Records], object]

DAMAGES: dict[str, tuple[Damage, set[tuple[str, Any, int | None]]]] = {
    "a version in the middle": (
        lambda records: records.delete_one({"doc": "a", "v": 3}),
        {("MISSING", "a", 4)},
    ),
    "the first version": (
        lambda records: records.delete_one({"doc": "a", "v": 1}),
        {("MISSING", "a", 2)},
    ),
    "the last version": (
        lambda records: records.delete_one({"doc": "a", "v": 40}),
        {("PRESENT", "a", 5)},
    ),
    "the body of a version": (
        lambda records: records.update_one({"doc": "a", "v": 3}, {"$set": {"full.n": 77}}),
        {("CONTENT", "a", 3), ("CONTENT", "a", 4), ("CHECKSUM", "a", 3)},
    ),
    "a value that the version has changed, as the next one does": (
        lambda records: records.update_one({"doc": "a", "v": 3}, {"$set": {"full.in.a": 999}}),
        {("CHECKSUM", "a", 3)},
    ),
    "the body of a deletion's predecessor": (
        lambda records: records.update_one({"doc": "$a", "v": 5}, {"$set": {"full.f3": 999}}),
        {("CHECKSUM", "$a", 5)},
    ),
    "an author": (
        lambda records: records.update_one({"doc": "a", "v": 3}, {"$set": {"by": "eve"}}),
        {("CHECKSUM", "a", 3)},
    ),
    "a first version's reason": (
        lambda records: records.update_one({"doc": "a", "v": 1}, {"$set": {"why": "so"}}),
        {("CHECKSUM", "a", 1)},
    ),
    "a body and its checksum": (
        lambda records: forged(records, chain=False),
        {("CHECKSUM", "a", 3)},
    ),
    "a body, its checksum and its chain": (
        lambda records: forged(records, chain=True),
        {("CHECKSUM", "a", 4)},
    ),
    "the type of a value": (
        lambda records: records.update_one({"doc": "a", "v": 3}, {"$set": {"full.n": 3.0}}),
        {("CONTENT", "a", 3), ("CONTENT", "a", 4), ("CHECKSUM", "a", 3)},
    ),
    "the body of the last version": (
        lambda records: records.update_one({"doc": "a", "v": 40}, {"$set": {"full.in.a": 77}}),
        {("CONTENT", "a", 40), ("PRESENT", "a", 40), ("CHECKSUM", "a", 40)},
    ),
    "the time of a version": (
        lambda records: records.update_one({"doc": "a", "v": 3}, {"$set": {"at": Timestamp(1, 1)}}),
        {("INTERVAL", "a", 2), ("CHECKSUM", "a", 3)},
    ),
    "a count": (
        lambda records: records.update_one({"doc": "a", "v": 5}, {"$set": {"v": 6}}),
        {("NUMBER", "a", 6), ("CHECKSUM", "a", 6)},
    ),
    "all versions of a document": (
        lambda records: records.delete_many({"doc": 2.5}),
        {("MISSING", 2.5, None)},
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_damage_is_reported_with_its_document_and_version(
    mongo: Mongo, client: Client, what: str
) -> None:
    """There are no other findings."""
    records = await recorded(mongo, client)
    damage, expected = DAMAGES[what]
    damage(records)
    assert set(outline(await verified(mongo))) == expected


async def test_a_document_that_changed_unseen_is_found(mongo: Mongo, client: Client) -> None:
    """It was deleted, inserted or changed while nothing was recorded."""
    await recorded(mongo, client)
    things = client[mongo.name].things
    things.delete_one({"_id": "a"})
    things.insert_one({"_id": "$a"})
    things.update_one({"_id": b"x"}, {"$set": {"n": 77}})
    now = resume_tokens.token_from_time(await mongo.operation_time())
    unseen = Checkpoint(now, now, Baseline(done=True))
    found = await verified(mongo, checkpoint=unseen)
    assert {(each.kind, each.document) for each in found.findings} == {
        ("PRESENT", "a"),
        ("PRESENT", "$a"),
        ("PRESENT", b"x"),
    }


async def test_unrecorded_writes_are_not_damage(mongo: Mongo, client: Client) -> None:
    """Current documents are read at the cluster time of the checkpoint."""
    await recorded(mongo, client)
    client[mongo.name].things.update_many({}, {"$set": {"later": True}})
    assert outline(await verified(mongo)) == []


async def test_a_checkpoint_within_a_transaction_is_not_damage(
    mongo: Mongo, client: Client
) -> None:
    """Writes of the transaction to other documents are recorded next."""
    records = await recorded(mongo, client)
    things = client[mongo.name].things
    with client.start_session() as session, session.start_transaction():
        things.update_one({"_id": "a"}, {"$set": {"n": 1}}, session=session)
        things.insert_one({"_id": "new"}, session=session)
        things.delete_one({"_id": b"x"}, session=session)
        things.update_one({"_id": None}, {"$set": {"n": 2}}, session=session)
    recording = Recording(mongo)
    await recording.record(fencing_token=2)
    first = records.find_one({"doc": "a", "full.n": 1})
    assert first is not None
    for record in list(records.find({"_id": {"$gt": first["_id"]}})):
        records.delete_one({"_id": record["_id"]})
    within = Checkpoint(first["_id"], first["_id"], Baseline(done=True))
    assert outline(await verified(mongo, checkpoint=within)) == []


async def test_a_recorder_that_is_far_behind_is_reported(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versions are checked all the same."""
    records = await recorded(mongo, client)
    records.delete_one({"doc": "a", "v": 3})

    async def too_old(*_: Any, **__: Any) -> Any:
        raise DatabaseError("MongoDB refused: the snapshot is gone", number=239)

    monkeypatch.setattr("revstream.streams.layouts.archive.read_documents", too_old)
    found = await verified(mongo)
    assert outline(found) == [("BEHIND", None, None), ("MISSING", "a", 4)]


async def test_the_check_waits_until_the_recorder_is_at_a_readable_time(
    mongo: Mongo, client: Client, mongo_uri: str
) -> None:
    """After a start of MongoDB, which reads at no earlier time, the checkpoint is of before it."""
    recording = Recording(mongo)
    await recording.begin()
    await recording.record()
    checkpoints = client[mongo.name][CHECKPOINTS]
    stored = checkpoints.find_one({"_id": "recorder:things"})
    assert stored is not None
    earlier = resume_tokens.token_from_time(Timestamp(1_700_000_000, 1))
    checkpoints.update_one({"_id": stored["_id"]}, {"$set": {"token": earlier}})

    def proceed() -> None:
        checkpoints.update_one({"_id": stored["_id"]}, {"$set": {"token": stored["token"]}})

    def report(*_: object) -> None:
        asyncio.get_running_loop().call_later(0.1, proceed)

    found = await verify(
        Settings(mongodb_uri=mongo_uri, database=mongo.name),
        read_model('type Thing @collection(name: "things") { id: ID! n: Int }'),
        mongo_uri,
        mongo.name,
        report,
    )
    assert outline(found["things"]) == []


async def test_an_archive_without_a_recorder_is_reported(mongo: Mongo) -> None:
    """There is nothing to check."""
    found = await verified(mongo)
    assert [each.kind for each in found.findings] == ["BEHIND"]
    assert found.versions == 0


async def test_versions_without_checksums_are_reported(mongo: Mongo, client: Client) -> None:
    """They are compared with their neighbours; the chain begins with the first checksum."""
    records = await recorded(mongo, client)
    assert (await verified(mongo)).unsealed == 0
    records.update_many({}, {"$unset": {"sum": "", "chain": ""}})
    client[mongo.name].things.update_many({}, {"$set": {"n": 1000}})
    await Recording(mongo).record(fencing_token=2)
    found = await verified(mongo)
    assert outline(found) == []
    assert found.unsealed == records.count_documents({"chain": {"$exists": False}}) > 0
    records.update_one({"doc": "a", "full.n": 1000}, {"$set": {"full.n": 1001}})
    assert ("CHECKSUM", "a", 41) in outline(await verified(mongo))


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_checksums_cover_contents_stored_as_deltas(mongo: Mongo, client: Client) -> None:
    """A changed delta damages all later versions up to the next full content."""
    recording = Recording(mongo, deltas=True)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "text": "x" * 500, "n": 0})
    for n in range(3):
        things.update_one({"_id": 1}, {"$set": {"n": n + 1}})
    await recording.record()
    found = await verified(mongo)
    assert (outline(found), found.unsealed) == ([], 0)
    records = client[mongo.name][recording.archive.name]
    assert records.count_documents({"patch": {"$exists": True}}) == 3
    records.update_one({"v": 1}, {"$set": {"full.text": "y" * 500}})
    assert set(outline(await verified(mongo))) >= {("CHECKSUM", 1, v) for v in (1, 2, 3, 4)}


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
@pytest.mark.parametrize("history", CLASSIC)
async def test_checksums_cover_contents_in_a_layout(
    mongo: Mongo, client: Client, history: str
) -> None:
    """Programs may move them; a version that is changed in its collection is found."""
    layout = create_layout(mongo, layout_model(history).entity("Product"))
    await layout.prepare()
    archive = Archive(mongo, "products", layout)
    recording = Recording(mongo, "products", version_field="v", archive=archive)
    await recording.begin()
    writes = program(history, client[mongo.name])
    for n in range(3):
        for key in ("a", "b"):
            writes.write(key, {"name": f"n{n}", "stock": n, "tags": ["x"]})
    await recording.record()

    async def found() -> VerificationResult:
        stored = await Checkpoints(mongo).load("recorder:products")
        return await Verification(mongo, archive, stored, version_field="v").run()

    assert (outline(await found()), (await found()).unsealed) == ([], 0)
    name = "products.previous" if history == "SEPARATE" else "products"
    if history == "EMBEDDED":
        client[mongo.name].products.update_one({"_id": "a"}, {"$set": {"prev.1.stock": 999}})
    else:
        change = {"$set": {"stock": 999}}
        client[mongo.name][name].update_one({"docId": "a", "v": 2}, change)
    assert ("CHECKSUM", "a", 2) in outline(await found())
