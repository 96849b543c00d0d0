"""Contents that are stored outside their records: as deltas to earlier ones, or in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from revstream.model.definition import Storage
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.history.collection_as_of import CollectionAsOf
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.core.errors import DamagedArchive
from revstream.streams.maintenance.verification import Verification
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.content_encoding import KEYFRAME_EVERY
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at, nothing_written
from tests.support.shop import PRODUCT, SHOP
from tests.support.streams import Recording

Client = MongoClient[dict[str, Any]]
Records = Collection[dict[str, Any]]
ON_MOTOR = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

PACKED = replace(PRODUCT, storage=Storage.DELTA)
LONG = "what does not change " * 20


async def written(mongo: Mongo, versions: int = 50) -> Scribe:
    """Write two documents with small changes; one is deleted and reinserted."""
    scribe = Scribe(mongo, PACKED)
    for n in range(versions):
        gone = n == versions // 2
        scribe.write("a", None if gone else {"name": LONG, "stock": n}, at(n))
        scribe.write("b", {"name": LONG, "stock": -n, "tags": list(map(str, range(n)))}, at(n, 2))
    await scribe.save()
    return scribe


def contents(scribe: Scribe) -> list[dict[str, Any] | None]:
    """Return the content of every version, in stream order."""
    return [None if r["full"] is None else dict(r["full"].items()) for r in scribe.records]


@ON_MOTOR
async def test_a_version_is_reconstructed_from_a_limited_number_of_others(
    mongo: Mongo, client: Client
) -> None:
    """Full contents are stored at intervals and after a deletion, with deltas between them."""
    scribe = await written(mongo)
    records = list(client[mongo.name]["products.versions"].find().sort("v"))
    assert len(records) == 100
    whole = {key: [r["v"] for r in records if r["doc"] == key and "full" in r] for key in "ab"}
    assert whole == {"a": [1, 21, 26, 27, 47], "b": [1, 21, 41]}
    for record in records:
        assert record.get("depth", 0) < KEYFRAME_EVERY
        if "patch" in record:
            assert record["keyframe"] == max(v for v in whole[record["doc"]] if v < record["v"])
    found = await scribe.archive.scan("", "~", limit=1000)
    assert [each["full"] for each in found] == contents(scribe)


async def test_contents_take_one_more_read_for_any_number_of_versions(
    counted: Mongo, commands: Commands
) -> None:
    """This holds for all ways to read versions."""
    scribe = await written(counted)
    history = VersionHistory(counted, {"products": scribe.archive}, nothing_written())
    wanted = [(key, number) for key in "ab" for number in (50, 3, 21, 22, 40)]
    keys = [(each["doc"], each["v"]) for each in scribe.records]
    expected = dict(zip(keys, contents(scribe), strict=True))
    with commands.counting() as started:
        found = await history.by_number(PACKED, wanted, frozenset({"name", "stock", "tags"}))
    assert started == ["find", "find"]
    assert [each and each.full for each in found] == [expected[each] for each in wanted]
    with commands.counting() as started:
        numbers = await history.by_number(PACKED, wanted, None)
    assert started == ["find"]
    assert all(each is not None and each.full is None for each in numbers)
    with commands.counting() as started:
        (page, _) = await history.pages_of(
            PACKED,
            ["a", "b"],
            PageQuery(where=None, page=PageRequest(first=30), fields=frozenset({"stock"})),
        )
    assert started == ["aggregate", "find"]
    assert [each.full and each.full["stock"] for each in page.items][:3] == [49, 48, 47]


@ON_MOTOR
async def test_a_storage_can_be_changed_and_changed_again(mongo: Mongo, client: Client) -> None:
    """Existing versions stay unchanged; each record has the place of its content."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    await Recording(mongo).begin()
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "name": LONG, "n": 0})
    storages = []
    for n, deltas in enumerate([False, True, True, False, True], 1):
        things.update_one({"_id": 1}, {"$set": {"n": n}})
        records = await Recording(mongo, deltas=deltas).record(fencing_token=n)
        storages.append("patch" in records[-1])
    assert storages == [False, True, True, False, True]
    found = await Recording(mongo).archive.newest([{"key": 1}], limit=10)
    assert [each["full"] for each in found] == [
        {"_id": 1, "name": LONG, "n": n} for n in (5, 4, 3, 2, 1, 0)
    ]


@ON_MOTOR
async def test_the_largest_document_is_stored_in_parts(mongo: Mongo, client: Client) -> None:
    """Its record has no room for it; it is read, filtered and verified all the same."""
    await mongo.command({"create": "products"})
    recording = Recording(mongo, "products")
    await recording.begin()
    products = client[mongo.name].products
    large = "x" * (16 * 1024 * 1024 - 60)
    products.insert_one({"_id": "a", "stock": 1, "name": large})
    products.insert_one({"_id": "b", "stock": 2, "name": "small"})
    products.update_one({"_id": "a"}, {"$set": {"stock": 3}})
    records = await recording.record()
    assert [each.get("parts") for each in records] == [2, None, 2]
    found = await recording.archive.newest([{"key": "a"}], limit=2)
    assert [(each["full"]["stock"], each["full"]["name"] == large) for each in found] == [
        (3, True),
        (1, True),
    ]
    for said, order, expected in (
        ({"name": {"ne": "small"}}, (), ["a"]),
        (None, (("stock", "DESC"),), ["a", "b"]),
    ):
        where = None if said is None else parse_where(SHOP, PRODUCT, said)
        reading = CollectionAsOf(
            mongo,
            recording.archive,
            PRODUCT,
            records[-1]["at"],
            PageQuery(
                where=where,
                order=order,
                page=PageRequest(first=5),
                fields=frozenset({"stock"}),
                total=True,
            ),
        )
        page = await reading.page()
        assert [each.document for each in page.items] == expected
        assert page.total == len(expected)
    assert (await verified(recording)).findings == []


Damage = Callable[[Records], object]
DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "a keyframe that is gone": (lambda records: records.delete_one({"v": 1}), {"MISSING"}),
    "a patch that is gone": (
        lambda records: records.delete_one({"v": 3}),
        {"MISSING", "CONTENT"},
    ),
    "a patch of something else": (
        lambda records: records.update_one({"v": 3}, {"$set": {"patch": {"unset": ["none"]}}}),
        {"CONTENT"},
    ),
    "a patch that says something else": (
        lambda records: records.update_one({"v": 3}, {"$set": {"patch": {"set": {"m": 1}}}}),
        {"CONTENT"},
    ),
    "a wrong keyframe": (
        lambda records: records.update_one({"v": 3}, {"$set": {"keyframe": 2}}),
        {"CONTENT"},
    ),
}


async def verified(recording: Recording) -> Any:
    stored = await Checkpoints(recording.mongo).load(recording.name)
    checked = Verification(
        recording.mongo, recording.archive, stored, version_field=recording.version_field
    )
    return await checked.run()


@ON_MOTOR
@pytest.mark.parametrize("what", DAMAGES)
async def test_a_damaged_version_is_an_error(mongo: Mongo, client: Client, what: str) -> None:
    """It is never read as another content."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    recording = Recording(mongo, deltas=True)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "name": LONG, "n": 0})
    for n in range(1, 5):
        things.update_one({"_id": 1}, {"$set": {"n": n}})
    await recording.record()
    assert (await verified(recording)).findings == []
    damage, kinds = DAMAGES[what]
    damage(client[mongo.name]["things.versions"])
    found = await verified(recording)
    assert kinds <= {each.kind for each in found.findings}
    if "says something else" not in what:
        with pytest.raises(DamagedArchive, match="run `revstream verify`"):
            await recording.archive.find({"v": 3 if "that is gone" not in what else 4})
