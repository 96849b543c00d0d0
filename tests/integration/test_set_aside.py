"""Events that a recorder cannot process, and collections that cannot be recorded: all others are
recorded, and the fault is reported.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import bson
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import InexactKey, Unavailable
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import enable_collection_images
from revstream.streams.recording.set_aside import COLLECTION, SetAsideEvents
from revstream.streams.versioning.version import make_version
from tests.support import http
from tests.support.eventually import eventually, wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import run_command, running_gateway
from tests.support.layouts import layout_model, program
from tests.support.streams import Recording, event, outline, unless_ended

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)
NAMESPACE_EXISTS = 48
FAULT = "revstream.streams.recording.version_builder.make_version"


def failing(fault: Exception) -> Any:
    """Return a recorder that fails for documents with a field `odd`."""

    def fail_or_build(**write: Any) -> Any:
        if write["after"] is not None and "odd" in write["after"]:
            raise fault
        return make_version(**write)

    return patch(FAULT, fail_or_build)


@one_driver
@pytest.mark.parametrize("deltas", [False, True], ids=["FULL", "DELTA"])
@pytest.mark.parametrize("images", [True, False], ids=["images", "no images"])
async def test_an_event_without_a_possible_version_is_set_aside(
    mongo: Mongo, client: Client, deltas: bool, images: bool
) -> None:
    """It is stored with its bytes, and its version is a gap; all others are exact.

    A recorder that starts again does not set it aside twice.
    """
    if images:
        await enable_collection_images(mongo, "things")
    recording = Recording(mongo, deltas=deltas)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "text": "x" * 300} for n in (1, 2)])
    things.update_one({"_id": 1}, {"$set": {"odd": 1}})
    things.update_many({}, {"$unset": {"odd": ""}, "$set": {"n": 2}})
    things.delete_one({"_id": 1})
    with failing(TypeError("odd")):
        records = await recording.record()
        assert "1 change event set aside" in str(recording.recorder.collection_trouble)
    assert outline(records, 1)[:2] == [("INSERT", 1, False), ("UPDATE", 2, True)]
    assert outline(records, 1)[2:] == [("UPDATE", 3, False), ("DELETE", 4, False)]
    assert outline(records, 2) == [("INSERT", 1, False), ("UPDATE", 2, False)]
    [aside] = client[mongo.name][COLLECTION].find()
    assert (aside["key"], aside["operation"], aside["reason"]) == (1, "update", "TypeError")
    assert bson.decode(aside["event"])["updateDescription"]["updatedFields"] == {"odd": 1}
    newest = await recording.archive.newest([{"key": 1}], limit=3)
    assert [each["full"] and each["full"]["text"] for each in newest] == [
        None, "x" * 300, "x" * 300,
    ]  # fmt: skip
    await recording.recorder._health.count_set_aside()
    client[mongo.name][COLLECTION].delete_many({})
    again = Recording(mongo, deltas=deltas)
    assert await again.record(fencing_token=2) == records
    assert again.recorder.collection_trouble is None


@one_driver
async def test_a_document_without_a_possible_baseline_is_set_aside(
    mongo: Mongo, client: Client
) -> None:
    """The others get their baselines."""
    client[mongo.name].things.insert_many([{"_id": 1}, {"_id": 2, "odd": 1}, {"_id": 3}])
    recording = Recording(mongo)
    await recording.begin()
    with failing(KeyError("odd")):
        records = await recording.record()
    assert [(each["doc"], each.get("gap", False)) for each in records] == [
        (1, False), (2, True), (3, False),
    ]  # fmt: skip
    assert list(await SetAsideEvents(mongo).troubles()) == ["things"]


@one_driver
async def test_the_last_set_aside_event_is_the_newest_entry(mongo: Mongo) -> None:
    """Entries of ids that no driver preserves have the document as their id."""
    aside = SetAsideEvents(mongo)
    unheld = event(1, key="unheld", after={"_id": "unheld"})
    await aside.put("things", unheld, InexactKey("bytes that drivers change"))
    await aside.put("things", event(2, key="later"), TypeError())
    said = (await aside.troubles())["things"]
    assert said.startswith("2 change events set aside, the last of document 'later': TypeError;")


@one_driver
async def test_a_database_failure_sets_no_event_aside(mongo: Mongo, client: Client) -> None:
    """It ends the work as usual."""
    recording = Recording(mongo)
    await recording.begin()
    client[mongo.name].things.insert_one({"_id": 1, "odd": 1})
    with failing(Unavailable("MongoDB is away")), pytest.raises(Unavailable):
        await recording.record()
    assert await SetAsideEvents(mongo).troubles() == {}
    assert outline(await Recording(mongo).record(2)) == [("INSERT", 1, False)]


@one_driver
async def test_a_damaged_version_does_not_stop_recording(mongo: Mongo, client: Client) -> None:
    """The document's next version is a gap and stored in full; others are not affected."""
    recording = Recording(mongo, deltas=True)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "text": "x" * 300, "n": 0} for n in (1, 2)])
    things.update_many({}, {"$set": {"n": 1}})
    await recording.record()
    archive = client[mongo.name]["things.versions"]
    assert archive.find_one({"doc": 1, "v": 2, "patch": {"$exists": True}})
    archive.update_one({"doc": 1, "v": 1}, {"$unset": {"full": ""}})
    for n in (2, 3):
        things.update_many({}, {"$set": {"n": n}})
    records = await Recording(mongo, deltas=True).record(fencing_token=2)
    assert outline(records, 1)[2:] == [("UPDATE", 3, True), ("UPDATE", 4, False)]
    assert outline(records, 2)[2:] == [("UPDATE", 3, False), ("UPDATE", 4, False)]
    [newest] = await recording.archive.newest([{"key": 1}], limit=1)
    assert newest["full"] == {"_id": 1, "text": "x" * 300, "n": 3}


@one_driver
@pytest.mark.parametrize("odd", [{"v": 1, "name": "n1"}, 5, "text", None, [1, None, {"v": "one"}]])
async def test_previous_versions_that_are_not_a_list_are_ignored(
    mongo: Mongo, client: Client, odd: Any
) -> None:
    """EMBEDDED: current versions are recorded, from the snapshot and from later writes, of other
    documents, too.
    """
    layout = create_layout(mongo, layout_model("EMBEDDED").entity("Product"))
    archive = Archive(mongo, "products", layout)
    products = client[mongo.name].products
    products.insert_one({"_id": "old", "current": {"v": 2, "name": "n2"}, "prev": odd})
    recording = Recording(mongo, "products", version_field="v", archive=archive)
    await recording.begin()
    async with recording.running() as task:
        await recording.caught_up(task)
        products.insert_one({"_id": "new", "current": {"v": 2, "name": "n2"}, "prev": odd})
        writes = program("EMBEDDED", client[mongo.name])
        writes.write("other", {"name": "o"})
        for key in ("old", "new"):
            products.update_one({"_id": key}, {"$set": {"current.v": 3, "current.name": "n3"}})
        await recording.at_rest(task)
    found = await archive.find({}, FindOptions(sort=[("doc", 1), ("v", 1)]), fill=False)
    assert [(each["doc"], each["v"]) for each in found] == [
        ("new", 2), ("new", 3), ("old", 2), ("old", 3), ("other", 1),
    ]  # fmt: skip
    newest = await archive.newest([{"key": key} for key in ("new", "old", "other")], limit=1)
    assert sorted(each["full"]["name"] for each in newest) == ["n3", "n3", "o"]
    assert [each.number for each in await layout.history("new")] == [3]


@one_driver
@pytest.mark.parametrize("odd", [5, "name", {"name": 1}, [5, None, "price"], True])
async def test_an_invalid_unset_removes_nothing(mongo: Mongo, client: Client, odd: Any) -> None:
    """DELTAS: archive and current document agree; of a list only its names count."""
    model = layout_model("DELTAS")
    layout = create_layout(mongo, model.entity("Product"))
    archive = Archive(mongo, "products", layout)
    await layout.prepare()
    recording = Recording(mongo, "products", version_field="v", archive=archive)
    await recording.begin()
    products = client[mongo.name].products
    products.insert_one({"docId": "a", "v": 1, "name": "n1", "price": 1})
    products.insert_one({"docId": "a", "v": 2, "stock": 2, "unset": odd})
    products.insert_one({"docId": "b", "v": 1, "name": "other"})
    await recording.record()
    [newest] = await archive.newest([{"key": "a"}], limit=1)
    [present] = await layout.find({"_id": "a"})
    expected = {"_id": "a", "v": 2, "name": "n1", "stock": 2}
    assert newest["full"] == present == expected | ({} if isinstance(odd, list) else {"price": 1})


@one_driver
async def test_a_capped_collection_is_retried_until_it_is_converted_back(
    mongo: Mongo, client: Client
) -> None:
    """Its recorder reports the reason to all processes, does not end, and continues by itself."""
    recording = Recording(mongo)
    await recording.begin()
    database = client[mongo.name]
    database.things.insert_many([{"_id": n, "text": "x" * 100} for n in range(5)])
    async with recording.running() as task:
        await recording.caught_up(task)
        database.command("convertToCapped", "things", size=100_000)
        said = lambda: "capped" in str(recording.recorder.collection_trouble)  # noqa: E731
        await unless_ended(task, eventually(said))
        stored = await recording.checkpoints.load(recording.name)
        assert stored is not None
        assert "things is a capped collection" in str(stored.trouble)
        database.plain.insert_many(database.things.find())
        database.plain.rename("things", dropTarget=True)
        well = lambda: recording.recorder.collection_trouble is None  # noqa: E731
        await unless_ended(task, eventually(well))
        database.things.update_one({"_id": 1}, {"$set": {"n": 1}})
        await recording.at_rest(task)
    stored = await recording.checkpoints.load(recording.name)
    assert stored is not None
    assert stored.trouble is None
    [last] = await recording.archive.newest([{"key": 1}], limit=1)
    assert last["full"] == {"_id": 1, "text": "x" * 100, "n": 1}


MODEL = """
type Thing @collection(name: "things") { id: Int! n: Int }
type Other @collection(name: "others") { id: Int! n: Int }
"""
STREAMS = "{ streams { name trouble } }"


def placed(database: Database[dict[str, Any]], options: Any) -> bool:
    """Create the collection; returns False if its recorder has created an ordinary one."""
    database.drop_collection("things")
    try:
        database.create_collection("things", check_exists=False, **options)
    except OperationFailure as exc:
        if exc.code != NAMESPACE_EXISTS:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"viewOn": "elsewhere", "pipeline": []}, "a view"),
        pytest.param(
            {"timeseries": {"timeField": "at"}}, "a time-series collection", marks=exhaustive
        ),
        pytest.param({"capped": True, "size": 4096}, "a capped collection", marks=exhaustive),
    ],
    ids=["view", "time series", "capped"],
)
def test_an_unrecordable_replacement_affects_only_its_collection(
    mongo_uri: str, client: Client, database_name: str, tmp_path: Path, options: Any, said: str
) -> None:
    """`/readyz`, `streams` and `doctor` report it, during a run and after a restart.

    Other collections are recorded and served.
    """
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    database: Database[dict[str, Any]] = client[database_name]

    def troubled(address: str) -> bool:
        answer = http.get(f"{address}/readyz")
        trouble = answer.json().get("trouble", {})
        return answer.status_code == 200 and said in trouble.get("recorder:things", "")

    def recorded(count: int) -> bool:
        return database["others.versions"].count_documents({}) == count

    for others in (1, 2):
        with running_gateway(mongo_uri, database_name, model) as gateway:
            if others == 1:
                database.things.insert_one({"_id": 1})
                wait_until(lambda: database["things.versions"].count_documents({}) == 1)
                database.things.drop()
                wait_until(lambda: database["things.versions"].count_documents({}) == 2)
                wait_until(functools.partial(placed, database, options))
            wait_until(functools.partial(troubled, gateway.address))
            database.others.insert_one({"_id": others})
            wait_until(functools.partial(recorded, others))
            streams = {each["name"]: each["trouble"] for each in gateway.query(STREAMS)["streams"]}
            assert said in streams["recorder:things"]
            assert streams["recorder:others"] is None
            refused = gateway.post(
                "mutation { createThing(id: 9, document: {n: 1}) { __typename } }"
            )
            codes = {each["extensions"]["code"] for each in refused.get("errors", ())}
            # For a time series MongoDB's error is that the document has no time.
            assert codes <= {"INTERNAL" if "timeseries" in options else "UNAVAILABLE"}
            doctor = run_command(
                *("doctor", "--mongodb-uri", mongo_uri, "--database", database_name),
                *("--schema", str(model)),
            )
            assert f"recorders: things: not recorded: {database_name}.things is {said}" in (
                doctor.stdout
            )


async def test_a_model_with_a_view_is_refused_at_the_first_start(
    mongo_uri: str, client: Client, database_name: str, tmp_path: Path
) -> None:
    """The collection has no history yet: it is a mistake in the model."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    client[database_name].create_collection("things", viewOn="elsewhere", pipeline=[])
    ended = run_command(
        *("serve", "--mongodb-uri", mongo_uri, "--database", database_name),
        *("--schema", str(model), "--port", "0"),
    )
    assert ended.returncode == 1
    assert "things is a view" in ended.stderr


@one_driver
async def test_a_forged_mark_of_the_copier_is_ignored(mongo: Mongo, client: Client) -> None:
    """It may be text that is not ASCII: the version is recorded without an author."""
    recording = Recording(mongo)
    await recording.begin()
    for n, mark in enumerate(("é", "0" * 64, "", 7)):
        change = {"id": f"c{n}", "by": "revstream:copier", "mark": mark}
        client[mongo.name].things.insert_one({"_id": n, "_change": change})
    records = await recording.record()
    assert [(each["doc"], each["by"]) for each in records] == [(n, None) for n in range(4)]
