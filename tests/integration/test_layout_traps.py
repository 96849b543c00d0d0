"""Rules that are specific to one layout."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.resolvers.admin.purge import Purging
from revstream.resolvers.errors import BadUserInput
from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import Unsuitable
from revstream.streams.layouts.core.stored_version import ConcurrentWrite
from revstream.streams.layouts.factory import create_layout
from revstream.streams.layouts.self_versioned.deltas import WHOLE_EVERY
from revstream.streams.layouts.self_versioned.separate import SeparateLayout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import write
from tests.support.editing import Shop, lamp, open_shop, pick
from tests.support.eventually import eventually
from tests.support.layouts import CLASSIC, layout_model, program
from tests.support.streams import Recording

Client = MongoClient[dict[str, Any]]


@asynccontextmanager
async def opened(history: str, uri: str, client: Client) -> AsyncIterator[Shop]:
    name = f"layout_{uuid4().hex[:8]}"
    async with open_shop(client, uri, name, model=layout_model(history)) as shop:
        yield shop
    client.drop_database(name)


@pytest.mark.parametrize("history", ["DOCUMENT_PER_VERSION", "CURRENT_FLAG", "SEPARATE", "DELTAS"])
async def test_repeated_version_numbers_stop_the_start(
    history: str, mongo_uri: str, client: Client
) -> None:
    """The gateway does not start, and the message has the reason."""
    name = f"layout_{uuid4().hex[:8]}"
    twice = "products.previous" if history == "SEPARATE" else "products"
    client[name][twice].insert_many([{"docId": "a", "v": 1}, {"docId": "a", "v": 1}])
    async with Mongo.connect(mongo_uri, name) as mongo:
        layout = create_layout(mongo, layout_model(history).entity("Product"))
        with pytest.raises(Unsuitable, match=f"{twice}: no unique index on {{docId, v}}"):
            await layout.prepare()
        client[name][twice].drop()
        # An existing index with any name is used.
        client[name][twice].create_index([("docId", -1), ("v", 1)], unique=True, name="mine")
        await layout.prepare()
    client.drop_database(name)


async def test_an_embedded_history_beyond_the_size_limit_is_refused(
    mongo_uri: str, client: Client
) -> None:
    """EMBEDDED: the mutation is refused before the server would, and nothing is written."""
    async with opened("EMBEDDED", mongo_uri, client) as shop:
        id_ = await shop.create()
        texts = [letter * (5 * 1024 * 1024) for letter in "abcd"]
        for text in texts[:3]:
            written = await shop.mutate("updateProduct", id=id_, patch={"name": text})
            assert written["__typename"] == "ProductWritten"
        refused = await shop.mutate("updateProduct", id=id_, patch={"name": texts[3]})
        assert refused["__typename"] == "InvalidDocument"
        assert "would be larger than 16 MB: " in (refused["message"])
        small = await shop.mutate("updateProduct", id=id_, patch={"name": "small"})
        assert small["version"] == 5


async def test_previous_versions_that_are_not_a_list_refuse_a_write(
    mongo_uri: str, client: Client
) -> None:
    """EMBEDDED: the error has the stored value, which stays."""
    async with opened("EMBEDDED", mongo_uri, client) as shop:
        id_ = await shop.create()
        shop.database.products.update_one({"_id": id_}, {"$set": {"prev": {"v": 0}}})
        refused = await shop.mutate("updateProduct", id=id_, patch={"name": "new"})
        assert refused["__typename"] == "InvalidDocument"
        assert "prev is of type object, expected a list" in refused["message"]
        stored = shop.database.products.find_one({"_id": id_})
        assert stored is not None
        assert stored["prev"] == {"v": 0}


async def test_deltas_contain_changes_with_full_states_between(
    mongo_uri: str, client: Client
) -> None:
    """Removed fields are included; a version is reconstructed from a limited number of others."""
    async with opened("DELTAS", mongo_uri, client) as shop:
        id_ = await shop.create()
        await shop.mutate("updateProduct", id=id_, patch={"tags": None, "name": "Torch"})
        count = WHOLE_EVERY + 5
        for _ in range(count):
            await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
        rows = list(shop.database.products.find({"docId": id_}).sort("v"))
        assert rows[1]["unset"] == ["tags"]
        assert set(rows[1]) == {"_id", "docId", "v", "name", "unset", "_change"}
        assert set(rows[2]) == {"_id", "docId", "v", "stock", "_change"}
        whole = [each["v"] for each in rows if each.get("whole")]
        assert whole == [1, 1 + WHOLE_EVERY]
        present = await shop.present(id_)
        assert present is not None
        assert (present["stock"], present["name"], present["tags"]) == (5 + count, "Torch", None)
        versions = await shop.history(id_)
        assert [each["document"]["stock"] for each in versions[2:]] == list(range(6, 6 + count))
        assert pick([each["document"] for each in versions], "tags")[:2] == [["new"], None]


async def test_a_version_after_a_higher_one_was_never_current(
    mongo_uri: str, client: Client
) -> None:
    """DOCUMENT_PER_VERSION: it is not a change of the document."""
    async with opened("DOCUMENT_PER_VERSION", mongo_uri, client) as shop:
        products = shop.database.products
        for number in (1, 3, 2, 4):
            products.insert_one({"docId": "a", "v": number, "name": str(number), "stock": 0})
        versions = await shop.history("a")
        assert pick(versions, "version") == [1, 3, 4]
        assert [each["document"]["name"] for each in versions] == ["1", "3", "4"]


async def test_changes_of_a_stored_version_are_not_versions(mongo_uri: str, client: Client) -> None:
    """Changes of the layout's own fields and of content cause no event and no record."""
    for history in CLASSIC:
        async with opened(history, mongo_uri, client) as shop:
            others = program(history, shop.database)
            others.write("a", {"name": "x", "stock": 1})
            shop.database.products.update_many({}, {"$set": {"note": "by hand"}})
            others.write("a", {"name": "x", "stock": 2})
            versions = await shop.history("a")
            assert pick(versions, "version", "operation") == [(1, "INSERT"), (2, "UPDATE")]


@pytest.mark.parametrize("history", CLASSIC)
async def test_a_history_in_a_layout_is_not_purged(
    history: str, mongo_uri: str, database_name: str
) -> None:
    """The command is refused, and the message says which program must do it."""
    entity = layout_model(history).entity("Product")
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        recording = Recording(
            mongo, archive=Archive(mongo, "products", create_layout(mongo, entity))
        )
        purging = Purging(mongo, recording.archive, recording.progress, entity)
        with pytest.raises(BadUserInput, match=f"is {history}, expected ARCHIVE"):
            await purging.purge("a", by="x", why="y")


async def test_partial_updates_among_previous_versions_are_not_versions(
    mongo_uri: str, client: Client
) -> None:
    """SEPARATE: an entry with another content than the current document is no version; writes
    succeed.
    """
    async with opened("SEPARATE", mongo_uri, client) as shop:
        id_ = await shop.create()
        previous = shop.database["products.previous"]
        previous.insert_one({"docId": id_, "v": 1, "name": "never so", "stock": 0})
        result = await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
        assert result["__typename"] == "ProductWritten"
        versions = await shop.history(id_)
        assert [each["document"]["name"] for each in versions] == ["Lamp", "Torch"]
        (row,) = previous.find({"docId": id_})
        assert (row["v"], row["name"]) == (1, lamp(id_)["name"])


async def test_a_document_with_previous_versions_only_is_deleted(
    mongo_uri: str, client: Client
) -> None:
    """SEPARATE: a new insertion continues its version numbers."""
    name = f"layout_{uuid4().hex[:8]}"
    rows = [{"docId": "a", "v": number, "name": "x", "stock": number} for number in (1, 2)]
    client[name]["products.previous"].insert_many(rows)
    model = layout_model("SEPARATE")
    async with open_shop(client, mongo_uri, name, model=model, empty=False) as shop:
        recorder = shop.gateway.recorders[0]
        await eventually(lambda: recorder.statistics()["baseline_done"], within_s=30)
        made = await shop.mutate("createProduct", id="a", document=lamp("a"))
        assert (made["__typename"], made["version"]) == ("ProductWritten", 4)
        versions = await shop.history("a")
        assert pick(versions, "version", "operation") == [
            (1, "BASELINE"),
            (2, "UPDATE"),
            (3, "DELETE"),
            (4, "INSERT"),
        ]
    client.drop_database(name)


async def begun(mongo: Mongo, client: Client) -> tuple[SeparateLayout, Any]:
    """Write a document at version 1; returns the layout and its empty previous versions."""
    layout = create_layout(mongo, layout_model("SEPARATE").entity("Product"))
    assert isinstance(layout, SeparateLayout)
    await layout.prepare()
    client[mongo.name].products.insert_one({"_id": "a", "v": 1, "name": "x", "stock": 1})
    return layout, client[mongo.name]["products.previous"]


RENAMING = [{"$set": {"name": "y"}}]


async def test_a_process_suspended_between_its_writes_changes_nothing(
    mongo_uri: str, client: Client, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEPARATE: a repair may have removed its entry among the previous versions."""
    monkeypatch.setattr("revstream.streams.layouts.self_versioned.separate.SETTLE_S", -60.0)
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        layout, previous = await begun(mongo, client)
        with pytest.raises(ConcurrentWrite):
            await write(mongo, lambda writing: layout.alter(writing, "a", RENAMING))
        assert await layout.recover(settle_s=0) == 1
        assert [each["name"] for each in await layout.find({})] == ["x"]
        assert previous.count_documents({}) == 0


async def test_an_existing_previous_version_is_confirmed(
    mongo_uri: str, client: Client, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEPARATE: a repair may have removed it meanwhile."""
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        layout, previous = await begun(mongo, client)
        previous.insert_one({"docId": "a", "v": 1, "name": "x", "stock": 1})
        put = layout._put

        async def put_and_lost(*given: Any) -> bool:
            found = await put(*given)
            previous.delete_many({})
            return found

        monkeypatch.setattr(layout, "_put", put_and_lost)
        await write(mongo, lambda writing: layout.alter(writing, "a", RENAMING))
        history = await layout.history("a")
        assert [each.content and each.content["name"] for each in history] == ["x", "y"]


async def test_two_current_flags_are_never_two_documents(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """CURRENT_FLAG: of three flags that crashes have left, the highest version is current."""
    async with Mongo.connect(mongo_uri, database_name) as mongo:
        layout = create_layout(mongo, layout_model("CURRENT_FLAG").entity("Product"))
        await layout.prepare()
        rows = [{"docId": "a", "v": n, "stock": n, "current": True} for n in (1, 2, 3)]
        client[database_name].products.insert_many(rows)
        for query, numbers in (({}, [3]), ({"stock": 2}, []), ({"_id": "a"}, [3])):
            assert [each["v"] for each in await layout.find(query)] == numbers
            assert await layout.count(query) == len(numbers)
        assert await layout.recover() == 1
        flagged = client[database_name].products.find({"current": True})
        assert [each["v"] for each in flagged] == [3]
        assert await layout.recover() == 0
