"""`expectedVersion`: a write replaces exactly that version's content, whoever wrote in between, and
takes no further round trip without a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient, monitoring

from tests.integration.conftest import Commands, listen
from tests.support.editing import Shop, open_shop, pick, without

pytestmark = pytest.mark.asyncio(loop_scope="module")

Client = MongoClient[dict[str, Any]]


class ProductCommands(Commands):
    """Commands for the collection of products; recorders and leases send others all the time."""

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command.get(event.command_name) == "products":
            super().started(event)


@pytest.fixture(scope="module")
def sent() -> ProductCommands:
    """Return the command counter that the gateway shares."""
    return ProductCommands()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: Client, sent: ProductCommands) -> AsyncIterator[Shop]:
    """Run a gateway whose commands are counted."""
    with pytest.MonkeyPatch.context() as patch:
        listen(patch, sent)
        name = f"swaps_{uuid4().hex[:8]}"
        async with open_shop(client, mongo_uri, name) as opened:
            yield opened
    client.drop_database(name)


async def test_a_conflict_contains_expected_version_and_current_document(shop: Shop) -> None:
    """The current document has its own identity in client caches."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
    result = await shop.mutate("updateProduct", id=id_, expectedVersion=1, patch={"name": "x"})
    assert (result["expectedVersion"], result["actualVersion"]) == (1, 2)
    assert without(result["current"], "nodeId") == await shop.present(id_)
    assert result["current"]["name"] == "Torch"


@pytest.mark.parametrize("entity", ["Product", "Sample"])
@pytest.mark.parametrize("mutation", ["update", "replace", "delete", "restore"])
async def test_a_write_without_a_version_increment_is_not_overwritten(
    shop: Shop, entity: str, mutation: str
) -> None:
    """The version field does not show that write, or does not exist."""
    id_ = await shop.create(entity)
    collection = shop.database[f"{entity.lower()}s"]
    collection.update_one({"_id": id_}, {"$set": {"name": "plain"}})
    given: dict[str, Any] = {
        "update": {"patch": {"stock": 1}},
        "replace": {"document": {**(await document(shop, id_, entity)), "stock": 1}},
        "delete": {},
        "restore": {"version": 1},
    }[mutation]
    result = await shop.mutate(f"{mutation}{entity}", id=id_, expectedVersion=1, **given)
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 2)
    assert (collection.find_one({"_id": id_}) or {})["name"] == "plain"
    result = await shop.mutate(f"{mutation}{entity}", id=id_, expectedVersion=2, **given)
    assert (result["__typename"], result["version"]) == (f"{entity}Written", 3)


async def test_a_write_with_a_version_increment_is_not_overwritten(shop: Shop) -> None:
    """The next write continues from its number."""
    id_ = await shop.create()
    plain = {"$set": {"name": "plain"}, "$inc": {"version": 1}}
    shop.database["products"].update_one({"_id": id_}, plain)
    result = await shop.mutate("updateProduct", id=id_, expectedVersion=1, patch={"stock": 1})
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 2)
    result = await shop.mutate("updateProduct", id=id_, expectedVersion=2, patch={"stock": 1})
    assert (result["version"], result["product"]["name"]) == (3, "plain")


async def test_a_stale_write_that_is_also_invalid_is_a_conflict(shop: Shop) -> None:
    """Conditions of a write apply to the expected version."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, expectedVersion=1, patch={"stock": 6})
    shop.database["products"].update_one({"_id": id_}, {"$set": {"name": "plain"}})
    patch = {"dimensions": {"width": 1}}
    result = await shop.mutate("updateProduct", id=id_, expectedVersion=2, patch=patch)
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 3)
    result = await shop.mutate("updateProduct", id=id_, expectedVersion=3, patch=patch)
    assert (result["__typename"], result["path"]) == ("InvalidDocument", "dimensions.height")


async def test_a_restored_state_is_not_the_expected_version(shop: Shop) -> None:
    """Equal content is another version: two writes that cancel out are a conflict."""
    id_ = await shop.create("Sample")
    for name in ("other", "Lamp"):
        await shop.mutate("updateSample", id=id_, patch={"name": name})
    result = await shop.mutate("updateSample", id=id_, expectedVersion=1, patch={"stock": 1})
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 3)


@pytest.mark.parametrize("entity", ["Product", "Sample"])
@pytest.mark.parametrize(
    "content",
    [
        {"stock": 5, "tags": [], "price": 1, "name": "n", "sku": "order"},
        {"legacy": {"b": 1, "a": {"$x": 1.0}}, "sku": "more", "stock": 1.0, "": {"a.b": None}},
        {"sku": "empty", "legacy": float("nan"), "list": [[{"z": 1, "a": 2}]]},
    ],
    ids=["another order", "unmodelled fields", "odd values"],
)
async def test_documents_of_other_programs_are_compared_unchanged(
    shop: Shop, entity: str, content: dict[str, Any]
) -> None:
    """The comparison works with any order of fields and any further fields."""
    id_ = shop.fresh_id()
    collection = shop.database[f"{entity.lower()}s"]
    collection.insert_one({"_id": id_, **content})
    collection.update_one({"_id": id_}, {"$set": {"added_last": 1}, "$unset": {"tags": 1}})
    text = f"""
      mutation($id: ID!, $number: Int) {{
        result: update{entity}(id: $id, expectedVersion: $number, patch: {{name: "compared"}}) {{
          __typename ... on VersionConflict {{ actualVersion }} }} }}
    """
    conflict = (await shop.ask(text, id=id_, number=1))["result"]
    assert conflict == {"__typename": "VersionConflict", "actualVersion": 2}
    written = (await shop.ask(text, id=id_, number=2))["result"]
    assert written == {"__typename": f"{entity}Written"}


async def test_one_of_many_writes_with_the_same_expected_version_succeeds(shop: Shop) -> None:
    """The others get the conflict."""
    id_ = await shop.create()
    results = await asyncio.gather(
        *(
            shop.mutate("updateProduct", id=id_, expectedVersion=1, patch={"name": f"n{n}"})
            for n in range(8)
        )
    )
    kinds = sorted(each["__typename"] for each in results)
    assert kinds == ["ProductWritten", *["VersionConflict"] * 7]
    assert pick(await shop.history(id_), "version") == [1, 2]


async def test_an_update_is_one_command(shop: Shop, sent: ProductCommands) -> None:
    """Without an expected version there is no read before the update and none after it."""
    id_ = await shop.create()
    await shop.recorded()
    text = 'mutation($id: ID!) { updateProduct(id: $id, patch: {name: "x"}) { __typename } }'
    with sent.counting() as names:
        await shop.ask(text, id=id_)
    assert names == ["findAndModify"]


async def test_an_update_after_an_own_write_is_one_command(
    shop: Shop, sent: ProductCommands
) -> None:
    """The process knows its own last write; the result has the version and the whole document."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, expectedVersion=1, patch={"name": "first"})
    with sent.counting() as names:
        result = await shop.mutate(
            "updateProduct", id=id_, expectedVersion=2, patch={"name": "second"}
        )
    assert (result["version"], result["product"]["name"]) == (3, "second")
    assert names == ["findAndModify"]


async def document(shop: Shop, id_: str, entity: str) -> dict[str, Any]:
    found = await shop.present(id_, entity)
    assert found is not None
    return without(found, "id", "version", "sold", "dimensions")


async def test_a_clone_has_a_history_of_its_own(shop: Shop) -> None:
    """Its history begins with version 1 and no author, and its version field continues from its
    value.

    The expected version is the archive's number.
    """
    id_ = await shop.create()
    products, clone = shop.database["products"], shop.fresh_id()
    products.update_one({"_id": id_}, {"$set": {"version": 54}})
    await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
    products.insert_one((products.find_one({"_id": id_}) or {}) | {"_id": clone, "sku": clone})
    await shop.recorded()
    text = (
        "query($id: ID!) { product(id: $id) { version "
        "history(first: 9) { nodes { version author comment } } } }"
    )
    found = (await shop.ask(text, id=clone))["product"]
    assert found["version"] == 1
    assert found["history"]["nodes"] == [{"version": 1, "author": None, "comment": None}]
    result = await shop.mutate("updateProduct", id=clone, expectedVersion=55, patch={"stock": 1})
    assert (result["__typename"], result["actualVersion"]) == ("VersionConflict", 1)
    for number in (1, 2):
        result = await shop.mutate(
            "updateProduct", id=clone, expectedVersion=number, patch={"stock": number}
        )
        assert result["version"] == number + 1
        assert (products.find_one({"_id": clone}) or {})["version"] == 55 + number
    result = await shop.mutate("updateProduct", id=clone, patch={"stock": 9})
    assert result["version"] == 4
    await shop.recorded()
    assert (await shop.ask(text, id=clone))["product"]["version"] == 4
