"""Restoration: the whole content of an old version becomes a new version."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64, Regex

from tests.support.editing import Shop, lamp, pick, without
from tests.support.plain_model import canonical

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Fields outside the model, and values that look equal.
UNMODELLED: dict[str, Any] = {
    "legacy": {"$a": 1, "a.b": [1.0, Int64(1), True, None]},
    "pattern": Regex("^a", "i"),
    "exact": Decimal128("1.10"),
    "stock": 5.0,
}


def stored(shop: Shop, id_: str) -> dict[str, Any]:
    found = shop.database["products"].find_one({"_id": id_})
    assert found is not None
    return without(found, "_change", "version")


async def test_restore_writes_the_whole_content_with_its_types(shop: Shop) -> None:
    """Fields outside the model are restored, too, and newer fields are removed."""
    id_ = await shop.create()
    shop.database["products"].update_one({"_id": id_}, {"$set": UNMODELLED})
    before = stored(shop, id_)
    await shop.recorded()
    shop.database["products"].replace_one({"_id": id_}, {"sku": id_, "other": 1})
    result = await shop.mutate("restoreProduct", id=id_, version=2, comment="back")
    assert (result["__typename"], result["version"]) == ("ProductWritten", 4)
    assert canonical(stored(shop, id_)) == canonical(before)


async def test_restore_recreates_a_deleted_document_and_continues_its_numbers(shop: Shop) -> None:
    """Its earlier versions belong to the same document."""
    id_ = await shop.create()
    shop.database["products"].update_one({"_id": id_}, {"$set": UNMODELLED})
    before = stored(shop, id_)
    await shop.mutate("deleteProduct", id=id_)
    result = await shop.mutate("restoreProduct", id=id_, version=2)
    assert (result["version"], result["product"]["version"]) == (4, 4)
    assert canonical(stored(shop, id_)) == canonical(before)
    await shop.mutate("updateProduct", id=id_, expectedVersion=4, patch={"name": "after"})
    assert pick(await shop.history(id_), "version", "operation", "restoredFrom") == [
        (1, "INSERT", None),
        (2, "UPDATE", None),
        (3, "DELETE", None),
        (4, "INSERT", 2),
        (5, "UPDATE", None),
    ]


async def test_restore_is_a_replacement_in_history(shop: Shop) -> None:
    """This holds for any form of the write in the oplog."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"stock": 6})
    await shop.mutate("restoreProduct", id=id_, version=1)
    last = (await shop.history(id_))[-1]
    assert (last["operation"], last["restoredFrom"], last["changedFields"]) == (
        "REPLACE",
        1,
        ["stock"],
    )


async def test_restore_checks_the_expected_version(shop: Shop) -> None:
    """Existing documents and deletions are checked."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"stock": 6})
    result = await shop.mutate("restoreProduct", id=id_, version=1, expectedVersion=1)
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 2)
    await shop.mutate("deleteProduct", id=id_)
    result = await shop.mutate("restoreProduct", id=id_, version=1, expectedVersion=2)
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 3)
    result = await shop.mutate("restoreProduct", id=id_, version=1, expectedVersion=3)
    assert result["version"] == 4


@pytest.mark.parametrize("version", [2, 9, 0, -1])
async def test_deletions_and_unknown_versions_cannot_be_restored(shop: Shop, version: int) -> None:
    """The message distinguishes them."""
    id_ = await shop.create()
    await shop.mutate("deleteProduct", id=id_)
    result = await shop.mutate("restoreProduct", id=id_, version=version)
    assert result["__typename"] == "DocumentNotFound"
    assert ("deletion" in result["message"]) == (version == 2)


async def test_restore_refuses_a_unique_value_that_was_taken_meanwhile(shop: Shop) -> None:
    """Existing and deleted documents are refused alike."""
    id_ = await shop.create()
    await shop.mutate("deleteProduct", id=id_)
    await shop.mutate("createProduct", document=lamp(id_))
    result = await shop.mutate("restoreProduct", id=id_, version=1)
    assert (result["__typename"], result["path"]) == ("AlreadyExists", "sku")


async def test_an_unrecorded_version_can_be_restored(
    shop: Shop,
) -> None:
    """The mutation waits for the recorder."""
    id_ = await shop.create()
    for name in ("one", "two", "three"):
        shop.database["products"].update_one({"_id": id_}, {"$set": {"name": name}})
    result = await shop.mutate("restoreProduct", id=id_, version=3)
    assert (result["product"]["name"], result["version"]) == ("two", 5)
