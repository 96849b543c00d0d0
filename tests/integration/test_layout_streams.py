"""Writes in a layout for recorders and subscribers: each is a write of a document; and documents
from before the first start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.model.definition import LayoutFields
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import WRITES, EventBatch
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import Checkpoints, furthest_checkpoint
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.factory import create_layout
from revstream.streams.maintenance.verification import Verification
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import KeptShop
from tests.integration.test_layouts import OPERATIONS, STORY, shown
from tests.support.editing import lamp, open_shop, pick
from tests.support.eventually import eventually
from tests.support.layouts import CLASSIC, LAYOUTS, layout_model, layout_text, program
from tests.support.streams import BRISK, Recording

pytestmark = pytest.mark.asyncio(loop_scope="module")

Client = MongoClient[dict[str, Any]]
Row = dict[str, Any]
CHANGES = """
subscription($id: ID, $where: ProductWhere, $after: ResumeToken, $snapshot: Boolean) {
  productChanges(id: $id, where: $where, after: $after, snapshot: $snapshot) {
    kind operation transition documentId resumeToken replayed PLAIN
  }
}
"""
WITH_VERSION = CHANGES.replace("PLAIN", "version changedFields product { name } before { name }")
WITHOUT = CHANGES.replace("PLAIN", "product { name stock }")
WITH_BEFORE = CHANGES.replace("PLAIN", "product { name } before { name stock }")


async def take(events: AsyncGenerator[Row], count: int) -> list[Row]:
    """Return the next `count` events other than checkpoints."""
    found: list[Row] = []
    while len(found) < count:
        event = await anext(events)
        if event["kind"] != "CHECKPOINT":
            found.append(event)
    return found


@pytest.mark.parametrize("text", [WITHOUT, WITH_BEFORE, WITH_VERSION])
async def test_a_new_version_is_an_update_to_a_subscriber(kept: KeptShop, text: str) -> None:
    """Live and replayed events are equal, with the previous state."""
    shop, program = kept.shop, kept.program()
    id_ = shop.fresh_id()
    async with shop.changes(text, id=id_) as events:
        first = asyncio.create_task(anext(events))
        name = shop.gateway.model.entity("Product").collection
        await eventually(lambda: shop.gateway.hub.statistics(name)["subscribers"])
        for body in STORY:
            program.write(id_, body)
        opening = await first
        live = [opening] if opening["kind"] == "CHANGE" else []
        live += await take(events, len(STORY) - len(live))
    assert pick(live, "operation") == OPERATIONS
    assert {each["documentId"] for each in live} == {id_}
    names = [body and body["name"] for body in STORY]
    assert [each["product"] and each["product"]["name"] for each in live] == names
    if "before" in live[0]:
        assert [each["before"] and each["before"]["name"] for each in live] == [None, *names[:-1]]
    if "version" in live[0]:
        assert pick(live, "version") == list(range(1, len(STORY) + 1))
        assert live[3]["changedFields"] == ["sold"]
    versions = await shop.history(id_)
    assert pick(versions, "resumeToken") == pick(live, "resumeToken")
    async with shop.changes(text, id=id_, after=live[0]["resumeToken"]) as events:
        replayed = await take(events, len(STORY) - 1)
    said = [name for name in live[0] if name != "replayed"]
    assert [{n: each[n] for n in said} for each in replayed] == [
        {n: each[n] for n in said} for each in live[1:]
    ]


async def test_documents_enter_and_leave_a_filter(kept: KeptShop) -> None:
    """Current and previous states decide, although an event of the layout has no pre-image."""
    shop, program = kept.shop, kept.program()
    id_ = shop.fresh_id()
    program.write(id_, {"sku": id_, "name": "Lamp", "stock": 1})
    where = {"sku": {"eq": id_}, "stock": {"gte": 5}}
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    for body in (
        {"sku": id_, "name": "a", "stock": 5},
        {"sku": id_, "name": "b", "stock": 6},
        {"sku": id_, "name": "c", "stock": 1},
        {"sku": id_, "name": "d", "stock": 2},
        {"sku": id_, "name": "e", "stock": 7},
        None,
    ):
        program.write(id_, body)
    async with shop.changes(WITHOUT, where=where, after=token) as events:
        found = await take(events, 5)
    expected = ["ENTER", "STAY", "LEAVE", "ENTER", "LEAVE"]
    assert pick(found, "transition") == expected
    assert pick(found, "operation") == ["UPDATE", "UPDATE", "UPDATE", "UPDATE", "DELETE"]


async def test_a_snapshot_has_the_current_documents_only(kept: KeptShop) -> None:
    """Later changes follow."""
    shop, program = kept.shop, kept.program()
    mark = shop.fresh_id()
    for n in range(3):
        for stock in (50, n):
            program.write(f"{mark}-{n}", {"sku": mark, "name": "x", "stock": stock})
    program.write(f"{mark}-0", None)
    where = {"sku": {"eq": mark}, "stock": {"lt": 100}}
    async with shop.changes(WITH_VERSION, where=where, snapshot=True) as events:
        found = await take(events, 2)
        assert pick(found, "kind", "documentId", "version") == [
            ("SNAPSHOT", f"{mark}-1", 2),
            ("SNAPSHOT", f"{mark}-2", 2),
        ]
        program.write(f"{mark}-1", {"sku": mark, "name": "y", "stock": 3})
        (change,) = await take(events, 1)
    assert (change["kind"], change["operation"], change["version"]) == ("CHANGE", "UPDATE", 3)


@pytest.mark.parametrize("history", LAYOUTS)
async def test_existing_versions_are_recorded_with_their_own_numbers(
    history: str, mongo_uri: str, client: Client
) -> None:
    """All versions are recorded in order, as a BASELINE and updates; new ones follow."""
    name = f"layout_{uuid4().hex[:8]}"
    others = program(history, client[name])
    client[name].products.create_index([("unrelated", 1)])
    ids = [f"p{n:03}" for n in range(60)]
    for id_ in ids:
        for body in STORY:
            others.write(id_, body)
    others.write("gone", STORY[0])
    others.write("gone", None)
    model = layout_model(history)
    async with open_shop(client, mongo_uri, name, model=model, empty=False) as shop:
        await eventually(
            lambda: shop.gateway.recorders[0].statistics()["baseline_done"], within_s=30
        )
        for id_ in (ids[0], ids[-1]):
            others.write(id_, {**(STORY[0] or {}), "name": "later"})
            versions = await shop.history(id_)
            if history == "ARCHIVE":
                expected = [(7, "BASELINE"), (8, "UPDATE")]
            else:
                first = ["BASELINE", *OPERATIONS[1:], "UPDATE"]
                expected = list(enumerate(first, 1))
            assert pick(versions, "version", "operation") == expected
            assert pick(versions, "gap") == [False] * len(expected)
            stories = [*STORY, {**(STORY[0] or {}), "name": "later"}][-len(expected) :]
            for version, body in zip(versions, stories, strict=True):
                document = version["document"]
                without_id = document and {n: v for n, v in document.items() if n != "id"}
                assert without_id == shown(body)
        gone = await shop.history("gone")
        assert pick(gone, "operation") == ([] if history == "ARCHIVE" else ["BASELINE", "DELETE"])
        count = await shop.ask("{ productVersions(first: 1) { totalCount } }")
        each = 1 if history == "ARCHIVE" else len(STORY)
        extra = 0 if history == "ARCHIVE" else 2
        assert count["productVersions"]["totalCount"] == len(ids) * each + 2 + extra
        await verify(shop.gateway.mongo, history)
    client.drop_database(name)


async def verify(mongo: Mongo, history: str) -> None:
    """Check that `verify` has no findings."""
    entity = layout_model(history).entity("Product")
    archive = Archive(mongo, "products", create_layout(mongo, entity))
    stored = furthest_checkpoint(await Checkpoints(mongo).load_collection("products"))
    found = await Verification(mongo, archive, stored, version_field="v").run()
    assert found.findings == []
    assert found.versions


async def test_verify_has_no_findings_for_a_layout(kept: KeptShop) -> None:
    """Each version agrees with its neighbours, and the last ones with the current documents."""
    kept.program().write(kept.shop.fresh_id(), STORY[0])
    await kept.shop.recorded()
    await verify(kept.shop.gateway.mongo, kept.history)


@pytest.mark.parametrize("history", CLASSIC)
async def test_the_archive_stores_no_content_of_a_layout(
    history: str, mongo_uri: str, client: Client
) -> None:
    """The archive stores time and attribution of a version, and the layout its content."""
    name = f"layout_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=layout_model(history)) as shop:
        others = program(history, shop.database)
        for body in STORY:
            others.write("a", body)
        await shop.recorded()
        records = list(client[name]["products.versions"].find().sort("_id"))
    assert len(records) == len(STORY)
    for record, body in zip(records, STORY, strict=True):
        assert record.get("full") is None
        assert "patch" not in record
        assert ("packed" in record) is (body is not None)
    client.drop_database(name)


@pytest.mark.parametrize("history", CLASSIC)
async def test_a_partial_update_is_repaired_when_recording_begins(
    history: str, mongo_uri: str, client: Client
) -> None:
    """One record is written for each version."""
    name = f"layout_{uuid4().hex[:8]}"
    others = program(history, client[name])
    others.write("a", STORY[0])
    entity = layout_model(history).entity("Product")
    async with Mongo.connect(mongo_uri, name) as mongo:
        layout = create_layout(mongo, entity)
        await layout.prepare()
        archive = Archive(mongo, "products", layout)
        recording = Recording(mongo, "products", version_field="v", archive=archive)
        await recording.begin()
        first, *_never = others.steps("a", STORY[1])
        first()
        async with recording.running() as task:
            await recording.at_rest(task)
            records = await recording.versions()
            if history == "CURRENT_FLAG":
                flags = {"docId": "a", "current": True}
                await eventually(lambda: client[name].products.count_documents(flags) == 1)
    assert [each["v"] for each in records] == ([1] if history == "SEPARATE" else [1, 2])
    client.drop_database(name)


RENAMED = """
type Product @collection(name: "products", history: HISTORY, version: "revision")
  @layout(LAYOUT) { id: ID! name: String stock: Int writtenAt: DateTime }
"""
NAMES = {
    "DOCUMENT_PER_VERSION": 'document: "of", deleted: "gone", at: "writtenAt"',
    "CURRENT_FLAG": 'document: "of", current: "isCurrent", deleted: "gone", at: "writtenAt"',
    "EMBEDDED": 'current: "state", previous: "states", deleted: "gone", at: "writtenAt"',
    "SEPARATE": 'document: "of", previous: "old_products", at: "writtenAt"',
    "DELTAS": 'document: "of", unset: "without", whole: "all", deleted: "gone", at: "writtenAt"',
}


@pytest.mark.parametrize("history", CLASSIC)
async def test_fields_and_collections_have_the_names_of_the_model(
    history: str, mongo_uri: str, client: Client
) -> None:
    """Existing and new versions use them; a field with the time of a version is used as its
    time.
    """
    name = f"layout_{uuid4().hex[:8]}"
    model = read_model(RENAMED.replace("HISTORY", history).replace("LAYOUT", NAMES[history]))
    assert isinstance(model.entity("Product").layout, LayoutFields)
    then = datetime(2001, 2, 3, tzinfo=UTC)
    row = {"revision": 1, "name": "x", "stock": 1, "writtenAt": then}
    products = client[name].products
    if history == "EMBEDDED":
        products.insert_one({"_id": "a", "state": row, "states": []})
    elif history == "SEPARATE":
        products.insert_one({"_id": "a", **row})
    else:
        more = {"isCurrent": True} if history == "CURRENT_FLAG" else {}
        products.insert_one({"of": "a", **row, **more})
    async with open_shop(client, mongo_uri, name, model=model, empty=False) as shop:
        write = 'mutation { updateProduct(id: "a", patch: {name: null, stock: 2}) { __typename } }'
        delete = 'mutation { deleteProduct(id: "a") { __typename } }'
        assert await shop.ask(write) == {"updateProduct": {"__typename": "ProductWritten"}}
        read = '{ product(id: "a") { version name stock } }'
        assert (await shop.ask(read))["product"] == {"version": 2, "name": None, "stock": 2}
        assert await shop.ask(delete) == {"deleteProduct": {"__typename": "ProductWritten"}}
        assert await shop.ask(read) == {"product": None}
        await shop.recorded()
        text = """
        query($where: VersionWhere) { productVersions(where: $where, first: 9) {
          nodes { version at document { name stock writtenAt } } } }
        """
        found = (await shop.ask(text))["productVersions"]["nodes"][::-1]
        assert pick(found, "version") == [1, 2, 3]
        assert found[0]["at"].startswith("2001-02-03")
        assert found[0]["document"]["writtenAt"].startswith("2001-02-03")
        assert not found[1]["document"]["writtenAt"].startswith("2001")
        early = {"at": {"lt": "2002-01-01T00:00:00Z"}}
        assert pick((await shop.ask(text, where=early))["productVersions"]["nodes"], "version") == [
            1
        ]
    rows = list(products.find())
    if history == "EMBEDDED":
        assert rows[0]["state"]["gone"] is True
        assert [each["revision"] for each in rows[0]["states"]] == [1, 2]
    elif history == "SEPARATE":
        assert rows == []
        assert [e["revision"] for e in client[name].old_products.find({"of": "a"})] == [1, 2]
    else:
        assert [(e["of"], e["revision"], e.get("gone")) for e in rows] == [
            ("a", 1, None),
            ("a", 2, None),
            ("a", 3, True),
        ]
    client.drop_database(name)


async def test_tokens_of_versions_are_in_stream_order(kept: KeptShop) -> None:
    """A write's token is directly after it."""
    shop = kept.shop
    id_ = await shop.create()
    made = [await shop.mutate("updateProduct", id=id_, increment={"stock": 1}) for _ in range(3)]
    async with shop.changes(WITHOUT, id=id_, after=made[0]["resumeToken"]) as events:
        found = await take(events, 2)
    assert [each["product"]["stock"] for each in found] == [7, 8]
    written = [resume_tokens.cluster_time(each["resumeToken"]) for each in made]
    assert written == sorted(written)


@pytest.mark.parametrize("history", ["DOCUMENT_PER_VERSION", "SEPARATE"])
async def test_a_layout_can_have_partitions(history: str, mongo_uri: str, client: Client) -> None:
    """Partitions depend on the documents and not on the ids of versions; each is recorded once."""
    name = f"layout_{uuid4().hex[:8]}"
    text = layout_text(history).replace('version: "v"', 'version: "v", partitions: 3')
    others = program(history, client[name])
    async with open_shop(client, mongo_uri, name, model=read_model(text)) as shop:
        for n in range(12):
            for body in STORY[:3]:
                others.write(f"p{n}", body)
        await shop.recorded()
        records = list(client[name]["products.versions"].find().sort("_id"))
    assert {each["doc"] for each in records} == {f"p{n}" for n in range(12)}
    for n in range(12):
        assert [each["v"] for each in records if each["doc"] == f"p{n}"] == [1, 2, 3]
    client.drop_database(name)


async def test_a_dropped_collection_gets_its_index_again(mongo_uri: str, client: Client) -> None:
    """Without the index two writers could write the same version; the documents count as
    deleted.
    """
    name = f"layout_{uuid4().hex[:8]}"
    model = layout_model("DOCUMENT_PER_VERSION")
    async with open_shop(client, mongo_uri, name, model=model) as shop:
        await shop.mutate("createProduct", id="a", document=lamp("a"))
        client[name].products.drop()
        await shop.recorded()
        text = "{ productVersions(first: 9) { nodes { operation } } }"
        found = (await shop.ask(text))["productVersions"]["nodes"]
        assert pick(found, "operation") == ["DELETE", "INSERT"]
        indexes = client[name].products.index_information()
        assert any(each.get("unique") for each in indexes.values())
        made = await shop.mutate("createProduct", id="a", document=lamp("a"))
        assert made["__typename"] == "ProductWritten"
    client.drop_database(name)


class BareSource(Source):
    """A source whose events are too large to be read with their content."""

    async def batches(self, after: str) -> AsyncGenerator[EventBatch]:
        nothing: dict[str, Any] = {"after": None, "before": None, "update": None, "bare": True}
        async with aclosing(super().batches(after)) as batches:
            async for batch in batches:
                events = [
                    replace(each, **nothing) if each.operation in WRITES - {"delete"} else each
                    for each in batch.events
                ]
                yield replace(batch, events=tuple(events))


@pytest.mark.parametrize("history", CLASSIC)
async def test_versions_with_too_large_events_are_found_by_a_new_snapshot(
    history: str, mongo_uri: str, client: Client
) -> None:
    """No version is missing, even one that only its event shows."""
    name = f"bare_{uuid4().hex[:8]}"
    others = program(history, client[name])
    others.write("a", STORY[0])
    entity = layout_model(history).entity("Product")
    async with Mongo.connect(mongo_uri, name) as mongo:
        layout = create_layout(mongo, entity)
        await layout.prepare()
        archive = Archive(mongo, "products", layout)
        source = BareSource(mongo, ["products"], before_images=False, options=BRISK)
        recording = Recording(mongo, "products", version_field="v", archive=archive, source=source)
        await recording.begin()
        async with recording.running() as task:
            await recording.at_rest(task)
            for body in STORY[1:3]:
                others.write("a", body)
                await recording.at_rest(task)
            records = await recording.versions()
    assert [each["v"] for each in records] == [1, 2, 3]
    client.drop_database(name)
