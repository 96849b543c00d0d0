"""Post-images and indexes of a collection that was dropped or replaced by another one."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from tests.support.editing import open_shop
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]
MODEL = read_model("""
type Thing @collection(name: "things") @index(fields: ["n"]) {
  id: Int!
  sku: String @unique
  n: Int
}
""")
BUILDING = 12587
IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


def complete(database: Database[dict[str, Any]]) -> bool:
    """Return whether all that the model requires exists."""
    found = list(database.things.list_indexes())
    keys = {tuple(each["key"]): each.get("unique", False) for each in found}
    expected = {("_id",): False, ("sku",): True, ("n", "_id"): False}
    return keys == expected and database.things.options().get(*IMAGES) == {"enabled": True}


def renamed(database: Database[dict[str, Any]], name: str) -> bool:
    """Rename it; returns False while an index is being built."""
    try:
        database.things.rename(name)
    except OperationFailure as exc:
        if exc.code != BUILDING:
            raise
        return False
    return True


async def test_post_images_and_indexes_are_recreated_after_a_drop(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """They exist before the first write, also after a drop of the database."""
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name, Settings(), model=MODEL):
        for drop in (database.things.drop, lambda: client.drop_database(database_name)):
            database.things.insert_one({"_id": 1, "sku": "a"})
            drop()
            await eventually(lambda: complete(database))
            assert database.things.count_documents({}) == 0


async def test_a_replacing_collection_gets_post_images_and_indexes(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """It is renamed over the old one, or in two steps without conflict in between."""
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name, Settings(), model=MODEL) as shop:
        database.other.insert_one({"_id": 1, "sku": "a"})
        database.other.rename("things", dropTarget=True)
        await eventually(lambda: complete(database))
        await eventually(lambda: renamed(database, "old"))
        await shop.recorded()
        assert "things" not in database.list_collection_names()
        database.new.insert_one({"_id": 2, "sku": "b"})
        database.new.rename("things")
        await eventually(lambda: complete(database))
        await eventually(lambda: renamed(database, "older"))
        await shop.recorded()
        database.things.insert_one({"_id": 3, "sku": "c"})
        await eventually(lambda: complete(database))
