"""Collections of the model that do not exist.

The name may be a typo, so nothing is created before the first write; then everything that the model
requires is created.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bson import Decimal128, Timestamp
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from revstream.gql.cli.doctor import examine
from revstream.gql.cli.migrate import migrate
from revstream.gql.cli.verify import verify
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.streams.core.errors import Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording import coverage_writer
from tests.support.editing import Failed, lamp, open_shop, pick
from tests.support.eventually import eventually
from tests.support.layouts import CLASSIC, layout_model

Client = MongoClient[dict[str, Any]]
Row = dict[str, Any]

READS = """
query($at: TimePoint!) {
  products(first: 5, orderBy: [{name: ASC}]) { totalCount resumeToken nodes { id version } }
  productVersions(first: 5) { totalCount nodes { version diff { path } } }
  productsAsOf(asOf: $at, first: 5) { totalCount nodes { documentId } }
  product(id: "x") { version history { totalCount } drafts { totalCount } }
  productDrafts(first: 5) { totalCount nodes { number } }
  productComments(first: 5) { totalCount nodes { text } }
  streams { collection lagSeconds }
}
"""
AS_OF = "query($at: TimePoint!) { found: productsAsOf(asOf: $at) { totalCount } }"
SNAPSHOT = "subscription { productChanges(snapshot: true) { kind } }"
UNIQUE = ("docId", "v")


def names(database: Database[Row]) -> set[str]:
    """Return the collections, without revstream's own."""
    return {each for each in database.list_collection_names() if not each.startswith("revstream.")}


def images(database: Database[Row], name: str) -> bool:
    """Return whether the server stores post-images of the collection."""
    options = database[name].options()
    return bool(options.get("changeStreamPreAndPostImages", {}).get("enabled"))


def indexes(database: Database[Row], name: str) -> dict[tuple[str, ...], bool]:
    """Return by indexed fields whether the index is unique."""
    found = [
        (tuple(each["key"]), each.get("unique", False)) for each in database[name].list_indexes()
    ]
    return dict(sorted(found))


@pytest.mark.parametrize("history", ["ARCHIVE", *CLASSIC])
async def test_a_typo_creates_no_collection(
    mongo_uri: str, client: Client, database_name: str, history: str
) -> None:
    """Reads, subscriptions, refused operations, the start, and read-only commands create
    nothing.
    """
    database = client[database_name]
    database.product.insert_many([{"_id": "a"}, {"_id": "b"}])
    database.suppliers.insert_one({"_id": "s", "name": "Ann"})
    before = {*names(database), "suppliers.versions"}
    model = layout_model(history)
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        await shop.recorded()
        token = (await shop.ask("{ resumeToken }"))["resumeToken"]
        found = await shop.ask(READS, at={"token": token})
        assert found["products"]["totalCount"] == 0
        assert found["productsAsOf"]["totalCount"] == 0
        async with shop.changes(SNAPSHOT) as events:
            assert (await anext(events))["kind"] == "CHECKPOINT"
        for mutation in ("updateProduct", "deleteProduct"):
            more = {"patch": {"name": "x"}} if mutation == "updateProduct" else {}
            refused = await shop.mutate(mutation, id="x", **more)
            assert refused["__typename"] == "DocumentNotFound"
        settings = Settings()
        said = await examine(settings, model, mongo_uri, database_name, lambda *_: None)
        assert any("the collection 'products' does not exist" in each.text for each in said)
        checked = await verify(settings, model, mongo_uri, database_name, lambda *_: None)
        assert not checked["products"].findings
        if history != "ARCHIVE":
            with pytest.raises(Unsuitable, match="products: the collection does not exist"):
                await migrate(
                    settings, model, mongo_uri, database_name, lambda *_: None,
                    type_="Product", to="goods", finish=False,
                )  # fmt: skip
        await shop.recorded()
        assert names(database) == before


async def test_background_tasks_create_no_collection(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """Copies, sinks, retention and partitions of a missing collection create nothing."""
    model = read_model("""
        type Thing @collection(name: "things", partitions: 2, storage: DELTA, keep: "2 versions")
          @sink(url: "http://127.0.0.1:9/") {
          id: ID!
          otherId: ID
          other: Other @reference(by: "otherId")
          name: String @copy(of: "other.name")
        }
        type Other @collection(name: "others") {
          id: ID! name: String things: [Thing!]! @referencedBy(field: "otherId")
        }
    """)
    settings = Settings(sink_secrets="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")
    database = client[database_name]
    database.other.insert_one({})
    async with open_shop(client, mongo_uri, database_name, settings, model=model) as shop:
        await shop.recorded()
        assert len(shop.gateway.consumers) >= 2
        for retention, _ in shop.gateway.retentions:
            assert await retention.go_through() == 0
        # The Copier searches for its targets.
        database.others.insert_one({"_id": "o", "name": "a"})
        database.others.update_one({"_id": "o"}, {"$set": {"name": "b"}})
        await eventually(lambda: sum(each.versions for each, _ in shop.gateway.consumers) >= 2)
        await shop.recorded()
        assert names(database) == {"other", "others", "others.versions"}
        database.things.insert_one({"_id": "t", "otherId": "o"})
        await eventually(lambda: database.things.find_one({"_id": "t", "name": "b"}))
        await eventually(lambda: images(database, "things"))
        await shop.recorded()
        (first, *_) = database["things.versions"].find({"doc": "t"}).sort("v", 1)
        assert (first["v"], first["op"]) == (1, "INSERT")


async def test_unique_indexes_hold_from_the_first_mutation_on(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """They hold even if two gateways send the first one at once; history begins with the
    insertion.
    """
    database = client[database_name]
    async with (
        open_shop(client, mongo_uri, database_name) as one,
        open_shop(client, mongo_uri, database_name, begun=True) as other,
    ):
        made = await asyncio.gather(
            *(
                shop.mutate("createProduct", id=f"{n}", document=lamp("same"))
                for n, shop in enumerate([one, other] * 5)
            )
        )
        kinds = sorted(each["__typename"] for each in made)
        assert kinds == ["AlreadyExists"] * 9 + ["ProductWritten"]
        assert images(database, "products")
        assert indexes(database, "products")["sku",]
        (id_,) = (each["_id"] for each in database.products.find())
        assert pick(await one.history(id_), "version", "operation") == [(1, "INSERT")]
        assert {"products.drafts", "samples", "gauges"}.isdisjoint(names(database))
        assert await one.ask(AS_OF, at={"token": (await one.ask("{ resumeToken }"))["resumeToken"]})


@pytest.mark.parametrize("mutation", ["applyGauge", "applyGauges"])
async def test_the_first_event_creates_its_collection(
    mongo_uri: str, client: Client, database_name: str, mutation: str
) -> None:
    """Both mutations that apply events create it, with post-images."""
    database = client[database_name]
    given = {
        "applyGauge": 'id: "g", document: {sequence: 1, value: 2.5}) { __typename }',
        "applyGauges": 'events: [{id: "g", document: {sequence: 1, value: 2.5}}]) { applied }',
    }
    async with open_shop(client, mongo_uri, database_name) as shop:
        await shop.ask(f"mutation {{ {mutation}({given[mutation]} }}")
        assert images(database, "gauges")
        assert pick(await shop.history("g", "Gauge"), "version") == [1]


async def test_the_first_write_of_another_program_creates_images_and_indexes(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """They are created at once; earlier writes are recorded all the same, each version exactly."""
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name) as shop:
        before = (await shop.ask("{ resumeToken }"))["resumeToken"]
        product = {"_id": "p", **stored("s"), "tags": [], "attributes": {"a.b": [1, 2]}}
        database.products.insert_one(product)
        for n in range(20):
            database.products.update_one(
                {"_id": "p"}, {"$set": {"stock": n}, "$push": {"tags": str(n)}}
            )
        await eventually(
            lambda: images(database, "products") and ("sku",) in indexes(database, "products")
        )
        await shop.recorded()
        database.products.update_one({"_id": "p"}, [{"$set": {"stock": 77}}])
        with pytest.raises(DuplicateKeyError):
            database.products.insert_one({"_id": "q", **stored("s")})
        versions = await shop.history("p")
        assert pick(versions, "version", "gap") == [(n, False) for n in range(1, 23)]
        assert [each["document"]["stock"] for each in versions[1:-1]] == list(range(20))
        # The coverage begins before the collection existed.
        found = await shop.ask(AS_OF, at={"token": before})
        assert found["found"]["totalCount"] == 0
        assert {"products.drafts", "products.comments"}.isdisjoint(names(database))


async def test_duplicates_before_the_unique_index_are_reported(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """The recording process logs them; everything else is created."""
    database = client[database_name]
    model = read_model(
        'type Product @collection(name: "products") @index(fields: ["name"]) '
        "{ id: ID! sku: String @unique name: String }"
    )
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        database.products.insert_many([{"_id": "a", "sku": "s"}, {"_id": "b", "sku": "s"}])
        await eventually(lambda: "index products sku" in shop.gateway.troubles())
        assert indexes(database, "products") == {("_id",): False, ("name", "_id"): False}
        assert images(database, "products")


async def test_the_first_draft_and_comment_create_their_collections(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """The collections have indexes, also after the database was dropped."""
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name) as shop:
        for _ in range(2):
            id_ = await shop.create()
            await shop.recorded()
            assert {"products.drafts", "products.comments"}.isdisjoint(names(database))
            drafted = await shop.mutate("proposeProduct", id=id_, patch={"name": "x"})
            assert drafted["__typename"] == "ProductDrafted"
            assert indexes(database, "products.drafts")["doc", "number"]
            assert "products.comments" not in names(database)
            await shop.mutate("commentOnProduct", id=id_, version=1, text="why?")
            assert ("doc", "version", "draft") in indexes(database, "products.comments")
            client.drop_database(database_name)
            await eventually(lambda: images(database, "products"))
            await shop.recorded()


async def test_after_a_dropped_database_no_missing_collection_is_created(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """Only collections that existed are created again."""
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name) as shop:
        await shop.create()
        await shop.recorded()
        client.drop_database(database_name)
        await eventually(lambda: images(database, "products"))
        await shop.recorded()
        assert names(database) == {"products", "products.versions"}


@pytest.mark.parametrize("history", CLASSIC)
async def test_a_layout_checks_expected_versions_from_the_first_mutation_on(
    mongo_uri: str, client: Client, database_name: str, history: str
) -> None:
    """Its unique index is created with the collection."""
    database = client[database_name]
    model = layout_model(history)
    rows = "products.previous" if history == "SEPARATE" else "products"
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        id_ = await shop.create()
        assert images(database, "products")
        assert "products.previous" not in names(database)
        for n in range(2):
            changed = await shop.mutate(
                "updateProduct", id=id_, patch={"stock": n}, key=f"once {n}"
            )
            assert changed["__typename"] == "ProductWritten", changed
        assert (history == "EMBEDDED") == (UNIQUE not in indexes(database, rows))
        assert indexes(database, rows).get(UNIQUE, True)
        assert pick(await shop.history(id_), "version") == [1, 2, 3]


async def test_a_layout_checks_expected_versions_after_another_program_created_it(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """The index of the previous versions' collection is created once that collection exists."""
    database = client[database_name]
    model = layout_model("SEPARATE")
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        database.products.insert_one({"_id": "p", "v": 1, "name": "a", "stock": 1})
        await eventually(lambda: images(database, "products"))
        await shop.recorded()
        assert "products.previous" not in names(database)
        database["products.previous"].insert_one({"docId": "p", "v": 1, "name": "a", "stock": 1})
        database.products.update_one({"_id": "p"}, {"$set": {"v": 2, "stock": 2}})
        await eventually(lambda: indexes(database, "products.previous").get(UNIQUE))
        assert pick(await shop.history("p"), "version") == [1, 2]


async def _look_for_nothing(_: object) -> None: ...


async def test_the_search_for_missing_collections_is_rate_limited(
    mongo_uri: str, client: Client, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that only gets inserts may never have previous versions; not each batch
    searches.
    """
    monkeypatch.setattr("revstream.streams.recording.bootstrap.preparation._CHECK_S", 3600.0)
    # The statistics search for missing collections each second, which is not counted.
    statistics = "revstream.streams.mongo.read_statistics.ReadStatistics._look_for_new"
    monkeypatch.setattr(statistics, _look_for_nothing)
    database = client[database_name]
    model = layout_model("SEPARATE")
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        database.products.insert_one({"_id": "p", "v": 1, "name": "a", "stock": 1})
        await eventually(lambda: images(database, "products"))
        await shop.recorded()
        looked: list[Any] = []
        command = Mongo.command

        async def counted(self: Mongo, command_: Any, **more: Any) -> Any:
            looked.extend(each for each in command_ if each == "listCollections")
            return await command(self, command_, **more)

        monkeypatch.setattr(Mongo, "command", counted)
        for n in range(5):
            database.products.insert_one({"_id": n, "v": 1, "name": "a", "stock": 1})
            await shop.recorded()
        assert looked == []


async def test_rows_that_violate_a_layout_stop_only_their_collection(
    mongo_uri: str, client: Client, database_name: str
) -> None:
    """Two rows with one number precede the index; once one is deleted, recording begins."""
    database = client[database_name]
    model = layout_model("DOCUMENT_PER_VERSION")
    async with open_shop(client, mongo_uri, database_name, model=model) as shop:
        row = {"docId": "p", "v": 1, "name": "a", "stock": 1}
        database.products.insert_many([{"_id": n, **row} for n in range(2)])
        await eventually(lambda: "recorder:products" in shop.gateway.troubles())
        assert "no unique index" in shop.gateway.troubles()["recorder:products"]
        database.suppliers.insert_one({"_id": "s", "name": "Ann"})
        await eventually(lambda: database["suppliers.versions"].find_one({"doc": "s"}))
        database.products.delete_one({"_id": 1})
        await eventually(lambda: not shop.gateway.troubles())
        assert pick(await shop.history("p"), "version") == [1]


async def test_the_coverage_of_a_missing_collection_begins_at_the_start(
    mongo_uri: str, client: Client, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing collection and an empty one have the same coverage."""

    async def rolled_over(mongo: Mongo) -> bool:
        return False

    monkeypatch.setattr(coverage_writer, "_holds_everything", rolled_over)
    async with open_shop(client, mongo_uri, database_name, begun=True) as shop:
        await shop.recorded()
        token = (await shop.ask("{ resumeToken }"))["resumeToken"]
        assert (await shop.ask(AS_OF, at={"token": token}))["found"]["totalCount"] == 0
        with pytest.raises(Failed) as refused:
            await shop.ask(AS_OF, at={"time": "1980-01-01T00:00:00.000Z"})
        assert refused.value.code == "HISTORY_LOST"
        assert not names(client[database_name])


def stored(sku: str) -> Row:
    """Return a product as another program writes it."""
    return {"sku": sku, "name": "Lamp", "price": Decimal128("1.5"), "stock": 1, "tags": []}


async def test_the_creation_of_a_collection_fails_no_read(
    mongo_uri: str, client: Client, database_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses reads at a time before the creation: they are repeated, or use the
    archive.
    """
    database = client[database_name]
    async with open_shop(client, mongo_uri, database_name) as shop:
        mongo = shop.gateway.mongo
        asked = mongo.operation_time
        stale: list[Timestamp] = []

        async def before_the_collection() -> Timestamp:
            return stale.pop() if stale else await asked()

        monkeypatch.setattr(mongo, "operation_time", before_the_collection)
        now = await asked()
        database.create_collection("samples")
        stale.append(now)
        refused = await shop.mutate("deleteSample", id="x", expectedVersion=1)
        assert refused["__typename"] == "DocumentNotFound"
        now = await asked()
        database.create_collection("products")
        stale.extend([now] * 10)
        async with shop.changes(SNAPSHOT) as events:
            assert (await anext(events))["kind"] == "CHECKPOINT"
