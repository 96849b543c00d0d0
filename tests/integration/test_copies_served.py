"""Copies in a whole gateway: written by it, attributed to it, and distinguished from users'
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Entity
from revstream.resolvers.admin.copied_histories import copied_histories
from revstream.resolvers.admin.purge import Purging
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.maintenance.verification import Verification, VerificationFinding
from revstream.streams.versioning.attribution import COPIER
from tests.support.editing import Shop, open_shop
from tests.support.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model("""
type Supplier @collection(name: "suppliers") { id: ID! name: String! city: City }
type City { name: String land: String }
type Product @collection(name: "products") {
  id: ID!
  name: String
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
  supplierCity: City @copy(of: "supplier.city")
}
type Order @collection(name: "orders") { id: ID! lines: [Line!] }
type Line {
  productId: ID
  product: Product @reference(by: "productId")
  supplierName: String @copy(of: "product.supplierName")
}
""")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> AsyncIterator[Shop]:
    """Run a gateway whose model has copies, and copies of copies."""
    name = f"copies_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, Settings(), model=MODEL) as opened:
        yield opened
    client.drop_database(name)


async def created(shop: Shop, entity: str, **document: Any) -> str:
    id_ = shop.fresh_id()
    found = await shop.ask(
        f"mutation($id: ID!, $document: {entity}Input!) {{ result: create{entity}"
        "(id: $id, document: $document) { __typename } }",
        id=id_,
        document=document,
    )
    assert found["result"]["__typename"] == f"{entity}Written"
    return id_


async def patched(shop: Shop, entity: str, id_: str, **patch: Any) -> None:
    found = await shop.ask(
        f"mutation($id: ID!, $patch: {entity}Patch!) {{ result: update{entity}"
        "(id: $id, patch: $patch) { __typename } }",
        id=id_,
        patch=patch,
    )
    assert found["result"]["__typename"] == f"{entity}Written"


async def copied(shop: Shop, collection: str, id_: str, **wanted: Any) -> None:
    """Wait until the document has these values."""

    def has() -> bool:
        found = shop.database[collection].find_one({"_id": id_}) or {}
        return {name: found.get(name) for name in wanted} == wanted

    await eventually(has, within_s=30)


async def test_a_purge_names_the_histories_with_copies(shop: Shop) -> None:
    """It names copies of copies, too; the running gateway evicts cached values."""
    supplier = await created(shop, "Supplier", name="Jane Doe", city={"name": "Bern"})
    other = await created(shop, "Supplier", name="Nord")
    product = await created(shop, "Product", supplierId=supplier)
    await created(shop, "Product", supplierId=other)
    order = await created(shop, "Order", lines=[{"productId": product}])
    await copied(shop, "orders", order, lines=[{"productId": product, "supplierName": "Jane Doe"}])
    await copied(shop, "products", product, supplierCity={"name": "Bern"})
    # Documents that no longer refer to it have had copies, too.
    await patched(shop, "Product", product, supplierId=other)
    await copied(shop, "products", product, supplierName="Nord")
    await shop.recorded()
    gateway = shop.gateway
    found = await copied_histories(gateway.mongo, MODEL, "suppliers", supplier)
    assert [(each.entity.name, each.field, [*each.documents]) for each in found] == [
        ("Product", "supplierName", [product]),
        ("Product", "supplierCity", [product]),
        ("Order", "lines.supplierName", [order]),
    ]
    assert await copied_histories(gateway.mongo, MODEL, "orders", order) == []

    rings = [gateway.hub.ring(name) for name in ("suppliers", "products")]
    assert all(map(len, rings))
    archive = Archive(gateway.mongo, "suppliers")
    entity = MODEL.entity("Supplier")
    purging = Purging(gateway.mongo, archive, gateway.progress, entity)
    await purging.purge(supplier, by="officer", why="request 4711")
    await eventually(lambda: not len(gateway.hub.ring("suppliers")), within_s=10)
    # Copies of other documents stay, and the gateway continues.
    assert gateway.hub.ring("products") is rings[1]
    before = len(gateway.hub.ring("suppliers"))
    await patched(shop, "Supplier", other, name="Norden")
    await eventually(lambda: len(gateway.hub.ring("suppliers")) > before, within_s=10)


async def history(shop: Shop, id_: str, where: str = "{}") -> list[tuple[Any, ...]]:
    await shop.recorded()
    found = await shop.ask(
        f"query($id: ID!) {{ product(id: $id) {{ history(first: 50, where: {where}) {{ nodes {{ "
        "version operation author changedFields diff { path after } } } } }",
        id=id_,
    )
    nodes = reversed(found["product"]["history"]["nodes"])
    return [
        (
            each["operation"],
            each["author"],
            each["changedFields"],
            [d["path"] for d in each["diff"]],
        )
        for each in nodes
    ]


async def test_copies_are_attributed_to_the_copier_and_can_be_left_out(shop: Shop) -> None:
    """Neither the entries beside copies nor the Copier's writes count as users' changes."""
    supplier = await created(shop, "Supplier", name="Ann", city={"name": "Rome"})
    product = await created(shop, "Product", name="Lamp", supplierId=supplier)
    await copied(shop, "products", product, supplierName="Ann", supplierCity={"name": "Rome"})
    await patched(shop, "Supplier", supplier, name="Anna")
    await copied(shop, "products", product, supplierName="Anna")
    versions = await history(shop, product)
    assert versions[0] == ("INSERT", "ann", ["name", "supplierId"], ["name", "supplierId"])
    assert {each[:2] for each in versions[1:]} == {("UPDATE", COPIER)}
    assert sorted(each[2] for each in versions[1:3]) == [["supplierCity"], ["supplierName"]]
    assert versions[3][2:] == (["supplierName"], ["supplierName"])
    without = f'{{author: {{ne: "{COPIER}"}}}}'
    assert await history(shop, product, without) == versions[:1]
    found = await shop.ask(
        f'{{ audit: productVersions(where: {{documentId: {{eq: "{product}"}}, '
        f'author: {{notIn: ["{COPIER}"]}}}}, first: 9) {{ nodes {{ operation }} }} }}'
    )
    assert [each["operation"] for each in found["audit"]["nodes"]] == ["INSERT"]
    stored = shop.database["products.versions"].find_one({"doc": product, "v": 4}) or {}
    assert "_copies" not in stored["full"]
    assert set(stored["copies"]) == {"supplierName", "supplierCity"}


async def test_a_copy_of_a_copy_in_a_list_follows(shop: Shop) -> None:
    """A name is copied from supplier to product, and from there to the lines of orders."""
    supplier = await created(shop, "Supplier", name="Carl")
    product = await created(shop, "Product", name="Lamp", supplierId=supplier)
    order = await created(shop, "Order", lines=[{"productId": product}, {}])
    for name in ("Carl", "Carla"):
        await patched(shop, "Supplier", supplier, name=name)
        lines = [{"productId": product, "supplierName": name}, {}]
        await copied(shop, "orders", order, lines=lines)


async def test_events_of_copies_have_the_copier_as_author(shop: Shop) -> None:
    """Subscribers can skip them."""
    supplier = await created(shop, "Supplier", name="Dora")
    product = await created(shop, "Product", name="Lamp")
    text = (
        "subscription($id: ID!, $after: ResumeToken!) "
        "{ productChanges(id: $id, after: $after) { author changedFields } }"
    )
    after = (await shop.ask("{ resumeToken }"))["resumeToken"]
    async with shop.changes(text, id=product, after=after) as events, aclosing(events):
        await patched(shop, "Product", product, supplierId=supplier)
        told: list[Any] = []
        while len(told) < 3:
            event = await anext(events)
            # A checkpoint event has no author.
            told += [event] if event["author"] else []
    assert [each["author"] for each in told] == ["ann", COPIER, COPIER]
    assert sorted(each["changedFields"][0] for each in told[1:]) == ["supplierCity", "supplierName"]


async def test_expected_versions_replacements_and_restores_work_with_copies(shop: Shop) -> None:
    """Entries beside copies are no content; replacements keep copies, and restored ones are
    corrected.
    """
    supplier = await created(shop, "Supplier", name="Eve")
    product = await created(shop, "Product", name="Lamp", supplierId=supplier)
    await copied(shop, "products", product, supplierName="Eve", version=3)
    await shop.recorded()
    for mutation in (
        'updateProduct(id: $id, expectedVersion: 3, patch: {name: "Light"})',
        f'replaceProduct(id: $id, expectedVersion: 4, document: {{supplierId: "{supplier}"}})',
    ):
        found = await shop.ask(
            f"mutation($id: ID!) {{ result: {mutation} {{ __typename ... on ProductWritten "
            "{ version } ... on WriteError { message } } }",
            id=product,
        )
        assert found["result"]["__typename"] == "ProductWritten", found
    assert (shop.database.products.find_one({"_id": product}) or {})["supplierName"] == "Eve"
    await patched(shop, "Supplier", supplier, name="Eva")
    await copied(shop, "products", product, supplierName="Eva")
    found = await shop.ask(
        "mutation($id: ID!) { result: restoreProduct(id: $id, version: 3) { __typename } }",
        id=product,
    )
    assert found["result"]["__typename"] == "ProductWritten"
    await copied(shop, "products", product, name="Lamp", supplierName="Eva")


async def test_copies_alone_do_not_cause_a_conflict(shop: Shop) -> None:
    """The version before the copies is accepted, and one before another user's write is not."""
    supplier = await created(shop, "Supplier", name="Fay")
    product = await created(shop, "Product", name="Lamp", supplierId=supplier)
    await copied(shop, "products", product, supplierName="Fay", version=3)

    async def update(expected: int) -> Any:
        found = await shop.ask(
            "mutation($id: ID!, $expected: Int!) { result: updateProduct(id: $id, "
            'expectedVersion: $expected, patch: {name: "Light"}) { __typename '
            "... on ProductWritten { version } ... on VersionConflict { actualVersion } } }",
            id=product,
            expected=expected,
        )
        return found["result"]

    assert await update(1) == {"__typename": "ProductWritten", "version": 4}
    await patched(shop, "Supplier", supplier, name="Fanny")
    await copied(shop, "products", product, supplierName="Fanny")
    await shop.recorded()
    refused = {"__typename": "VersionConflict", "actualVersion": 5}
    for expected in (1, 3):
        assert await update(expected) == refused
    assert await update(4) == {"__typename": "ProductWritten", "version": 6}
    # A program that knows nothing of `_change` leaves the Copier's attribution there.
    await patched(shop, "Supplier", supplier, name="Frances")
    await copied(shop, "products", product, supplierName="Frances")
    shop.database.products.update_one({"_id": product}, {"$set": {"name": "Glow"}})
    await shop.recorded()
    refused = {"__typename": "VersionConflict", "actualVersion": 8}
    for expected in (6, 7):
        assert await update(expected) == refused


async def test_verify_has_no_findings_with_copies(shop: Shop) -> None:
    """`verify` compares content, and the entries beside copies are not content."""
    await shop.recorded()
    for entity in MODEL.entities:
        assert await _findings(shop, entity) == []
    assert not any(each.failures for each, _ in shop.gateway.consumers)


async def _findings(shop: Shop, entity: Entity) -> list[VerificationFinding]:
    """Return the findings of `verify`, once the recorder's checkpoint is after the creation.

    Without writes the checkpoint is saved only now and then.
    """
    mongo = shop.gateway.mongo
    archive = Archive(mongo, entity.collection)
    async with asyncio.timeout(30):
        while True:
            stored = await Checkpoints(mongo).load(f"recorder:{entity.collection}")
            found = await Verification(mongo, archive, stored, version_field="version").run()
            if all(each.kind != "BEHIND" for each in found.findings):
                return list(found.findings)
            await asyncio.sleep(0.05)
