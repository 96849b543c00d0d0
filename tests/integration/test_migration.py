"""Migration of a collection from a classic layout to the archive, while it is in use: versions,
contents, tokens and numbers stay the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import click
import pytest
import pytest_asyncio
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from revstream.gql.cli.migrate import Move, migrate
from revstream.gql.runtime.configuration.settings import Settings
from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import HistoryLost, Unavailable, Unsuitable
from revstream.streams.core.traceparent import TRACEPARENT
from revstream.streams.maintenance.migration import Migration
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import KeptShop
from tests.support.editing import Shop, open_shop
from tests.support.layouts import CLASSIC, Program, layout_model
from tests.support.repeating import repeat_in_background

pytestmark = pytest.mark.asyncio(loop_scope="module")

Row = dict[str, Any]


def body(n: int) -> Row | None:
    """Return the document after its nth write; some writes delete it."""
    if n % 11 == 10:
        return None
    odd: Row = {} if n % 3 else {"tags": ["x", str(n)], "attributes": {"a.b": n, "$c": [None, 1.0]}}
    return {"name": f"Lamp {n}", "stock": n, **odd}


def migration(kept: KeptShop, to: str) -> Migration:
    gateway = kept.shop.gateway
    archive = Archive(gateway.mongo, "products", kept.layout)
    return Migration(gateway.mongo, archive, to, gateway.progress)


def fill(program: Program, kept: KeptShop, documents: int, writes: int) -> list[str]:
    ids = [kept.shop.fresh_id() for _ in range(documents)]
    for n in range(writes):
        for id_ in ids:
            program.write(id_, body(n))
    return ids


@pytest_asyncio.fixture(loop_scope="module")
async def unsealed(kept: KeptShop) -> AsyncIterator[KeptShop]:
    """Yield the shop for one test; afterwards its collection is writable again."""
    yield kept
    database = kept.shop.database
    for name in ("products", "products.previous"):
        if name in database.list_collection_names():
            database.command("collMod", name, validator={})


async def histories(shop: Shop, ids: list[str]) -> dict[str, Any]:
    return {id_: await shop.history(id_) for id_ in ids}


@pytest.mark.parametrize("kept", CLASSIC, indirect=True)
async def test_a_migration_under_writes_keeps_the_whole_history(
    unsealed: KeptShop, client: MongoClient[Row], mongo_uri: str
) -> None:
    """It may be interrupted; then the new collection is served and continues the numbers."""
    kept, to = unsealed, f"moved_{unsealed.history.lower()}"
    program = kept.program()
    ids = await asyncio.to_thread(fill, program, kept, 5, 15)
    TRACEPARENT.set(trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ids.append(await kept.shop.create())
    TRACEPARENT.set(None)
    await kept.shop.recorded()
    turns = iter(range(10_000))
    moving = migration(kept, to)

    def write() -> None:
        n = next(turns)
        program.write(ids[n % 5], body(15 + n // 5))

    with repeat_in_background(write):
        take = moving._take

        async def breaks_off(records: Any) -> None:
            await take(records[:7])
            raise ConnectionResetError("the process was killed")

        moving._take = breaks_off  # type: ignore[method-assign]
        with pytest.raises(ConnectionResetError):
            await moving.copy()
        moving._take = take  # type: ignore[method-assign]
        for _ in range(3):
            await moving.copy()
    # One of them exists, whatever the last write was.
    living = ids[0]
    program.write(living, {"name": "Last", "stock": 0})
    await kept.shop.history(living)
    assert await moving.copy() > 0
    # Existing versions are not counted again.
    assert await moving.copy() == 0
    names = await moving.seal()
    assert names[0] == "products"
    with pytest.raises(OperationFailure, match="Document failed validation"):
        program.write(ids[0], {"name": "late", "stock": 0})
    moved = await moving.finish()
    assert moved.findings == []
    assert moved.versions == kept.shop.database["products.versions"].count_documents({})
    with pytest.raises(Unsuitable, match="already recorded"):
        await moving.copy()

    before = await histories(kept.shop, ids)
    assert [each["traceparent"] for each in before[ids[-1]]] == [trace]
    model = layout_model("ARCHIVE", to)
    async with open_shop(
        client, mongo_uri, kept.shop.database.name, model=model, begun=True
    ) as served:
        assert await histories(served, ids) == before
        present = {id_: await served.present(id_) for id_ in ids}
        assert present == {id_: await kept.shop.present(id_) for id_ in ids}
        last = max(each["version"] for each in before[living])
        client[served.database.name][to].update_one(
            {"_id": living}, {"$set": {"stock": -1}, "$inc": {"v": 1}}
        )
        after = await served.history(living)
        assert [each["version"] for each in after] == list(range(1, last + 2))
    # Other tests count the documents.
    for name in (to, f"{to}.versions"):
        kept.shop.database.drop_collection(name)


@pytest.mark.parametrize("kept", CLASSIC, indirect=True)
async def test_validator_and_indexes_are_migrated(unsealed: KeptShop) -> None:
    """They apply to documents without the old layout's fields; impossible ones are reported.

    The old ones stay for a way back.
    """
    kept, database, to = unsealed, unsealed.shop.database, f"ruled_{unsealed.history.lower()}"
    program = kept.program()
    at = "current." if kept.history == "EMBEDDED" else ""
    old: Row = {"$or": [{f"{at}name": {"$type": "string"}}, {f"{at}name": {"$exists": False}}]}
    new: Row = {"$or": [{"name": {"$type": "string"}}, {"name": {"$exists": False}}]}
    products = database["products"]
    products.create_index([(f"{at}name", 1), (f"{at}stock", -1)], name="by_name", sparse=True)
    products.create_index(f"{at}sold", name="expires", expireAfterSeconds=9_000_000)
    database.command("collMod", "products", validator=old, validationLevel="moderate")
    ids = await asyncio.to_thread(fill, program, kept, 2, 3)
    await histories(kept.shop, ids)
    moving = migration(kept, to)
    await moving.copy()
    names = await moving.seal()
    # As after a kill in between.
    assert await moving.seal() == names
    moved = await moving.finish()
    assert moved.findings == []
    [found] = database.list_collections(filter={"name": to})
    assert found["options"]["validator"] == new
    assert found["options"]["validationLevel"] == "moderate"
    index = database[to].index_information()["by_name"]
    assert (index["key"], index["sparse"]) == ([("name", 1), ("stock", -1)], True)
    # An index of the model that the layout has is created by a gateway.
    others = set(database[to].index_information()) - {"_id_", "by_name"}
    assert others <= {"supplierId_1__id_1"}
    told = [each.partition(":")[0] for each in moved.rules.carried]
    assert [each for each in told if "supplierId" not in each] == [
        "index by_name",
        "validator",
    ]
    assert "index expires: would delete documents (expireAfterSeconds)" in moved.rules.left
    for command in await moving.opened_by(names):
        database.command(command)
    [found] = database.list_collections(filter={"name": "products"})
    assert found["options"]["validator"] == old
    assert found["options"]["validationLevel"] == "moderate"
    program.write(ids[0], {"name": "Last", "stock": 0})
    for name in ("by_name", "expires"):
        products.drop_index(name)
    for name in (to, f"{to}.versions"):
        database.drop_collection(name)


@pytest.mark.parametrize("kept", ["CURRENT_FLAG"], indirect=True)
async def test_a_validator_that_current_documents_violate_is_reported(
    unsealed: KeptShop,
) -> None:
    """It is not set; a program has added it later, for a field of the old layout, too."""
    kept, database = unsealed, unsealed.shop.database
    ids = await asyncio.to_thread(fill, kept.program(), kept, 2, 2)
    await histories(kept.shop, ids)
    schema = {"required": ["docId", "other"], "properties": {"docId": {"bsonType": "string"}}}
    database.command("collMod", "products", validator={"$jsonSchema": schema})
    moving = migration(kept, "unruled")
    await moving.copy()
    await moving.seal()
    moved = await moving.finish()
    assert moved.findings == []
    [said] = [each for each in moved.rules.left if each.startswith("validator")]
    assert "it refuses" in said
    assert '"required": ["_id", "other"], "properties": {"_id": {"bsonType": "string"}}' in said
    [found] = database.list_collections(filter={"name": "unruled"})
    assert "validator" not in found["options"]
    for name in ("unruled", "unruled.versions"):
        database.drop_collection(name)


@pytest.mark.parametrize("kept", ["DOCUMENT_PER_VERSION"], indirect=True)
async def test_differences_after_a_migration_are_found(unsealed: KeptShop) -> None:
    """A missing, a different and an extra version are found, and a different document."""
    kept, database = unsealed, unsealed.shop.database
    ids = await asyncio.to_thread(fill, kept.program(), kept, 3, 4)
    await histories(kept.shop, ids)
    moving = migration(kept, "planted")
    await moving.copy()
    assert (await moving.verify()).findings == []
    versions = database["planted.versions"]
    versions.update_one({"doc": ids[0], "v": 2}, {"$set": {"full.stock": 99}})
    versions.delete_one({"doc": ids[1], "v": 3})
    extra = versions.find_one({"doc": ids[2], "v": 4})
    assert extra is not None
    versions.insert_one({**extra, "_id": extra["_id"] + "0", "v": 9})
    database["planted"].update_one({"_id": ids[0]}, {"$set": {"stock": -5}})
    database["planted"].delete_one({"_id": ids[1]})
    database["planted"].insert_one({"_id": "stray"})
    findings = (await moving.verify()).findings
    assert findings[:3] == [
        f"{ids[0]!r} version 2: differs in full",
        f"{ids[1]!r} version 3: exists only in the old archive",
        f"{ids[2]!r} version 9: exists only in the new archive",
    ]
    assert f"{ids[0]!r}: the current document differs" in findings
    assert f"{ids[1]!r}: the current document is missing" in findings
    assert any(each.startswith("planted: ") for each in findings)
    # The migration is not finished either.
    assert (await moving.finish()).findings != []
    assert database["revstream.checkpoints"].find_one({"_id": "recorder:planted"}) is None


@pytest.mark.parametrize("kept", ["DOCUMENT_PER_VERSION"], indirect=True)
async def test_a_migration_killed_at_its_start_continues(unsealed: KeptShop) -> None:
    """Documents are in the new collection, and no version yet."""
    kept, database = unsealed, unsealed.shop.database
    ids = await asyncio.to_thread(fill, kept.program(), kept, 2, 3)
    await histories(kept.shop, ids)
    moving = migration(kept, "killed")

    async def killed(*_: Any) -> bool:
        raise ConnectionResetError("the process was killed")

    moving._new.insert = killed  # type: ignore[method-assign]
    with pytest.raises(ConnectionResetError):
        await moving.copy()
    assert database["killed"].count_documents({}) >= 2
    assert database["killed.versions"].count_documents({}) == 0
    moving = migration(kept, "killed")
    assert await moving.copy() >= 6
    assert (await moving.verify()).findings == []


@pytest.mark.parametrize("kept", ["DOCUMENT_PER_VERSION"], indirect=True)
async def test_the_number_of_reported_differences_is_limited(
    unsealed: KeptShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to versions and to current documents."""
    kept, database = unsealed, unsealed.shop.database
    ids = await asyncio.to_thread(fill, kept.program(), kept, 6, 1)
    await histories(kept.shop, ids)
    moving = migration(kept, "bounded")
    await moving.copy()
    database["bounded"].update_many({}, {"$set": {"stock": -1}})
    monkeypatch.setattr("revstream.streams.maintenance.migration._MOST_FINDINGS", 3)
    assert len((await moving.verify()).findings) == 3


@pytest.mark.parametrize("kept", ["DOCUMENT_PER_VERSION"], indirect=True)
async def test_versions_stored_in_parts_are_equal(
    unsealed: KeptShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive record has less room for a content than a document of its own."""
    kept, database = unsealed, unsealed.shop.database
    ids = await asyncio.to_thread(fill, kept.program(), kept, 2, 3)
    await histories(kept.shop, ids)
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._ROOM_BYTES", 40)
    moving = migration(kept, "parted")
    await moving.copy()
    assert database["parted.versions"].count_documents({"parts": {"$exists": True}}) >= 6
    assert (await moving.verify()).findings == []


@pytest.mark.parametrize("kept", ["DOCUMENT_PER_VERSION"], indirect=True)
async def test_a_migration_refuses_foreign_documents_and_missing_contents(
    unsealed: KeptShop,
) -> None:
    """Foreign documents in the new collection stay; removed versions are reported as lost."""
    kept, database = unsealed, unsealed.shop.database
    database["taken"].insert_one({"_id": 1})
    with pytest.raises(Unsuitable, match="taken: has documents"):
        await migration(kept, "taken").copy()
    assert list(database["taken"].find()) == [{"_id": 1}]
    [id_] = await asyncio.to_thread(fill, kept.program(), kept, 1, 3)
    await kept.shop.history(id_)
    database["products"].delete_one({"docId": id_, "v": 2})
    with pytest.raises(HistoryLost, match="version 2 is no longer in the collection"):
        await migration(kept, "lossy").copy()


@pytest.mark.parametrize("kept", ["SEPARATE"], indirect=True)
@pytest.mark.parametrize(("method", "verb"), [("command", "may refuse"), ("find", "refuse")])
async def test_an_interrupted_migration_explains_how_to_continue(
    unsealed: KeptShop, mongo_uri: str, monkeypatch: pytest.MonkeyPatch, method: str, verb: str
) -> None:
    """MongoDB fails after it sealed the collection; the message says that writes are refused.

    Run again, the command continues, and prints the way back.
    """
    kept, database, to = unsealed, unsealed.shop.database, f"away_{method}"
    program = kept.program()
    id_ = kept.shop.fresh_id()
    program.write(id_, {"name": "Lamp", "stock": 1})
    rule = {"validator": {"name": {"$exists": True}}, "validationLevel": "moderate"}
    database.command("collMod", "products", **rule)
    await kept.shop.recorded()
    work = getattr(Mongo, method)

    async def away(mongo: Mongo, subject: Any, *more: Any, **options: Any) -> Any:
        found = await work(mongo, subject, *more, **options)
        if subject == "revstream.sealed" or (isinstance(subject, dict) and "collMod" in subject):
            raise Unavailable("MongoDB cannot be reached")
        return found

    async def moving() -> Move:
        return await migrate(
            Settings(), kept.shop.gateway.model, mongo_uri, database.name, lambda *_: None,
            type_="Product", to=to, finish=True,
        )  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(Mongo, method, away)
        with pytest.raises(click.ClickException) as failed:
            await moving()
    assert failed.value.message.splitlines() == [
        "MongoDB cannot be reached",
        f"not finished: products and products.previous now {verb} writes; run it again: it "
        "continues, and prints how to let programs write again",
    ]
    with pytest.raises(OperationFailure, match="Document failed validation"):
        program.write(id_, {"name": "late", "stock": 0})
    done = await moving()
    assert done.moved is not None
    assert done.moved.findings == []
    assert done.undo == [
        'db.runCommand({"collMod": "products", "validator": {"name": {"$exists": true}}, '
        '"validationLevel": "moderate", "validationAction": "error"})',
        'db.runCommand({"collMod": "products.previous", "validator": {}, '
        '"validationLevel": "strict", "validationAction": "error"})',
    ]
    for name in (to, f"{to}.versions"):
        database.drop_collection(name)
